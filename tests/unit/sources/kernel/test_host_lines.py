"""What the kernel says of the host, of disks and file systems, line by line."""

import pytest

from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.sources.kernel import replay

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


def told(*log: str) -> list[Event]:
    """Return the events of the texts of a log, a millisecond apart."""
    return list(replay([f"[    5.{number:06d}] {text}" for number, text in enumerate(log, 1)], 1_796_000_000.0))


def only(*log: str) -> Event:
    """Return the one event of a log."""
    events = told(*log)
    assert len(events) == 1, events
    return events[0]


@pytest.mark.parametrize(
    ("line", "kind", "key", "severity"),
    [
        (
            "nvme nvme1: I/O tag 5 (1005) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting",
            "nvme_timeout",
            "nvme1",
            WARNING,
        ),
        ("nvme nvme1: I/O 22 QID 0 timeout, reset controller", "nvme_timeout", "nvme1", WARNING),
        ("nvme nvme1: I/O 22 (I/O Cmd) QID 4 timeout, disable controller", "nvme_timeout", "nvme1", WARNING),
        ("nvme nvme1: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10", "nvme_timeout", "nvme1", WARNING),
        ("nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "nvme_timeout", "nvme1", CRITICAL),
        ("nvme nvme1: frozen state error detected, reset controller", "nvme_timeout", "nvme1", WARNING),
        ("nvme nvme1: Device not ready; aborting reset, CSTS=0x1", "nvme_disabled", "nvme1", CRITICAL),
        ("nvme nvme1: Disabling device after reset failure: -19", "nvme_disabled", "nvme1", CRITICAL),
        ("nvme nvme1: Removing after probe failure status: -19", "nvme_disabled", "nvme1", CRITICAL),
        ("I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2", "io_error", "sda", WARNING),
        ("blk_update_request: I/O error, dev nvme0n1, sector 1048640", "io_error", "nvme0n1", WARNING),
        ("critical medium error, dev nvme0n1, sector 12 op 0x0:(READ)", "io_error", "nvme0n1", WARNING),
        ("Buffer I/O error on dev dm-0, logical block 13, lost async page write", "io_error", "dm-0", WARNING),
        ("md/raid1:md0: Disk failure on sda1, disabling device.", "raid_failure", "md0", CRITICAL),
        ("md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.", "raid_failure", "md0", CRITICAL),
        ("block nvme0n1: no usable path - requeuing I/O", "raid_failure", "nvme0n1", WARNING),
        ("block nvme0n1: no available path - failing I/O", "raid_failure", "nvme0n1", CRITICAL),
        ("EXT4-fs (dm-0): Remounting filesystem read-only", "fs_readonly", "dm-0", CRITICAL),
        (
            "XFS (nvme1n1): Log I/O Error (0x2) detected at xlog_ioend_work. Shutting down filesystem.",
            "fs_readonly",
            "nvme1n1",
            CRITICAL,
        ),
        ("XFS (nvme1n1): Filesystem has been shut down due to log error (0x2).", "fs_readonly", "nvme1n1", CRITICAL),
        ("XFS (sdb1): I/O Error Detected. Shutting down filesystem", "fs_readonly", "sdb1", CRITICAL),  # Linux 5.4
        ("XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem", "fs_readonly", "dm-0", CRITICAL),
        (
            "XFS (dm-0): Metadata I/O Error (0x1) detected at xfs_buf_ioend+0x1 (xfs_buf.c:29).  Shutting down filesystem.",
            "fs_readonly",
            "dm-0",
            CRITICAL,
        ),
        ("XFS (nvme1n1): log I/O error -5", "fs_error", "nvme1n1", WARNING),
        ("XFS (dm-0): writeback error on inode 134, offset 0, sector 1536", "fs_error", "dm-0", WARNING),
        ("XFS (dm-0): Failing async write on buffer block 0x3. Retrying async write.", "fs_error", "dm-0", WARNING),
        ("XFS (sdb1): log mount/recovery failed: error -5", "fs_error", "sdb1", WARNING),
        ("Aborting journal on device sdc1-8.", "fs_error", "sdc1", WARNING),
        ("Aborting journal on device dm-0-8.", "fs_error", "dm-0", WARNING),
        ("Aborting journal on device dm-1.", "fs_error", "dm-1", WARNING),  # a journal on a device of its own
        ("JBD2: Error -5 detected when updating journal superblock for sdb1-8.", "fs_error", "sdb1", WARNING),
        ("JBD2: I/O error when updating journal superblock for nvme0n1p2-8.", "fs_error", "nvme0n1p2", WARNING),
        ("JBD2: Detected IO errors while flushing file data on dm-11-45", "fs_error", "dm-11", WARNING),
        ("EXT4-fs (vda2): shut down requested (2)", "fs_readonly", "vda2", CRITICAL),
        ("BTRFS info (device dm-0): forced readonly", "fs_readonly", "dm-0", CRITICAL),
        ("BTRFS: error (device sdg) in __btrfs_cow_block:1176: errno=-5 IO failure", "fs_error", "sdg", WARNING),
        ("BTRFS error (device sdb1): bdev /dev/sdb1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0", "fs_error", "sdb1", WARNING),
        (
            "BTRFS warning (device sda1): csum failed root 5 ino 257 off 0 csum 0x8941f998 expected csum 0x6efa6f5d mirror 1",
            "fs_error",
            "sda1",
            WARNING,
        ),
        ("BTRFS warning (device sda1): lost page write due to IO error on /dev/sda1 (-5)", "fs_error", "sda1", WARNING),
        ("F2FS-fs (sda1): Stopped filesystem due to reason: 3", "fs_readonly", "sda1", CRITICAL),
        (
            "WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended.",
            "fs_readonly",
            "tank",
            CRITICAL,
        ),
        (
            "WARNING: MMP writes to pool 'tank' have not succeeded in over 60000 ms; suspending pool. Hrtime 123456789",
            "fs_readonly",
            "tank",
            CRITICAL,
        ),
        (
            "zio pool=tank vdev=/dev/disk/by-id/wwn-0x5000000000000000-part1 error=5 type=2 offset=7748175663104 size=12288",
            "io_error",
            "tank",
            WARNING,
        ),
        ("md/raid:md127: Disk failure on sdb1, disabling device.", "raid_failure", "md127", CRITICAL),
        ("md/linearmd0: Disk failure on sdb1 detected, failing array.", "raid_failure", "md0", CRITICAL),
        ("md/raid:md0: Cannot continue operation (2/4 failed).", "raid_failure", "md0", CRITICAL),
        ("md/raid:md0: not enough operational devices (2/4 failed)", "raid_failure", "md0", CRITICAL),
        ("md/raid10:md0: not enough operational mirrors.", "raid_failure", "md0", CRITICAL),
        ("md/raid1:md0: sda1: unrecoverable I/O read error for block 4131643312", "raid_failure", "md0", CRITICAL),
        ("nvme nvme1: IO queues lost", "nvme_disabled", "nvme1", CRITICAL),
        (
            "device offline error, dev sdc, sector 2048 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
            "io_error",
            "sdc",
            WARNING,
        ),
        (
            "timeout error, dev nvme0n1, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
            "io_error",
            "nvme0n1",
            WARNING,
        ),
        ("XFS (dm-3): User initiated shutdown received. Shutting down filesystem", "fs_readonly", "dm-3", CRITICAL),
        ("BTRFS info (device sdb1: state EA): forced readonly", "fs_readonly", "sdb1", CRITICAL),
        ("EXT4-fs error (device sda2): ext4_find_entry:1455: inode #2: comm ls: reading directory", "fs_error", "sda2", WARNING),
        ('XFS (sda2): metadata I/O error in "xfs_trans_read_buf_map" at daddr 0x1', "fs_error", "sda2", WARNING),
        ("XFS (sda2): Metadata corruption detected at xfs_agf_verify", "fs_error", "sda2", WARNING),
        ("BTRFS error (device sdb1): parent transid verify failed", "fs_error", "sdb1", WARNING),
        ("nfs: server storage-1 not responding, still trying", "nfs_timeout", "storage-1", WARNING),
        ("nfs: server storage-1 not responding, timed out", "nfs_timeout", "storage-1", WARNING),
        ("VFS: file-max limit 1000000 reached", "file_limit", "", WARNING),
        ("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:812]", "soft_lockup", "", WARNING),
        ("NMI watchdog: BUG: soft lockup - CPU#18 stuck for 22s! [python3:812]", "soft_lockup", "", WARNING),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 3", "soft_lockup", "", CRITICAL),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "soft_lockup", "", WARNING),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400", "mce", "", CRITICAL),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010091", "mce", "", INFO),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)", "mce", "", INFO),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)", "mce", "", CRITICAL),
        ("{1}[Hardware Error]: event severity: corrected", "mce", "", INFO),
        ("{1}[Hardware Error]: event severity: fatal", "mce", "", CRITICAL),
        ("[Hardware Error]: Corrected error, no action required.", "mce", "", INFO),
        ("[Hardware Error]: Uncorrected, software restartable error.", "mce", "", CRITICAL),
        ("CPU0: Core temperature above threshold, cpu clock throttled (total events = 5)", "cpu_throttle", "", INFO),
        ("CPU11: Core temperature is above threshold, cpu clock is throttled (total events = 3)", "cpu_throttle", "", INFO),
        (
            "mce: CPU7: Package temperature is above threshold, cpu clock is throttled (total events = 219)",
            "cpu_throttle",
            "",
            INFO,
        ),
        ("thermal thermal_zone4: critical temperature reached (128 C), shutting down", "overheated", "", CRITICAL),
        ("thermal thermal_zone0: acpitz: critical temperature reached, shutting down", "overheated", "", CRITICAL),
        (
            "traps: python3[1] general protection fault ip:7fed39b5e7b0 sp:7fff3e34 error:0 in libnccl.so.2[7fed39ae3000+8300]",
            "segfault",
            "",
            WARNING,
        ),
        (
            "traps: python3[1] trap invalid opcode ip:7fed39b5e7b0 sp:7fff3e349620 error:0 in libnccl.so.2[7fed39ae3000+8300]",
            "segfault",
            "",
            WARNING,
        ),
        (
            "python3[812]: unhandled exception: DABT (lower EL), ESR 0x9, level 2 translation fault in libnccl.so.2[ff8c+83000]",
            "segfault",
            "",
            WARNING,
        ),
        ("Kernel panic - not syncing: Fatal exception", "crash", "", INFO),
    ],
)
def test_a_fault_is_told(line: str, kind: str, key: str, severity: Severity) -> None:
    event = only(line)
    assert (event.kind, event.key, event.severity) == (kind, key, severity)


