"""What the kernel says of the host itself: memory, tasks, CPUs, its own faults."""

import re

from gpuwatch.model.alert import Severity
from gpuwatch.sources.kernel.addresses import known
from gpuwatch.sources.kernel.record import Found, Known

# A name may have brackets of its own, `((sd-pam))`, and at most 15 characters.
KILLED = re.compile(r"(Memory cgroup out of memory|Out of memory)[^:\n]*: Kill(?:ed)? process (\d+) \((.{0,15})\)")
CGROUP = re.compile(r"task_memcg=([^,\s]+)|Task in (\S+) killed")
# A part of a path of control groups that names nobody: containers, pods, Slurm jobs, units without an instance. Those of a user
# are below user.slice, in old Slurm below uid_N.
NAMELESS = re.compile(
    r"(?:system|machine|docker|kubepods[\w-]*)\.slice|docker|kubepods|besteffort|burstable|guaranteed|pod[0-9a-f-]+"
    r"|(?:(?:docker|cri-containerd|crio|libpod|nerdctl)-)?[0-9a-f]{12,64}(?:\.scope)?|container|init\.scope|[\w.-]+\.service"
    r"|slurm\w*|(?:\w+_)?slurmstepd\.scope|(?:job|step|task)_\w+|system|user"
)
HUNG = re.compile(r"INFO: task (.{0,40}):(\d+) blocked .*?for more than (\d+) seconds")
NVIDIA_FRAME = re.compile(r"\[nvidia(?:_\w+)?\]")
# The helper of NVIDIA's container tool starts the driver; without persistence mode several of them queue for it.
STARTER = "nvc:["
LOCKUP = re.compile(r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#(\d+) stuck for (\d+)s! \[(.{0,40}):(\d+)\]")
HARD = re.compile(r"(?:NMI )?watchdog: (?:Watchdog detected hard LOCKUP|BUG: hard lockup)", re.IGNORECASE)
STALL = re.compile(r"(?:rcu: )?INFO: \w+ (?:self-)?detected (?:expedited )?stalls? on CPU", re.IGNORECASE)
OOPS = re.compile(
    r"BUG: (?:unable|kernel NULL|Bad)|Unable to handle kernel|Oops:|general protection fault|kernel BUG at|invalid opcode:"
)
WHERE = re.compile(r"(?:\b(?:RIP|IP)\b|^pc :).{0,100}?\b([A-Za-z_][\w.]{0,80})\+0x", re.MULTILINE)
COMM = re.compile(r"PID: (\d+) Comm: (\S{1,40})")
CRASH = re.compile(r"sysrq: (?:SysRq : )?Trigger a crash|Kernel panic - not syncing|(?:Oops|Panic)#\d+ Part\d+")
PANIC = "Kernel panic - not syncing"
DUMP = re.compile(r"(?:Oops|Panic)#\d+ Part\d+")
# By page fault, by any other trap of x86, by any fault of arm64.
SEGFAULT = re.compile(
    r"(?:traps: )?(.{1,40})\[(\d+)\](?:: segfault at |: unhandled exception: | general protection fault | trap )"
    r".* in ([^\[\s]+)\["
)
GPU_LIBRARIES = ("libnccl",)  # a crash in libcuda or in Python is any program's own
FILES = re.compile(r"VFS: file-max limit (\d+) reached")
THROTTLED = re.compile(  # since Linux 5.5 "is above threshold, cpu clock is throttled"
    r"(?:mce: )?CPU(\d+): (Core|Package) temperature (?:is )?above threshold, cpu clock (?:is )?throttled "
    r"\(total events = (\d+)\)"
)
# Since Linux 5.11 with the zone's type: "thermal_zone0: acpitz: critical temperature reached, shutting down".
OVERHEATED = re.compile(r"thermal thermal_zone\d+: (?:.*: )?critical temperature reached(?: ?\((-?\d+) C\))?")
UNCORRECTED = re.compile(r"\bUE\b|event severity: fatal|Uncorrected|Fatal|Processor context corrupt", re.IGNORECASE)
CORRECTED = re.compile(r"\bCE\b|event severity: corrected|Corrected error|Deferred error", re.IGNORECASE)
STATUS = re.compile(r"CPU \d+: Machine Check(?: Exception)?: \w+ Bank \d+: ([0-9a-f]{16})")
UC = 1 << 61  # bit of IA32_MCi_STATUS: the error was not corrected


def find(text: str, learned: Known) -> Found | None:
    """Return what this message says."""
    for reader in (killed, stuck, own_fault, segfault, limits, machine_check):
        found = reader(text, learned)
        if found:
            return found
    return None


def killed(text: str, learned: Known) -> Found | None:
    """Read who was killed for memory: by its own limit, or because the host had none left."""
    found = KILLED.search(text)
    if found is None:
        return None
    is_own = found[1].startswith("Memory") or "CONSTRAINT_MEMCG" in text
    cgroup = CGROUP.search(text)
    path = (cgroup[1] or cgroup[2]) if cgroup else ""
    facts = known(
        pid=found[2],
        name=found[3],
        constraint="memcg" if is_own else None,
        cgroup="" if learned.is_private and names_somebody(path) else path,
    )
    limit = f"its cgroup {facts.get('cgroup', '')} is at its limit".replace("  ", " ") if is_own else "the host has none left"
    words = f"killed process {found[2]} ({found[3]}) for memory: {limit}"
    return Found("oom_kill", Severity.WARNING if is_own else Severity.CRITICAL, facts=facts, words=words)


def names_somebody(path: str) -> bool:
    """Say whether a path of control groups may say whose work it is."""
    return not all(NAMELESS.fullmatch(part) for part in path.split("/") if part)


def stuck(text: str, _learned: Known) -> Found | None:
    """Read a task or a CPU that does not move, and whether it is in NVIDIA's driver."""
    nvidia = "yes" if NVIDIA_FRAME.search(text) else None
    if hung := HUNG.match(text):
        is_start = hung[1].startswith(STARTER)
        severity = Severity.CRITICAL if nvidia and not is_start else Severity.WARNING
        place = " inside the NVIDIA driver" if nvidia else ""
        hint = "; is persistence mode off?" if nvidia and is_start else ""
        words = f"task {hung[1]} (pid {hung[2]}) is blocked{place} for more than {hung[3]} s{hint}"
        return Found("hung_task", severity, facts=known(pid=hung[2], name=hung[1], seconds=hung[3], nvidia=nvidia), words=words)
    if lockup := LOCKUP.match(text):
        facts = known(pid=lockup[4], name=lockup[3], seconds=lockup[2], cpu=lockup[1], nvidia=nvidia)
        return Found("soft_lockup", Severity.WARNING, facts=facts)
    if HARD.match(text):
        return Found("soft_lockup", Severity.CRITICAL, facts=known(nvidia=nvidia))
    return Found("soft_lockup", Severity.WARNING, facts=known(nvidia=nvidia)) if STALL.match(text) else None


def own_fault(text: str, learned: Known) -> Found | None:
    """Read a fault of the kernel. One that ended its boot is in what the crash left behind: nobody reads on after a panic."""
    if DUMP.match(text):
        learned.is_dump = True
    if CRASH.match(text) or PANIC in text or (learned.is_dump and OOPS.match(text)):
        line = next((line for line in text.split("\n") if PANIC in line), text.split("\n", 1)[0])
        return Found("crash", Severity.INFO, words=f"before this boot: {line}")
    if not OOPS.match(text):
        return None
    where, who = WHERE.search(text), COMM.search(text)
    facts = known(function=where[1] if where else None, pid=who[1] if who else None, name=who[2] if who else None)
    return Found("kernel_oops", Severity.WARNING, facts=facts, words=text.split("\n", 1)[0] + f" in {facts.get('function', '?')}")


def segfault(text: str, _learned: Known) -> Found | None:
    """Read a crash inside a library that only GPU jobs load."""
    found = SEGFAULT.match(text)
    if found is None or not found[3].startswith(GPU_LIBRARIES):
        return None
    return Found("segfault", Severity.WARNING, facts=known(name=found[1], pid=found[2], library=found[3]))


def limits(text: str, _learned: Known) -> Found | None:
    """Read a limit of the host that is reached: open files, heat."""
    if found := FILES.match(text):
        return Found("file_limit", Severity.WARNING, facts={"limit": found[1]})
    if found := THROTTLED.match(text):
        return Found("cpu_throttle", Severity.INFO, facts={"cpu": found[1], "scope": found[2].lower(), "total": found[3]})
    if found := OVERHEATED.match(text):
        return Found("overheated", Severity.CRITICAL, facts=known(celsius=found[1]))
    return None


def machine_check(text: str, _learned: Known) -> Found | None:
    """Read an error of memory or CPU that the hardware reported; details that say neither good nor bad are left out."""
    if "[Hardware Error]" not in text and not text.startswith("EDAC"):
        return None
    status = STATUS.search(text)
    if UNCORRECTED.search(text) or (status and int(status[1], 16) & UC):
        return Found("mce", Severity.CRITICAL, facts={"corrected": "no"})
    if CORRECTED.search(text) or status:
        return Found("mce", Severity.INFO, facts={"corrected": "yes"})
    return None
