"""What DCGM gave, as Readings: of the GPUs, and of DCGM itself with what is wrong with it."""

from collections.abc import Iterable, Mapping

from gpuwatch.catalogue.gpu import DCGM, DCGM_GPUS, DCGM_UP, GPU, PIPE_ACTIVE, SM_ACTIVE, SM_OCCUPANCY
from gpuwatch.catalogue.mig import MIG, MIG_SM_ACTIVE, MIG_SM_OCCUPANCY, MIG_TENSOR_ACTIVE
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources.dcgm.page import Instance

SOURCE = "dcgm"
TIER = Tier.NORMAL
IN_PART: Mapping[Metric, Metric] = {
    SM_ACTIVE: MIG_SM_ACTIVE,
    SM_OCCUPANCY: MIG_SM_OCCUPANCY,
    PIPE_ACTIVE["tensor"]: MIG_TENSOR_ACTIVE,
}


def card(key: str, index: str, info: Mapping[str, str]) -> Target:
    """Return a GPU as a target; NVML's own index and facts win where NVML knows it too."""
    return Target(subject=GPU, key=key, labels={"gpu": index, "uuid": key}, info=dict(info))


def numbers(target: Target, at: float, took: float, values: Mapping[Metric, float], absent: Mapping[Metric, Absence]) -> Reading:
    """Return what DCGM said of one GPU."""
    return Reading(source=SOURCE, tier=TIER, target=target, at=at, took=took, values=values, absent=absent)


def part(instance: Instance, at: float, took: float, values: Mapping[Metric, float], absent: Mapping[Metric, Absence]) -> Reading:
    """Return what DCGM said of one GPU instance: what is measured in it. Power, clocks and the like are the card's."""
    labels = {"gpu": instance.index, "uuid": instance.key, "gpu_instance": instance.number}
    info = {"profile": instance.profile} if instance.profile else {}
    target = Target(subject=MIG, key=f"{instance.key}/{instance.number}", labels=labels, info=info)
    return numbers(
        target,
        at,
        took,
        {IN_PART[metric]: value for metric, value in values.items() if metric in IN_PART},
        {IN_PART[metric]: why for metric, why in absent.items() if metric in IN_PART},
    )


def state(at: float, took: float, *, seen: int = 0, missing: Iterable[str] = (), fault: Fault | None = None) -> Reading:
    """Return how DCGM itself is. GPUs that it has lost are a fault too, but one with which it is up."""
    lost = sorted(missing)
    values = {DCGM_UP: float(fault is None)}
    absent: dict[Metric, Absence] = {}
    if fault is None:
        values |= {DCGM_GPUS["seen"]: float(seen), DCGM_GPUS["missing"]: float(len(lost))}
    else:
        absent = dict.fromkeys(DCGM_GPUS.values(), Absence.FAILED)
    if fault is None and lost:
        fault = Fault("missing", f"DCGM gives nothing of GPU {', '.join(lost)}: it did before, or leaves a gap in its numbering")
    target = Target(subject=DCGM, key="")
    return Reading(source=SOURCE, tier=TIER, target=target, at=at, took=took, values=values, absent=absent, fault=fault)
