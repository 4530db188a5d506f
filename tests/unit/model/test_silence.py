"""For whom a silence is, and when it holds."""

import pytest
from msgspec.structs import replace

from gpuwatch.model.silence import Matcher, Silence

LABELS = {"rule": "gpu_overheating", "gpu": "3", "severity": "warning"}
GPU_3 = Matcher(name="gpu", value="3")
HOUR = Silence(id="1", matchers=(), starts_at=100.0, ends_at=3700.0, author="lena", comment="")


@pytest.mark.parametrize(
    ("matchers", "expected"),
    [
        ((), True),  # the whole host
        ((GPU_3,), True),
        ((GPU_3, Matcher(name="rule", value="gpu_overheating")), True),
        ((GPU_3, Matcher(name="rule", value="gpu_dropped")), False),
        ((Matcher(name="gpu", value="03"),), False),
        ((Matcher(name="gpu", value="30"),), False),
        ((Matcher(name="device", value="sda"),), False),
        ((Matcher(name="device", value=""),), True),  # a label that is not there is empty
        ((Matcher(name="gpu", value="3", is_equal=False),), False),
        ((Matcher(name="gpu", value="4", is_equal=False),), True),
        ((Matcher(name="device", value="sda", is_equal=False),), True),
    ],
)
def test_a_silence_is_for_what_all_its_matchers_match(matchers: tuple[Matcher, ...], expected: bool) -> None:
    assert replace(HOUR, matchers=matchers).matches(LABELS) == expected


@pytest.mark.parametrize(
    ("silence", "wall", "state"),
    [
        (HOUR, 100.0, "active"),
        (HOUR, 3699.9, "active"),
        (HOUR, 3700.0, "expired"),
        (HOUR, 1e12, "expired"),
        (HOUR, 50.0, "active"),  # the clock was set back: what has begun has begun
        (replace(HOUR, ends_at=200.0, ended_by="root"), 150.0, "expired"),  # ended by a person, then the clock was set back
    ],
)
def test_a_silence_holds_until_its_end(silence: Silence, wall: float, state: str) -> None:
    assert (silence.state(wall), silence.is_over(wall)) == (state, state == "expired")


def test_it_says_for_whom_it_is() -> None:
    odd = (GPU_3, Matcher(name="a", value="b", is_equal=False))
    assert (str(HOUR), str(replace(HOUR, matchers=odd))) == ("the whole host", "gpu=3, a!=b")


def test_a_condition_on_nothing_is_said_in_words() -> None:
    said = [str(Matcher(name="gpu", value=value, is_equal=equal)) for value in ("3", "") for equal in (True, False)]
    assert said == ["gpu=3", "gpu!=3", "whatever has no gpu", "whatever has a gpu"]
