"""When a failed message is tried again."""

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.notify.retry import CAP, pause, retry_after

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def test_back_off_is_full_jitter_that_doubles_to_ten_minutes() -> None:
    assert [pause(attempt, None, 1.0) for attempt in (1, 2, 3, 4, 9, 10, 11, 1000)] == [2, 4, 8, 16, 512, 600, 600, 600]


def test_back_off_may_be_nothing_at_all() -> None:
    assert pause(7, None, 0.0) == 0.0


@given(st.integers(1, 10_000), st.none() | st.floats(0, 1e9), st.floats(0, 1, exclude_max=True))
def test_no_pause_is_longer_than_an_hour_and_its_jitter(attempt: int, after: float | None, dice: float) -> None:
    assert 0.0 <= pause(attempt, after, dice) <= (CAP if after is None else 3960.001)


def test_the_receivers_wish_is_met_within_a_tenth_more() -> None:
    assert (pause(1, 90.0, 0.0), pause(1, 90.0, 0.999)) == (90.0, 90.0 * 1.0999)


def test_the_receivers_wish_is_capped_at_an_hour() -> None:
    assert pause(1, 86_400.0, 0.0) == 3600.0


def test_a_wish_for_no_wait_still_waits_a_second() -> None:
    assert pause(1, 0.0, 0.0) == 1.0


def test_retry_after_in_seconds_is_read() -> None:
    assert [retry_after({"retry-after": text}, NOW) for text in ("90", " 7 ", "1.5", "0")] == [90.0, 7.0, 1.5, 0.0]


def test_retry_after_as_a_date_is_read_against_our_clock() -> None:
    assert retry_after({"retry-after": "Tue, 14 Nov 2023 22:14:50 GMT"}, NOW) == 90.0


def test_retry_after_as_a_date_is_read_against_the_receivers_own_clock_where_it_shows_one() -> None:
    headers = {"retry-after": "Tue, 14 Nov 2023 20:14:50 GMT", "date": "Tue, 14 Nov 2023 20:13:20 GMT"}
    assert retry_after(headers, NOW) == 90.0


def test_a_date_that_has_passed_means_now() -> None:
    assert retry_after({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, NOW) == 0.0


def test_a_senseless_retry_after_is_no_wish() -> None:
    senseless = ("", "soon", "-5", "nan", "inf", "1e3", "9" * 400, "Tue, 99 Nov 2023 22:00:00 GMT", "1.2.3", "\x00")
    assert [retry_after({"retry-after": text}, NOW) for text in senseless] == [None] * len(senseless)


def test_no_retry_after_is_no_wish() -> None:
    assert retry_after({}, NOW) is None
