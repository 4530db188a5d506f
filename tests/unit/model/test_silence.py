"""For whom a silence is, and when it holds."""

from dataclasses import replace

import pytest

from gpuwatch.model.silence import Matcher, Silence

LABELS = {"rule": "gpu_overheating", "gpu": "3", "severity": "warning"}
GPU_3 = Matcher(name="gpu", value="3")
HOUR = Silence(id="1", matchers=(), starts_at=100.0, ends_at=3700.0, author="lena", comment="", created_at=100.0)


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
        ((Matcher(name="gpu", value=".*", is_regex=True),), False),  # not understood: too many messages beat too few
        ((Matcher(name="gpu", value="4", is_equal=False, is_regex=True),), False),
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
        (HOUR, 50.0, "active"),  # the clock was set back: what began when it was made has begun
        (replace(HOUR, starts_at=500.0), 100.0, "pending"),
        (replace(HOUR, starts_at=500.0), 500.0, "active"),
        (replace(HOUR, ends_at=200.0, ended_by="root"), 150.0, "expired"),  # ended by a person, then the clock was set back
        (replace(HOUR, starts_at=500.0, ends_at=200.0, ended_by="root"), 600.0, "expired"),  # ended before it began
    ],
)
def test_a_silence_holds_from_its_start_to_its_end(silence: Silence, wall: float, state: str) -> None:
    assert (silence.state(wall), silence.is_active(wall)) == (state, state == "active")


def test_it_says_when_it_next_begins_or_ends() -> None:
    later = replace(HOUR, starts_at=500.0)
    turns = [later.turns_at(100.0), later.turns_at(500.0), later.turns_at(3700.0)]
    assert turns == [500.0, 3700.0, None]


def test_it_says_for_whom_it_is() -> None:
    odd = (GPU_3, Matcher(name="a", value="b", is_equal=False), Matcher(name="c", value="d", is_equal=False, is_regex=True))
    assert (str(HOUR), str(replace(HOUR, matchers=odd))) == ("the whole host", "gpu=3, a!=b, c!~d")
