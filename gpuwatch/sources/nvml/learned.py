"""What one opening of a GPU has taught: which calls it answers, its static values, and how its PCIe bytes are known."""

from collections.abc import Mapping

from gpuwatch.catalogue import gpu as catalogue
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources.nvml import link
from gpuwatch.sources.nvml.answers import Given
from gpuwatch.sources.nvml.look import Give, Look, Plan
from gpuwatch.sources.nvml.readers import CHAINS, PCIE_COUNTERS, STATIC, Chain
from gpuwatch.sources.nvml.ways import Ways

RAW = (catalogue.PCIE_TRANSMIT_RAW, catalogue.PCIE_RECEIVE_RAW)
MEANS = {  # by GPM: with these no sample is needed
    catalogue.PCIE_TRANSMIT_MEAN: catalogue.PCIE_THROUGHPUT["transmit"],
    catalogue.PCIE_RECEIVE_MEAN: catalogue.PCIE_THROUGHPUT["receive"],
}
STATIC_CHAINS = frozenset(STATIC)


class Learned:
    """All of it; begun afresh when the GPU is opened again. `gap` is the longest time between two fast reads."""

    def __init__(self, gap: float) -> None:
        self.ways = Ways()
        self.gives: dict[Chain, Give] = {}
        self.plans: dict[Tier, Plan] = {}
        self.expected: dict[Tier, tuple[Metric, ...]] = {}  # what each tier gave last, or failed to
        self.barren = 0  # looks in a row without one value
        self.busy = False
        self._gap = gap
        self._statics: dict[Chain, Given] = {}
        self._wide = False  # the byte counters have shown more than 32 bits
        self._trusted = False
        self._averaged = False  # GPM tells the mean of the PCIe link
        self._sample: tuple[Mapping[Metric, float | Absence], float] | None = None

    @property
    def counters(self) -> bool:
        """Whether the PCIe byte counters are there and lose nothing; the fast tier reads them then."""
        return self._trusted and all(self.ways.present(chain) is not None for chain in PCIE_COUNTERS)

    @property
    def sampleable(self) -> bool:
        """Whether a 20 ms sample of the PCIe link would tell something new."""
        if self.counters or self._averaged or not self.busy:
            return False
        return self._sample is None or Absence.UNSUPPORTED not in self._sample[0].values()

    def chains(self, tier: Tier) -> tuple[Chain, ...]:
        """Return what is still to be read in this tier."""
        chains = tuple(chain for chain in CHAINS[tier] if chain not in self._statics)
        return chains + PCIE_COUNTERS if tier is (Tier.FAST if self.counters else Tier.NORMAL) else chains

    def sampled(self, found: Mapping[Metric, float | Absence], now: float) -> None:
        """Take a sample of the PCIe link; it goes out with the next normal Reading."""
        self._sample = (found, now)

    def complete(self, tier: Tier, look: Look, now: float, *, integrated: bool) -> None:
        """Add to a look what did not come from its own calls, and learn from it."""
        if tier is Tier.FAST:
            self.busy = look.values.get(catalogue.UTILIZATION, 0.0) > 0
        elif tier is Tier.NORMAL:
            self._add_throughput(look, now)
        else:
            self._add_statics(look)
            self._add_unified(look, integrated=integrated)
            self._judge_link(look)
        self.expected[tier] = (*look.values, *(m for m, why in look.absent.items() if why is not Absence.UNSUPPORTED))

    def _add_throughput(self, look: Look, now: float) -> None:
        """Add the mean or the last sample of the PCIe link where the counters cannot be trusted; do they wrap shows here."""
        means = {metric: look.take(mean) for mean, metric in MEANS.items()}
        self._averaged = Absence.UNSUPPORTED not in means.values()
        if self.counters:
            return
        raw = [look.values.pop(metric, 0.0) for metric in RAW]  # both leave the look, whatever the first one says
        if max(raw) >= link.WRAP:
            self._wide = self._trusted = True
            self.ways.version += 1
        found, at = self._sample or ({}, now)
        for metric in RAW:
            look.absent.pop(metric, None)
        if self._averaged:
            look.add(means)
            look.add({mean: means[metric] for mean, metric in MEANS.items()})
            return
        for metric in catalogue.PCIE_THROUGHPUT.values():
            value = found.get(metric, Absence.EMPTY)
            if isinstance(value, Absence):
                look.absent[metric] = value
            elif now - at > link.SAMPLE_AGE:
                look.absent[metric] = Absence.EMPTY  # not busy since
            else:
                look.values[metric] = value

    def _add_statics(self, look: Look) -> None:
        """Add the values that are read once, and keep those that this look has read."""
        for given in self._statics.values():
            for metric, value in given.items():
                if isinstance(value, Absence):
                    look.absent[metric] = value
                else:
                    look.values[metric] = value
        for chain, given in look.given.items():
            if chain in STATIC_CHAINS and Absence.FAILED not in given.values():
                self._statics[chain] = given
                self.ways.version += 1

    @staticmethod
    def _add_unified(look: Look, *, integrated: bool) -> None:
        """Say whether the GPU shares the host's memory: it has none of its own, and is a part known to be built so."""
        size = look.values.get(catalogue.MEMORY_SIZE)
        why = look.absent.get(catalogue.MEMORY_SIZE, Absence.UNSUPPORTED)
        if size is not None:
            look.values[catalogue.MEMORY_UNIFIED] = 0.0
        elif why is Absence.UNSUPPORTED and integrated:
            look.values[catalogue.MEMORY_UNIFIED] = 1.0
        else:
            look.absent[catalogue.MEMORY_UNIFIED] = why

    def _judge_link(self, look: Look) -> None:
        """Decide from the link's maximum whether the byte counters can be trusted at our pace."""
        fastest, widest = look.values.get(catalogue.PCIE_GENERATION_MAX), look.values.get(catalogue.PCIE_WIDTH_MAX)
        trusted = link.trusted(fastest, widest, self._gap, wide=self._wide)
        if trusted != self._trusted:
            self._trusted = trusted
            self.ways.version += 1
