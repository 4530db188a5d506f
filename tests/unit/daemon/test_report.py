"""What the daemon says of itself."""

from pathlib import Path

from gpuwatch.config import load
from gpuwatch.daemon import BEAT, Daemon
from gpuwatch.daemon.beat import REPORT_EVERY
from gpuwatch.export.webconfig import WebConfig
from gpuwatch.model.reading import Absence
from gpuwatch.places import Places
from tests.fakes.clock import FakeClock

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
