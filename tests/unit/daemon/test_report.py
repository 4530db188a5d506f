"""What the daemon says of itself."""

import threading
from pathlib import Path

from gpuwatch.catalogue import own
from gpuwatch.config import load
from gpuwatch.daemon import BEAT, Daemon
from gpuwatch.daemon.beat import REPORT_EVERY
from gpuwatch.export.webconfig import WebConfig
from gpuwatch.model.reading import Absence
from gpuwatch.model.silence import Silence
from gpuwatch.places import Places
from tests.fakes.clock import FakeClock
from tests.fakes.until import PATIENCE, until

RECEIVER = '[[receivers]]\nname = "oncall"\nkind = "webhook"\nurl = "http://127.0.0.1/"\n'


def test_our_own_numbers_count_from_one_report_to_the_next(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "gpuwatch.toml"
    file.write_text(RECEIVER)
    daemon = Daemon(load(file, Places(tmp_path, tmp_path, tmp_path)), [], WebConfig(), clock)
    reported = daemon.report(clock.wall())
    for reading in reported:
        daemon.post(reading)
    said = {entry.target: len(entry.values) for entry in daemon.view().entries.values()}
    assert {target.subject.name for target in said} == {"build", "channel", "collector", "own", "queue"}
    clock.forward(REPORT_EVERY + 2 * BEAT)
    view = daemon.view()
    assert said == {entry.target: len(entry.values) for entry in view.entries.values()}
    assert not [entry.target for entry in view.entries.values() if Absence.LATE in entry.absent.values()]


def test_a_silence_of_the_whole_host_shows_as_maintenance_with_the_next_beat(tmp_path: Path, clock: FakeClock) -> None:
    daemon = Daemon(load(None, Places(tmp_path, tmp_path, tmp_path)), [], WebConfig(), clock)
    beat = daemon.judge()

    def shown() -> list[float]:
        beat.once()
        return [entry.values[own.MAINTENANCE_MODE] for entry in daemon.view().of(own.OWN)]

    assert shown() == [0.0]
    clock.forward(BEAT)
    wall = clock.wall()
    quiet = Silence(id="01", matchers=(), starts_at=wall, ends_at=wall + 1.5 * BEAT, author="lena", comment="")
    daemon.silences.restore([quiet])
    assert shown() == [1.0]
    clock.forward(2 * BEAT)
    assert shown() == [0.0]


def test_alerts_that_no_route_leads_to_anybody_are_in_the_status(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "gpuwatch.toml"
    file.write_text(RECEIVER + '[[routes]]\nmatch = { severity = "critical" }\nreceivers = ["oncall"]\n')
    daemon = Daemon(load(file, Places(tmp_path, tmp_path, tmp_path)), [], WebConfig(), clock)
    assert daemon.status()["telling"]["unheard"] == [
        "warnings are sent to nobody: no route with a receiver that wants them matches"
    ]


def test_whether_it_is_ready_is_said_without_a_look_at_alerts_and_silences(tmp_path: Path, clock: FakeClock) -> None:
    daemon = Daemon(load(None, Places(tmp_path, tmp_path, tmp_path)), [], WebConfig(), clock)
    said: list[list[str]] = []
    asking = threading.Thread(target=lambda: said.extend([daemon.ready(), daemon.troubles()]), daemon=True)
    with daemon.silences._lock:  # somebody makes a silence, or hundreds are compared
        asking.start()
        until(lambda: len(said) == 2)
    asking.join(PATIENCE)
    assert said[0] == ["no sample has been taken yet"]
