"""How a time is written for people."""

import time

import pytest

from gpuwatch.daemon.kept import clock_time


@pytest.mark.parametrize(
    ("ahead", "form"), [(3600.0, "%H:%M"), (-3600.0, "%H:%M"), (86_400.0, "%Y-%m-%d %H:%M"), (-86_400.0, "%Y-%m-%d %H:%M")]
)
def test_the_date_is_written_where_the_time_of_day_does_not_say_it(ahead: float, form: str) -> None:
    at = 1_000_000_000.0
    assert clock_time(at, at - ahead) == time.strftime(form, time.localtime(at))
