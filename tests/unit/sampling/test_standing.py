"""What a worker has said of its GPUs, for the one that takes its place."""

import pytest

from gpuwatch.catalogue.gpu import DRIVER, GPU, TEMPERATURE
from gpuwatch.model.metric import Subject
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sampling.faults import Standing

PLACE = "0000:41:00.0"


class Gpus:
    """Readings of one GPU and its driver, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.standing = Standing(lambda: self.now)

    def give(
        self, kind: str = "", tier: Tier = Tier.FAST, *, subject: Subject = GPU, key: str = "GPU-1", values: bool = False
    ) -> "Gpus":
        """Take one reading in, a second after the last."""
        fault = Fault(kind, "words", None) if kind else None
        numbers = {TEMPERATURE["core"]: 40.0} if values else {}
        target = Target(subject=subject, key=key, info={"pci_bus_id": PLACE})
        self.now += 1.0
        self.standing.take(
            Reading(source="nvml", tier=tier, target=target, at=0.0, took=0.0, values=numbers, absent={}, fault=fault)
        )
        return self

    @property
    def handed(self) -> dict[str, dict[str, tuple[str, float]]]:
        """What the next worker gets."""
        return self.standing.handed()


def test_a_fault_is_handed_on_with_its_age_until_the_gpu_gives_values() -> None:
    gpus = Gpus().give("lost").give("lost", Tier.NORMAL).give("driver")
    assert gpus.handed == {"nvml": {"GPU-1": ("lost", 2.0)}}
    assert gpus.give(values=True).handed == {}


def test_a_gpu_that_still_gives_values_has_no_fault_that_was_logged() -> None:
    assert Gpus().give("unknown_error", values=True).give("unknown_error", Tier.NORMAL, values=True).handed == {}


@pytest.mark.parametrize("kind", ["unknown_error", "no_permission"])
def test_what_may_be_the_driver_is_handed_on_once_it_was_logged(kind: str) -> None:
    gpus = Gpus().give(kind)
    assert gpus.handed == {}
    assert gpus.give(kind, Tier.NORMAL).handed == {"nvml": {"GPU-1": (kind, 1.0)}}


def test_what_stood_for_a_gpu_before_it_could_be_opened_is_over_with_it() -> None:
    gpus = Gpus().give("hung", key=PLACE)
    assert gpus.handed == {"nvml": {PLACE: ("hung", 0.0)}}
    assert gpus.give(values=True).handed == {}


def test_what_the_driver_is_blamed_for_is_not_handed_on() -> None:
    gpus = Gpus().give("access_lost", Tier.NORMAL, subject=DRIVER, key="")
    assert gpus.give("unknown_error").give("unknown_error", Tier.NORMAL).handed == {}
