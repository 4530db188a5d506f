"""`gpuwatch read` prints things as people count them, and lengths of time as people say them."""

import pytest

from gpuwatch.catalogue.gpu import FAN, GPU
from gpuwatch.cli.read import order
from gpuwatch.cli.status import span
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target


def test_readings_are_printed_by_gpu_whichever_answered_first() -> None:
    gpus = [Target(subject=GPU, key=f"GPU-{9 - number}", labels={"gpu": str(number)}) for number in (10, 2, 0)]
    fan = Target(subject=FAN, key="GPU-7/1", labels={"gpu": "2", "uuid": "GPU-7", "fan": "1"})
    found = [
        Reading(source="nvml", tier=tier, target=target, at=0.0, took=0.0, values={})
        for tier in reversed(Tier)
        for target in (*gpus, fan)
    ]
    first = [(one.target.subject.name, one.target.labels["gpu"]) for one in sorted(found, key=order)]
    assert list(dict.fromkeys(first)) == [("gpu", "0"), ("gpu", "2"), ("gpu", "10"), ("gpu_fan", "2")]
    assert [one.tier for one in sorted(found, key=order)] == list(Tier) * 4


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0 s"),
        (59.6, "60 s"),
        (89, "89 s"),
        (3599.9, "60 min"),
        (7199.9, "2 h 0 min"),
        (172_800, "2 d 0 h"),
    ],
)
def test_what_has_just_begun_lasts_as_long_as_it_was_made_for(seconds: float, said: str) -> None:
    assert span(seconds) == said
