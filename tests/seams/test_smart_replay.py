"""All recorded captures as the disks of one host, replayed by a real process: one round judges every one of them."""

import csv
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.catalogue import disk
from gpuwatch.config import Config, Paths, Smart, Sources
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sources.smart import source
from tests.fakes.clock import FakeClock
from tests.fakes.smartctl import FakeSmartctl, fake_disk, replay


class Answers:
    """The readings of one round."""

    def __init__(self) -> None:
        self.readings: dict[str, Reading] = {}

    def reading(self, reading: Reading) -> None:
        """Take a reading."""
        self.readings[reading.target.labels["device"]] = reading

    def event(self, event: Event) -> None:
        """SMART tells of no events."""
        raise AssertionError(event)

    def working(self, item: str) -> None:
        """Nothing hangs here."""

    def restart(self, reason: str) -> None:
        """SMART never asks for it."""
        raise AssertionError(reason)

    def failed(self, words: str) -> None:
        """None of this has a bug to tell of."""
        raise AssertionError(words)

    def done(self, busy: Sequence[str] = ()) -> None:
        """Nothing hangs here."""
        assert not busy


def test_every_capture_comes_through_a_real_process_as_its_index_allows(recorded: Path, tmp_path: Path, clock: FakeClock) -> None:
    folder = recorded / "smart"
    with (folder / "index.csv").open(newline="", encoding="utf-8") as index:
        rows = [row for row in csv.DictReader(index) if row["kind"] != "scan"]
    fake = FakeSmartctl(tmp_path / "smartctl")
    accepted: dict[str, str] = {}
    with_text = []
    for number, row in enumerate(rows):
        name = f"nvme{number}n1" if row["kind"] == "nvme" else f"sd{number}"
        fake_disk(tmp_path / "sys", name)
        text = folder / row["text_v73"] if row["text_v73"] and row["file"].endswith(".json") else None
        fake.answers(name, replay(folder / row["file"], text, status=int(row["exit_status"] or 0)))
        accepted[name] = row["accept"]
        with_text += [name] * (text is not None)
    smart = Smart(smartctl=str(fake.program))
    answers = Answers()
    paths = Paths(sys=str(tmp_path / "sys"), dev=str(tmp_path), proc=str(tmp_path))
    source(Config(sources=Sources(smart=smart), paths=paths), clock).ask(Tier.SLOW, frozenset(), answers)
    found = {
        name: next(state for state, metric in disk.VERDICT.items() if reading.values[metric])
        for name, reading in answers.readings.items()
    }
    assert set(accepted) == set(found)
    assert {name: state for name, state in found.items() if state not in accepted[name].split("|")} == {}
    assert {answers.readings[name].target.info["parser"] for name in with_text} == {"json and pySMART"}
    assert len(fake.calls()) == len(rows) + sum(row["file"].endswith(".txt") for row in rows)  # text is asked for after JSON
