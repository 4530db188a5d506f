"""A daemon that is stopped while a beat does not end."""

import json
import threading
from pathlib import Path

from gpuwatch.config import load
from gpuwatch.daemon import Daemon
from gpuwatch.export.webconfig import WebConfig
from gpuwatch.model.clock import SystemClock
from gpuwatch.places import Places
from tests.fakes.until import PATIENCE, until


def test_a_stop_in_the_middle_of_a_beat_that_does_not_end_is_remembered_as_one_in_order(tmp_path: Path) -> None:
    """Else the next boot would be taken for one that nobody asked for."""
    file = tmp_path / "gpuwatch.toml"
    file.write_text(f'[store]\nurl = "sqlite:///{tmp_path / "gpuwatch.db"}"\n')
    daemon = Daemon(load(file, Places(tmp_path, tmp_path, tmp_path)), [], WebConfig(), SystemClock())
    daemon.store.start()
    until(lambda: daemon.store.remembers)
    daemon.beat = daemon.judge()
    daemon.beat.once()
    daemon.remembering._runner.states["reboot"].boot_id = "boot-1"
    daemon.remembering.save(daemon.clock.mono(), daemon.clock.wall())
    daemon.beat.start()
    daemon.schedule.start()
    with daemon.silences._lock:  # a beat asks for them
        daemon.beat.tick()
        until(lambda: daemon.beat is not None and not daemon.beat._due.is_set())
        daemon.stop()
        assert "judge" in {thread.name for thread in threading.enumerate()}
        kept = daemon.store.load_state("run")
        assert kept is not None
        assert (json.loads(kept[1])["boot_id"], json.loads(kept[1])["clean"]) == ("boot-1", True)
    assert daemon.beat.stop(PATIENCE)
    assert json.loads((daemon.store.load_state("run") or (0, b"{}"))[1])["clean"] is True
