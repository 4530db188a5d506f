"""Numbers that are on Prometheus' page only where `[http] details` says so: hardly anybody looks at them while all is well.

A server of 8 GPUs with NVLink and 40 processes has 2,400 series with them, and under 1,600 without. All of them are always on the
board, in the history, in the JSON and for rules. A metric is a detail where one of these is true, and only then:

- something else on the page says it (a part of a sum, the same from another place, what follows from two others);
- it is a fact of the model that does not change, and what is made of it is on the page;
- nobody acts on it by itself.

A family stays one: what is left out are members whose absence takes nothing from the others. A state set is left out as a whole.
"""

from collections.abc import Mapping

from gpuwatch.catalogue import gpu, host, memory, mig, process
from gpuwatch.model.metric import Metric


def of(members: Mapping[str, Metric], *names: str) -> tuple[Metric, ...]:
    """Return these members of an enumeration."""
    return tuple(members[name] for name in names)


def is_detail(labels: Mapping[str, str]) -> bool:
    """Say whether ECC errors by place are one: corrected ones are counted together, and `aggregate` grows with `volatile`."""
    return labels["type"] == "corrected" or labels["lifetime"] == "volatile"


DETAILS: frozenset[Metric] = frozenset(
    (
        # Said by something else. AER of the kernel, and `correctable`, stand for the single kinds of PCIe errors.
        *of(gpu.PCIE_ERRORS, "nak_received", "receiver", "bad_tlp", "nak_sent", "bad_dllp", "unsupported_request", "lcrc"),
        gpu.PCIE_REPLAY_ROLLOVERS,
        host.PCI_GENERATION,
        host.PCI_GENERATION_MAX,
        host.PCI_WIDTH,
        host.PCI_WIDTH_MAX,
        host.PCI_RESPONDING,  # gpu_state
        *of(gpu.CLOCK, "graphics", "video"),  # they follow that of the SMs
        *of(gpu.CLOCK_MAX, "graphics", "video"),
        gpu.MEMORY_FREE,
        gpu.MEMORY_RESERVED,
        gpu.POWER_AVERAGE,  # the rate of the energy is exact over any time
        *gpu.NVLINK_THROUGHPUT.values(),  # the rate of the bytes
        *(metric for metric in memory.ECC_LOCATION_ERRORS.values() if is_detail(dict(metric.labels))),
        *memory.ECC_SRAM_SOURCES.values(),  # of errors that are counted as those of `sram`
        gpu.GRAPHICS_ACTIVE,  # utilization; how much of it is used is sm_active
        gpu.ECC_MODE["pending"],  # it differs from `current` between an order and the next reset only
        mig.MIG_MODE["pending"],
        # Facts of the model.
        *gpu.TEMPERATURE_TLIMIT_OFFSET.values(),  # temperature_headroom
        *of(gpu.TEMPERATURE_LIMIT, "gpu_max", "acoustic"),
        *of(gpu.POWER_LIMIT, "requested", "min"),  # how far a card is held below what it may have is `enforced` and `max`
        gpu.BAR1_SIZE,
        gpu.BAR1_USED,
        # Nobody acts on them by themselves.
        *of(gpu.CLOCK_EVENT, "gpu_idle", "applications_clocks", "sync_boost", "display"),  # these are no throttling
        *of(gpu.CLOCK_EVENT_SECONDS, "sync_boost", "low_utilization"),
        *gpu.COMPUTE_MODE.values(),
        *of(gpu.ENGINE_UTILIZATION, "jpeg", "ofa"),
        gpu.PIPE_ACTIVE["int"],
        *of(memory.ROW_REMAP_BANKS, "max", "high", "partial"),  # `low` and `none` are those that run out of spare rows
        *of(process.GPU_PROCESSES, "graphics", "mps"),
        process.GPU_PROCESSES_HIDDEN,
    )
)
