"""What NVML's return codes mean: for one value, for a GPU, for the driver. Pure; nvml.h and field reports are the source."""

import msgspec

from gpuwatch.model.reading import Absence, Fault

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_POWER = 8
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
IRQ_ISSUE = 11
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
CORRUPTED_INFOROM = 14
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
NOT_READY = 27
UNKNOWN = 999

PERMANENT = frozenset((NOT_SUPPORTED, FUNCTION_NOT_FOUND, DEPRECATED))  # this driver will never answer
NOTHING_NOW = frozenset((6, 10, 21, 27))  # not found, timeout, no data, not ready: no new sample
PROCESS_WIDE = frozenset((UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH))
GONE = frozenset((GPU_IS_LOST, RESET_REQUIRED))  # the handle is not to be used again
# three in a row on a call that used to work make a fault; the process-wide ones are here where NVML itself says otherwise
SUSPECT = frozenset((OPERATING_SYSTEM, UNKNOWN)) | PROCESS_WIDE
ROW = 3
GRACE = 120.0  # seconds in which udev, nvidia-modprobe or nvidia-persistenced may still make the nodes of a loaded module

AILMENTS = {
    INSUFFICIENT_POWER: "an external power cable of this card is missing or has no power: check the plugs",
    IRQ_ISSUE: "the GPU's interrupts do not arrive: look for IRQ or IOMMU messages in the kernel log; a reboot often helps",
    CORRUPTED_INFOROM: "the card's InfoROM is damaged: some facts are missing, and the card may be for return",
}


def absence(code: int) -> Absence:
    """Return why a value is absent whose call answered with this code."""
    if code in PERMANENT:
        return Absence.UNSUPPORTED
    if code in NOTHING_NOW:
        return Absence.EMPTY
    if code == NO_PERMISSION:
        return Absence.DENIED
    if code in GONE:
        return Absence.LOST
    return Absence.FAILED


def gone(code: int) -> Fault:
    """Return the fault of a GPU that answered 15 or 16."""
    if code == RESET_REQUIRED:
        return Fault(
            "reset_required", "the GPU must be reset before it works again: stop its jobs, then nvidia-smi --gpu-reset", code
        )
    return Fault("lost", "the GPU is lost (fell off the bus): power cycle the host, a warm reboot is often not enough", code)


def not_opened(code: int, name: str) -> Fault:
    """Return the fault of a GPU that NVML counts but does not let us open."""
    if code in GONE:
        return gone(code)
    if code == NO_PERMISSION:
        return Fault("no_permission", "no permission to open this GPU: check the mode of its /dev/nvidia* node", code)
    if code in AILMENTS:
        return Fault("unknown_error", f"the GPU cannot be opened: {AILMENTS[code]}", code)
    return Fault("unknown_error", f"the GPU cannot be opened: NVML answers {name} ({code})", code)


def reason(fault: Fault) -> Absence:
    """Return why the values of a GPU are absent that has this fault and no handle."""
    reasons = {"unknown_error": Absence.FAILED, DRIVER: Absence.FAILED, "no_permission": Absence.DENIED, "hung": Absence.LATE}
    return reasons.get(fault.kind, Absence.LOST)


def keeps_failing(metric: str, code: int, count: int) -> Fault:
    """Return the fault of a GPU of which one call that used to work fails again and again."""
    words = f"the call for {metric} used to work and failed {count} times in a row with code {code}; other calls still answer"
    return Fault("unknown_error", words, code)


def barren(codes: frozenset[int], count: int) -> Fault | None:
    """Return the fault of a GPU that has given no value `count` times in a row, with these codes the last time."""
    if codes == {INVALID_ARGUMENT}:
        return STALE_HANDLE
    if codes == {NO_PERMISSION}:
        return not_opened(NO_PERMISSION, "")
    if count < ROW or not codes & SUSPECT:
        return None
    code = min(codes & SUSPECT)
    return Fault("unknown_error", f"no call to this GPU has answered {count} times in a row (code {code}): it may be lost", code)


def ailing(code: int) -> Fault:
    """Return the fault of a GPU that goes on answering, but reports that something is wrong with it."""
    return Fault("unknown_error", AILMENTS[code], code)


STALE_HANDLE = Fault("unknown_error", "NVML no longer knows the handle it gave; the GPU is looked for again", INVALID_ARGUMENT)
DRIVER = "driver"  # kind of a GPU's fault that says nothing of the GPU
DRIVER_DOWN = Fault(DRIVER, "the driver as a whole does not answer")
# for how long is not in its words: these stay, and it grows
HUNG = Fault("hung", "a call to this GPU has not returned, and no further call is made until it does")