@pytest.mark.parametrize(
    "line",
    [
        "EXT4-fs (md126p2): re-mounted 5b1d7e1c-6f7a-4d1e-9a55-0e9a0b7c1d22 r/w. Quota mode: none.",
        "EXT4-fs (nvme1n1p1): mounted filesystem with ordered data mode",
        "XFS (nvme1n1): Mounting V5 Filesystem",
        "nfs: server storage-1 OK",
        "mlx5_core 0000:9a:00.0 mlx5_4: Port: 1 Link INIT",
        "mce: CPU12: Core temperature/speed normal",
        "mce: CPU0: Package temperature/speed normal",
        "python3[4412]: segfault at 7f ip 00007f1c sp 00007ffd error 4 in libcuda.so.550.54.15[7f1c+1d0000]",
        "nvme nvme0: 16/0/0 default/read/poll queues",
        "md/raid1:md0: active with 2 out of 2 mirrors",
        "traps: python3[1] general protection fault ip:7fed39b5e7b0 sp:7fff3e34 error:0 in libc.so.6[7fed39ae3000+83000]",
        "thermal thermal_zone0: failed to read out thermal zone (-61)",
        "XFS (dm-0): Ending clean mount",
        "XFS (dm-0): Please unmount the filesystem and rectify the problem(s)",
        "BTRFS info (device sdb1): bdev /dev/sdb1 errs: wr 0, rd 0, flush 0, corrupt 3, gen 0",  # of long ago, told at each mount
        "BTRFS warning (device sda1): Skipping commit of aborted transaction.",
        "JBD2: Spotted dirty metadata buffer (dev = sda1, blocknr = 0)",
        "WARNING: Pool 'tank' was exported",
        "md: md0: recovery done.",
        "operation not supported error, dev nvme0n1, sector 0 op 0x9:(WRITE_ZEROES) flags 0x800 phys_seg 0 prio class 2",
        "net_ratelimit: 23807 callbacks suppressed",
        "oom_reaper: reaped process 90188 (python3), now anon-rss:0kB",
        "perf: interrupt took too long (2509 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
        "EDAC MC: Ver: 3.0.0",
        "mce: Using 32 MCE banks",
        "WARNING: CPU: 3 PID: 812 at kernel/sched/core.c:1 x+0x1/0x2",
    ],
)
def test_what_is_no_fault_is_nothing(line: str) -> None:
    assert told(line) == []


