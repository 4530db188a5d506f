"""How a time is written and read where the clocks are set forward and back."""

import time
from collections.abc import Iterator

import pytest

from gpuwatch.cli.happened import instant
from gpuwatch.cli.history import page
from gpuwatch.config import ConfigError
from gpuwatch.export.history import HistoryDocument, Line
from gpuwatch.model.moment import stamp

AUTUMN = 1_729_989_000.0  # 2024-10-27 02:30 in Berlin, the first; an hour later it is 02:30 again


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the host's time zone be that of Berlin."""
    with monkeypatch.context() as inside:
        inside.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def test_a_time_has_its_offset_only_where_the_same_comes_twice() -> None:
    assert [stamp(AUTUMN + hours * 3600) for hours in (-1, 0, 1, 2)] == [
        "2024-10-27 01:30:00",
        "2024-10-27 02:30:00+02:00",
        "2024-10-27 02:30:00+01:00",
        "2024-10-27 03:30:00",
    ]
    assert stamp(AUTUMN + 0.75) == "2024-10-27 02:30:00+02:00"
    assert stamp(1e17) == "100000000000000000"


@pytest.mark.parametrize("at", [AUTUMN + hours * 3600 for hours in range(-2, 4)])
def test_a_time_that_was_written_can_be_asked_for(at: float) -> None:
    assert float(instant("--since", stamp(at))) == at


def test_of_an_hour_that_comes_twice_the_first_is_meant() -> None:
    assert float(instant("--since", "2024-10-27 02:30")) == AUTUMN


def test_a_time_over_which_the_clocks_were_set_forward_is_refused_in_words() -> None:
    with pytest.raises(ConfigError) as raised:
        instant("--until", "2024-03-31 02:30")
    said = "--until: there was no 2024-03-31 02:30 here: the clocks were set forward over it; "
    assert str(raised.value).startswith(said)
    assert [float(instant("--until", f"2024-03-31 {clock}")) for clock in ("01:59:59", "03:00:00", "02:30Z")] == [
        1_711_846_799.0,
        1_711_846_800.0,
        1_711_852_200.0,
    ]


def test_how_long_ago_is_counted_by_the_daemon() -> None:
    assert instant("--since", "6h") == "6h"


def rows(*times: float) -> list[str]:
    """Return the table of one series that has these points."""
    line = Line(
        subject="gpu",
        key="u",
        labels={"gpu": "0"},
        metric="power_watts",
        family="gpuwatch_gpu_power_watts",
        members={},
        unit="watts",
        kind="gauge",
        keep="mean",
        points=[(at, 7.0) for at in times],
    )
    found = HistoryDocument("1", times[0], times[-1], 10, times[0], [line], [], ())
    return list(page("power_watts", found))[1:]


def test_in_a_table_the_offset_takes_its_room_only_where_it_stands() -> None:
    assert rows(AUTUMN - 7200, AUTUMN - 3600) == [
        "time                 GPU 0",
        "2024-10-27 00:30:00      7",
        "2024-10-27 01:30:00      7",
    ]
    assert rows(AUTUMN - 3600, AUTUMN, AUTUMN + 3600) == [
        "time                       GPU 0",
        "2024-10-27 01:30:00            7",
        "2024-10-27 02:30:00+02:00      7",
        "2024-10-27 02:30:00+01:00      7",
    ]
