"""The NVLinks, memory errors by place and the real load (GPM) of the fake NVML's cards (nvml_load.h): a part of FakeNvml."""

from collections.abc import Mapping

from tests.fakes.nvml_layout import NOT_THERE, PLACES, Link, State

STATES = {"active": 0, "inactive": 1, "asleep": 2}
TYPES = {"corrected": 0, "uncorrected": 1}
LIFETIMES = {"volatile": 0, "aggregate": 1}
LOCATIONS = ("l1", "l2", "dram", "register", "texture", "shared", "cbu", "sram")
SINCE_AMPERE = ("dram", "sram")


class FakeLoad:
    """Links, memory errors and GPM of a fake."""

    state: State

    def link(self, gpu: int, link: int) -> Link:
        """Return a link of a card, to change what it counted."""
        found: Link = self.state.cards[gpu].links[link]
        return found

    def turn(self, gpu: int, link: int, state: str) -> None:
        """Have a link active, inactive or asleep."""
        self.link(gpu, link).state = STATES[state]

    def memory_errors(self, gpu: int, **errors: int | None) -> None:
        """Set memory errors by `type_lifetime_location`; None is NOT_SUPPORTED."""
        for name, count in errors.items():
            kind, lifetime, location = name.split("_")
            place = (TYPES[kind] * 2 + LIFETIMES[lifetime]) * PLACES + LOCATIONS.index(location)
            self.state.cards[gpu].memory_errors[place] = NOT_THERE if count is None else count

    def no_memory_errors(self, gpu: int, there: tuple[str, ...] = SINCE_AMPERE) -> None:
        """Have no errors in these places, and no other places."""
        for kind in TYPES:
            for lifetime in LIFETIMES:
                for location in LOCATIONS:
                    self.memory_errors(gpu, **{f"{kind}_{lifetime}_{location}": 0 if location in there else None})

    def work(self, gpu: int, amounts: Mapping[int, float], instance: int | None = None) -> None:
        """Have GPM count these more, in the unit of each metric: what two samples around it will give."""
        card = self.state.cards[gpu]
        counted = card.gpm
        if instance is not None:
            (counted,) = (device.gpm for device in card.mig if device.present and device.gpu_instance == instance)
        for metric, amount in amounts.items():
            counted[metric] += round(100 * amount)

    @property
    def gpm_samples(self) -> int:
        """GPM samples that were allocated and not freed, of all processes there have been."""
        return int(self.state.gpm_samples)
