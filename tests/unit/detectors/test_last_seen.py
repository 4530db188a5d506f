"""When a GPU was last seen, as people read it."""

import time

import pytest

from gpuwatch.detectors.inventory import when


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("UTC", "2023-11-14 22:13:20 UTC"),
        ("CET-1", "2023-11-14 23:13:20 CET"),
        ("<+0530>-5:30", "2023-11-15 03:43:20 +0530"),
        (":/nonexistent", "2023-11-14 22:13:20 +0000"),  # the C library gives it no name
    ],
)
def test_a_zone_that_the_host_does_not_know_is_written_as_its_offset(
    monkeypatch: pytest.MonkeyPatch, zone: str, said: str
) -> None:
    with monkeypatch.context() as environment:
        environment.setenv("TZ", zone)
        time.tzset()
        try:
            assert when(1_700_000_000.0) == said
        finally:
            environment.undo()
            time.tzset()
