"""What the NVIDIA driver says of GPUs and of itself, and what other drivers say that hold them."""

import re

from gpuwatch.catalogue.xids import NVLINK5, RECOVERY_CHANGED, xid
from gpuwatch.model.alert import Severity
from gpuwatch.sources.kernel.addresses import PCI, gpu_address, known, plain
from gpuwatch.sources.kernel.record import Found, Known

XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)(?: GPU-I:(\d+))?(?: GPU-CI:(\d+))?[^)]*\): (\d{1,6})\b"
    r"(?:, pid='?([^,']*)'?)?(?:, name='?([^,']*)'?)?(.*)",
    re.DOTALL,
)
# The name of an action changes with the driver, its number does not (field 230 of NVML). A line that is broken behind the
# number is not believed.
RECOVERY = re.compile(r"changed from .* to (0x[0-9A-Fa-f]{1,8}) \(")
PART = re.compile(r"\b(Fatal|Non-?fatal)\b", re.IGNORECASE)
LINK = re.compile(r"\bLink (\d+)", re.IGNORECASE)
PREVIOUS = re.compile(r"previous Xid (\d+)", re.IGNORECASE)
MULTIPROCESSOR = re.compile(r"\((GPC \d+, TPC \d+, SM \d+)\)")

UUID = re.compile(rf"NVRM: GPU at (?:PCI:)?({PCI}): (GPU-[0-9a-f-]{{8,40}})")
OFF_BUS = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?({PCI}):?\s.*fallen off the bus", re.DOTALL)
GSP = re.compile(rf"NVRM: GPU(?:(\d+)| (?:at )?(?:PCI:)?({PCI}):?) .*(?:Heartbeat timed out|\*\* GSP Timeout \*\*)")
API = re.compile(r"NVRM: API mismatch:(?: the client '([^']*)' \(pid (\d+)\))?")
VERSION = re.compile(r"version (\d[\d.]*\d)")
NOT_CALLED = re.compile(r"NVRM: The NVIDIA probe routine was not called for (\d+) device")
NOT_SUPPORTED = re.compile(rf"NVRM: The NVIDIA GPU ({PCI}).*(?:not supported by|requires use of)", re.DOTALL)
WRONG_KERNEL = re.compile(r"nvidia: (?:version magic|disagrees about version of symbol)")
HOLDS = re.compile(rf"NVRM: .{{0,100}}?({PCI}).{{0,100}}? already bound to (\w+)")
OTHER = re.compile(rf"(nouveau|NovaCore) ({PCI}): NVIDIA ")
SWITCH = re.compile(rf"nvidia-nvswitch\d+: SXid \(PCI:({PCI})\): (\d{{1,9}}), (.*)", re.DOTALL)

# Actions of Xid 154 by number: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 recover the IMEX domain,
# 6 bus reset, 7 system reboot. Those with which the GPU can still be used:
MILD = {0: Severity.INFO, 3: Severity.WARNING, 5: Severity.WARNING}
# Non-fatal SXid codes that are a fault in the making even once; the others count when they come back (failure-modes.md 4).
NOTABLE_SXIDS = {20009: Severity.WARNING}  # receiver error rate of a link: cable or connector


def find(text: str, learned: Known) -> Found | None:
    """Return what this message says."""
    if text.startswith("NVRM: Xid"):
        return an_xid(text, learned)
    if text.startswith("NVRM:"):
        return of_driver(text, learned)
    if text.startswith("nvidia-nvswitch"):
        return an_sxid(text)
    if other := OTHER.match(text):
        return Found("nouveau", Severity.INFO, gpu_address(other[2]) or "", facts={"driver": other[1]})
    if WRONG_KERNEL.match(text):
        return Found("no_driver", Severity.CRITICAL, facts={"why": "other_kernel"})
    return None


def an_xid(text: str, learned: Known) -> Found | None:
    """Read an Xid line, of any driver since 2012."""
    found = XID.match(text)
    address = gpu_address(found[1]) if found else None
    if found is None or address is None:
        return None
    code, rest = int(found[4]), found[7]
    facts = known(
        pid=found[5],
        name=found[6],
        uuid=learned.uuids.get(address),
        gpu_instance=plain(found[2]),
        compute_instance=plain(found[3]),
    )
    severity = xid(code).severity
    if code == RECOVERY_CHANGED and (changed := RECOVERY.search(rest)):
        number = int(changed[1], 16)
        facts["recovery"] = str(number)
        severity = MILD.get(number, Severity.CRITICAL)
    elif code in NVLINK5 and (part := PART.search(rest)):
        is_fatal = part[1].lower() == "fatal"
        facts["fatal"] = "yes" if is_fatal else "no"
        severity = Severity.CRITICAL if is_fatal else Severity.WARNING
    if (code in NVLINK5 or code == 74) and (link := LINK.search(rest)):
        facts |= known(link=plain(link[1]))
    facts |= {
        name: match[1]
        for name, match in (
            ("previous", PREVIOUS.search(rest) if code == 45 else None),
            ("sm", MULTIPROCESSOR.search(rest) if code == 13 else None),
        )
        if match
    }
    return Found("xid", severity, address, code, facts)


def of_driver(text: str, learned: Known) -> Found | None:
    """Read what else the driver says."""
    if named := UUID.match(text):
        learned.names(gpu_address(named[1]) or "", named[2])
        return None
    if lost := OFF_BUS.match(text):
        address = gpu_address(lost[1]) or ""
        return Found("off_bus", Severity.CRITICAL, address, facts=known(uuid=learned.uuids.get(address)))
    if silent := GSP.match(text):
        return Found("gsp", Severity.WARNING, gpu_address(silent[2] or "") or "", facts=known(index=silent[1]))
    if mismatch := API.match(text):
        client, module, *_ = [*VERSION.findall(text), "", ""]
        return Found(
            "api_mismatch", Severity.WARNING, facts=known(client=client, module=module, name=mismatch[1], pid=mismatch[2])
        )
    if held := HOLDS.match(text):
        return Found("nouveau", Severity.CRITICAL, gpu_address(held[1]) or "", facts={"driver": held[2]})
    if not_called := NOT_CALLED.match(text):
        return Found("no_driver", Severity.CRITICAL, facts={"why": "held", "devices": not_called[1]})
    if unsupported := NOT_SUPPORTED.match(text):
        return Found("no_driver", Severity.WARNING, facts={"why": "unsupported", **known(gpu=gpu_address(unsupported[1]))})
    return None


def an_sxid(text: str) -> Found | None:
    """Read the head line of an NVSwitch error; the lines of detail that follow it are no errors of their own."""
    found = SWITCH.match(text)
    address = gpu_address(found[1]) if found else None
    if found is None or address is None or found[3].startswith(("Severity", "Data")):
        return None
    code, part, named = int(found[2]), PART.search(found[3]), LINK.search(found[3])
    link = known(link=plain(named[1] if named else None))
    if part is None:  # forms without that word and without a link (SOE HALTED) are of the switch as a whole
        severity = Severity.WARNING if link else Severity.CRITICAL
        return Found("sxid", severity, address, code, link)
    is_fatal = part[1].lower() == "fatal"
    severity = Severity.CRITICAL if is_fatal else NOTABLE_SXIDS.get(code, Severity.INFO)
    return Found("sxid", severity, address, code, {"fatal": "yes" if is_fatal else "no", **link})