OLD_OOM = [
    "Task in /docker/1b0c killed as a result of limit of /docker/1b0c",
    "memory: usage 8388608kB, limit 8388608kB, failcnt 100",
    "Memory cgroup out of memory: Kill process 812 (python) score 990 or sacrifice child",
    "Killed process 812 (python) total-vm:98120044kB, anon-rss:66010220kB, file-rss:70220kB, shmem-rss:0kB",
]


def test_an_old_kernels_lines_on_memory_are_one_kill() -> None:
    event = only(*OLD_OOM)
    assert (event.kind, event.severity) == ("oom_kill", WARNING)
    assert event.facts == {"pid": "812", "name": "python", "constraint": "memcg", "cgroup": "/docker/1b0c"}


@pytest.mark.parametrize("name", ["(sd-pam)", "a) b", "python3"])
def test_a_name_with_brackets_is_named_whole(name: str) -> None:
    line = f"Out of memory: Killed process 812 ({name}) total-vm:1024kB, anon-rss:512kB, file-rss:0kB, UID:0 pgtables:8kB"
    assert only(line).facts["name"] == name


SUPPRESSED = "buffer_io_error: 1234 callbacks suppressed"
BUFFER = "Buffer I/O error on dev sdb1, logical block 7, lost async page write"


def test_errors_that_the_kernel_did_not_print_one_by_one_are_counted_for_what_it_last_told_of() -> None:
    event = only(BUFFER, SUPPRESSED, BUFFER)
    assert (event.kind, event.key, event.count) == ("io_error", "sdb1", 1236)
    assert [(one.kind, one.key, one.count) for one in told(SUPPRESSED)] == [("io_error", "", 1234)]
    others = (
        ("blk_print_req_error: 5 callbacks suppressed", "I/O error, dev sdb, sector 2048 op 0x0:(READ)", "io_error"),
        ("EXT4-fs error: 5 callbacks suppressed", "EXT4-fs error (device sdb): ext4_find_entry:1455: inode #2", "fs_error"),
    )
    for line, before, kind in others:
        (event,) = told(before, line)
        assert (event.kind, event.key, event.count) == (kind, "sdb", 6)


