"""Refusals in the log: somebody who tries again and again fills no journal, and is not forgotten."""

import pytest

from gpuwatch.export.refusals import EVERY, MOST, Refusals


def test_the_same_refusal_is_said_once_a_minute_with_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for at in range(200):
        refusals.note("lena may not", float(at))
        if at == 30:
            refusals.note("carl may not", float(at))
    assert caplog.messages == [
        "lena may not",
        "carl may not",
        *["lena may not (59 more times since the last line about it)"] * 3,
    ]


def test_however_many_are_refused_it_stays_small(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for number in range(2 * MOST):
        refusals.note(f"uid {number} may not", 0.0)
    assert (len(caplog.messages), len(refusals._said)) == (MOST, MOST)
    refusals.note("uid 5000 may not", EVERY)
    assert (caplog.messages[-1], len(refusals._said)) == ("uid 5000 may not", 1)
