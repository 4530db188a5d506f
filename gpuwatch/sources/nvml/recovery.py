"""What the driver wants done to a GPU (field 230, R560 and later): its number, its name, and the event of a change. Pure."""

from collections.abc import Mapping

from gpuwatch.catalogue.gpu import RECOVERY_ACTION
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric

ACTIONS = tuple(action for action in RECOVERY_ACTION if action != "unknown")  # by number, as nvml.h lists them
WORDS = {
    "none": "nothing has to be done",
    "gpu_reset": "the GPU has to be reset",
    "node_reboot": "the host has to be rebooted",
    "drain_p2p": "its peer-to-peer work has to be drained",
    "drain_and_reset": "it has to be drained, then reset",
    "recover_imex": "the IMEX domain has to be recovered",
    "bus_reset": "its bus has to be reset",
    "system_reboot": "the system has to be rebooted",
    "unknown": "an action that is newer than gpuwatch",
}
SEVERITY = {"none": Severity.INFO, "drain_p2p": Severity.WARNING, "unknown": Severity.WARNING}  # all others: critical


def states(number: float) -> Mapping[Metric, float]:
    """Return the state set for a number of field 230."""
    position = int(number)
    return RECOVERY_ACTION.at(ACTIONS[position] if 0 <= position < len(ACTIONS) else "unknown")


def present(values: Mapping[Metric, float]) -> str | None:
    """Return the action that holds, None where it is not known."""
    return next((action for action, metric in RECOVERY_ACTION.items() if values.get(metric)), None)


def changed(key: str, before: str, action: str, at: float) -> Event:
    """Return the event of an action that is another than before."""
    return Event(
        source="nvml",
        kind="recovery_action",
        severity=SEVERITY.get(action, Severity.CRITICAL),
        at=at,
        words=f"the driver's recovery action went from {before} to {action}: {WORDS[action]}",
        subject="gpu",
        key=key,
        facts={"recovery": str(ACTIONS.index(action))} if action in ACTIONS else {},  # as a line of Xid 154 has it
    )