def unlisted(count: int) -> Fault:
    """Return the fault of a GPU that was there and is no longer among those that NVML counts."""
    return Fault("lost", f"the GPU is gone from NVML's list, which now has {count}")


class Traces(msgspec.Struct, frozen=True):
    """What the file system says about the driver, without touching NVML. None: cannot be told from here."""

    module: str | None  # version of the loaded kernel module
    nodes: bool  # /dev/nvidiactl and at least one /dev/nvidia<minor> are there
    nouveau: bool  # the nouveau module is loaded
    container: bool
    nodeless: float = 0.0  # seconds for which the module has been loaded without its nodes, as far as that is known

    @property
    def lacks_nodes(self) -> bool:
        """The module is loaded, and nobody has made its nodes, or somebody took them away."""
        return self.module is not None and not self.nodes


def not_started(code: int, name: str, traces: Traces) -> Fault:
    """Return the driver's state when nvmlInit answered with this code (nvml.md 1.2)."""
    if code == LIBRARY_NOT_FOUND:
        return Fault("no_library", "libnvidia-ml.so.1 is not installed: no NVIDIA driver, or only its kernel module", code)
    if code == LIB_RM_VERSION_MISMATCH:
        loaded = f" (loaded module: {traces.module})" if traces.module else ""
        return Fault(
            "version_mismatch",
            f"the NVML library and the loaded kernel module differ in version{loaded}: reboot, or reload the nvidia modules",
            code,
        )
    if code == UNINITIALIZED:  # no answer of nvmlInit, but of a call that came too late for it
        return Fault("failed", "NVML is no longer initialised; it is being initialised again", code)
    if traces.lacks_nodes:
        return no_nodes(code, traces)
    if code == DRIVER_NOT_LOADED:
        return not_loaded(traces)
    if code == NO_PERMISSION:
        return Fault("no_permission", "no permission to open /dev/nvidiactl: check the mode of the /dev/nvidia* nodes", code)
    if code in SUSPECT:  # those that are process-wide are named above
        return lost_access(code)
    return Fault("failed", f"nvmlInit answers {name} ({code})", code)


def no_nodes(code: int, traces: Traces) -> Fault:
    """Return the state of a loaded module without its nodes: they are waited for, and once that was long enough, missed."""
    head = f"the kernel module {traces.module} is loaded"
    if traces.nodeless < GRACE:
        words = (
            f"{head}, its /dev/nvidia* nodes are not there yet; they are waited for for up to {GRACE:.0f} s "
            "(nvidia-modprobe or nvidia-persistenced make them)"
        )
        return Fault("no_nodes", words, code, waits=True)
    words = f"{head} but /dev/nvidia* nodes are missing: run nvidia-modprobe -c 0 -u, or enable nvidia-persistenced"
    return Fault("no_nodes", words, code)


def not_loaded(traces: Traces) -> Fault:
    """Return which of the reasons keeps the kernel module out."""
    if traces.module is not None:
        words = f"NVML finds no usable GPU although the kernel module {traces.module} is loaded: see the kernel log (NVRM)"
        return Fault("not_loaded", words, DRIVER_NOT_LOADED)
    if traces.nouveau:
        words = "the nouveau driver holds the GPUs: blacklist nouveau, rebuild the initramfs and reboot"
        return Fault("nouveau", words, DRIVER_NOT_LOADED)
    words = "the nvidia kernel module is not loaded: modprobe nvidia; after a kernel upgrade check dkms status"
    return Fault("not_loaded", words, DRIVER_NOT_LOADED)


def no_access(code: int, traces: Traces) -> Fault:
    """Return the driver's state where NVML is initialised and none of the GPUs can be reached."""
    if traces.lacks_nodes or code == NO_PERMISSION:
        return not_started(NO_PERMISSION, "", traces)
    if code in PROCESS_WIDE:  # of every GPU, while NVML itself answers
        return not_started(code, "", traces)
    return lost_access(code)


def lost_access(code: int) -> Fault:
    """Return the state of a process whose device access was taken away, mostly a container after systemctl daemon-reload."""
    return Fault(
        "access_lost",
        "access to the NVIDIA devices was lost (unknown error on all of them): in a container, recreate it; "
        "outside, check the device cgroup of this service and the kernel log",
        code,
    )