def test_two_victims_are_two_kills() -> None:
    first = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task_memcg=/a,task=one,pid=1,uid=0"
    second = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task_memcg=/b,task=two,pid=2,uid=0"
    events = told(first, "Out of memory: Killed process 1 (one) x", second, "Out of memory: Killed process 2 (two) x")
    assert [(event.facts["pid"], event.facts["cgroup"], event.severity) for event in events] == [
        ("1", "/a", CRITICAL),
        ("2", "/b", CRITICAL),
    ]


HUNG = [
    "INFO: task python3:812 blocked for more than 241 seconds.",
    "      Tainted: P           OE     5.15.0-141-generic #151-Ubuntu",
    '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
    "task:python3         state:D stack:    0 pid:  812 ppid: 11240 flags:0x00000006",
    "Call Trace:",
    " <TASK>",
    " schedule+0x69/0x110",
]


def test_a_task_that_hangs_in_the_driver_is_its_fault() -> None:
    event = only(*HUNG, " os_acquire_mutex+0x3a/0x50 [nvidia]", " </TASK>")
    assert (event.severity, event.facts) == (CRITICAL, {"pid": "812", "name": "python3", "seconds": "241", "nvidia": "yes"})


def test_a_task_that_hangs_elsewhere_is_not() -> None:
    event = only(*HUNG, " nfs_wait_bit_killable+0x22/0x90 [nfs]", " </TASK>")
    assert (event.severity, event.facts) == (WARNING, {"pid": "812", "name": "python3", "seconds": "241"})


