"""What NVML's worker puts on the board of the processes on GPUs, made for tests of who reads it there."""

from types import MappingProxyType

from gpuwatch.catalogue.process import HOLDER, HOLDER_MEMORY, HOLDER_UTILIZATION
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

GIB = 1 << 30


def uuid(gpu: int) -> str:
    """Return the UUID of a GPU."""
    return f"GPU-{gpu:08d}-aaaa-bbbb-cccc-000000000000"


def holder(
    pid: int,
    gpu: int = 0,
    *,
    ticks: int | None = 1000,
    memory: float | None = GIB,
    share: float | None = 0.5,
    at: float = 0.0,
    kinds: str = "compute",
    instance: str = "",
    unseen: str = "namespace",
) -> Reading:
    """Return the reading of one process on one GPU."""
    labels = {
        "pid": str(pid),
        "ticks": "" if ticks is None else str(ticks),
        "gpu": str(gpu),
        "uuid": uuid(gpu),
        "gi": instance,
        "ci": instance and "0",
    }
    values: dict[Metric, float] = {}
    absent: dict[Metric, Absence] = {}
    for metric, value in ((HOLDER_MEMORY, memory), (HOLDER_UTILIZATION, share)):
        if value is None:
            absent[metric] = Absence.UNSUPPORTED
        else:
            values[metric] = float(value)
    info = {"kinds": kinds} | ({"unseen": unseen} if ticks is None else {})
    target = Target(
        subject=HOLDER, key=f"{uuid(gpu)}/{labels['gi']}/{labels['ci']}/{pid}/{labels['ticks']}", labels=labels, info=info
    )
    return Reading(source="nvml", tier=Tier.NORMAL, target=target, at=at, took=0.0, values=values, absent=absent)


def seen(*readings: Reading, now: float = 0.0) -> View:
    """Return the board with these on it."""
    entries = {one.target: Entry(one.target, one.values, one.absent, (one,)) for one in readings}
    return View(now, MappingProxyType(entries))
