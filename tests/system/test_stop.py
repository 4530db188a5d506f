"""What is under way when the daemon is stopped."""

import sqlite3
from pathlib import Path

from tests.fakes.daemon import running
from tests.fakes.receiver import Answer, Receiver
from tests.fakes.until import SLOWER


def test_a_message_that_is_under_way_has_three_seconds_to_arrive(tmp_path: Path) -> None:
    scenario = tmp_path / "lost.toml"
    scenario.write_text('[[event]]\nkind = "lost"\nat = "0s"\ngpu = 2')
    with Receiver() as receiver:
        receiver.script(Answer(delay=2.5))
        simulated = f'[sources.simulated]\nenabled = true\nscenario = "{scenario}"\n'
        config = f'{simulated}[[receivers]]\nname = "oncall"\nkind = "webhook"\nurl = "{receiver.url}"\n'
        with running(tmp_path, config=config) as daemon:
            receiver.wait(1)
            assert daemon.stop(5.0 + SLOWER) == 0
    with sqlite3.connect(daemon.database.with_name("state.db")) as connection:
        found = connection.execute("SELECT state, attempt, words FROM delivery").fetchall()
    connection.close()
    assert found == [("sent", 1, "status 200")]