def test_what_other_cpus_print_between_the_lines_of_a_trace_is_told_too() -> None:
    xid = "NVRM: Xid (PCI:0000:65:00): 119, pid=812, name=python3, Timeout"
    events = told(*HUNG[:5], xid, *HUNG[5:], " _nv051482rm+0x10/0x40 [nvidia]", " </TASK>")
    assert sorted((event.kind, event.severity) for event in events) == [("hung_task", CRITICAL), ("xid", CRITICAL)]


def test_two_hung_tasks_are_two() -> None:
    other = [line.replace("python3:812", "python3:813") for line in HUNG]
    events = told(*HUNG, *other, " nvidia_ioctl+0x1/0x2 [nvidia]", " </TASK>")
    assert [(event.facts["pid"], event.severity) for event in events] == [("812", WARNING), ("813", CRITICAL)]


def test_the_lines_of_an_oops_are_one() -> None:
    event = only(
        "BUG: kernel NULL pointer dereference, address: 0000000000000078",
        "#PF: supervisor read access in kernel mode",
        "Oops: 0000 [#1] PREEMPT SMP NOPTI",
        "CPU: 11 PID: 63 Comm: ksoftirqd/11 Tainted: P           OE     6.8.0-58-generic",
        "RIP: 0010:nv_drm_gem_free+0x6b/0x82 [nvidia_drm]",
        "Call Trace:",
        " kthread+0xbd/0xe0",
        "---[ end trace 61f6991dc9ee5be0 ]---",
    )
    assert (event.kind, event.severity, event.count) == ("kernel_oops", WARNING, 1)
    assert event.facts == {"function": "nv_drm_gem_free", "pid": "63", "name": "ksoftirqd/11"}


def test_an_oops_of_arm64_is_one() -> None:
    event = only(
        "Unable to handle kernel paging request at virtual address ffff800012345678",
        "Mem abort info:",
        "  ESR = 0x0000000096000007",
        "[ffff800012345678] pgd=0000000000000000",
        "Internal error: Oops: 0000000096000007 [#1] SMP",
        "CPU: 11 PID: 63 Comm: python3 Tainted: P           OE      6.8.0-58-generic-64k",
        "pstate: 60400009 (nZCv daif +PAN -UAO)",
        "pc : uvm_va_block_find+0x6b/0x82 [nvidia_uvm]",
        "lr : uvm_ioctl+0x1/0x2 [nvidia_uvm]",
        "x29: ffff80001234 x28: 0000000000000000",
        "Call trace:",
        " uvm_ioctl+0x1/0x2 [nvidia_uvm]",
        "---[ end trace 0000000000000000 ]---",
    )
    assert (event.kind, event.facts) == ("kernel_oops", {"function": "uvm_va_block_find", "pid": "63", "name": "python3"})


def test_an_oops_in_a_dump_is_the_crash_of_an_earlier_boot() -> None:
    events = told(
        "Panic#1 Part1", "BUG: unable to handle page fault for address: ffff", "Oops: 0002 [#1] SMP", "---[ end trace 0 ]---"
    )
    assert {(event.kind, event.severity) for event in events} == {("crash", INFO)}
