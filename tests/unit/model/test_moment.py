"""How a moment is written."""

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.moment import EVER, moment

NOW = 1_714_572_000.0  # 2024-05-01T14:00:00Z


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("6h", NOW - 21_600),
        ("0s", NOW),
        ("1714572000", NOW),
        ("1714572000.25", NOW + 0.25),
        ("-5", -5.0),
        ("1e9", 1e9),
        ("2024-05-01T14:00:00Z", NOW),
        ("2024-05-01t14:00:00z", NOW),
        ("2024-05-01 14:00Z", NOW),
        ("2024-05-01T14:00:00.5Z", NOW + 0.5),
        ("2024-05-01T14:00:00.1234567Z", NOW + 0.1234567),
        ("2024-05-01T16:00:00+02:00", NOW),
        ("2024-05-01T16:00:00 02:00", NOW),  # a plus in a query that nobody has quoted
        ("2024-05-01T08:30:00-05:30", NOW),
        ("1969-12-31T23:59:59Z", -1.0),
    ],
)
def test_a_moment_is_a_time_ago_seconds_or_a_date_with_its_zone(text: str, at: float) -> None:
    assert moment(text, NOW) == pytest.approx(at, abs=1e-6)


def test_a_date_without_its_zone_is_of_this_host_where_that_is_meant() -> None:
    local = datetime.fromtimestamp(NOW).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006 - that is the point
    assert moment(local, NOW, is_local=True) == NOW
    with pytest.raises(ValueError, match=f"expected a time with its zone, such as {local}Z, got '{local}'"):
        moment(local, NOW)


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "nan", "inf", "1e30", "6 h", "٦h", "²", "9" * 400, "1_0"),
        *("2024-13-01T00:00:00Z", "2024-02-30T00:00Z", "2024-05-01T25:00:00Z", "2024-05-01T14:00:00+24:00", "2024-05-01"),
    ],
)
def test_what_is_no_moment_is_refused_in_words(text: str) -> None:
    for is_local in (False, True):
        with pytest.raises(ValueError, match="expected a time ago such as 6h or 7d, seconds since 1970, or a time such as 2024-"):
            moment(text, NOW, is_local=is_local)


@given(
    st.text(max_size=40)
    | st.from_regex(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,12})?)?([Z ]|[+-]\d\d:\d\d)?", fullmatch=True)
)
def test_whatever_is_written_is_a_number_or_refused(text: str) -> None:
    for is_local in (False, True):
        try:
            found = moment(text, NOW, is_local=is_local)
        except ValueError:
            continue
        assert -EVER <= found <= EVER


@given(st.integers(0, 4_000_000_000), st.sampled_from(["Z", "+00:00"]))
def test_a_date_that_is_written_by_a_machine_comes_back(at: int, zone: str) -> None:
    assert moment(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + zone, NOW) == at
