"""dcgmi as a real child: what it gives, what its errors mean, and that none of it outlives its deadline."""

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from gpuwatch.catalogue import gpu, own
from gpuwatch.config import Config, Dcgm, Sources
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sampling.events import Patience
from gpuwatch.sampling.once import once
from gpuwatch.sampling.probe import Probe
from gpuwatch.sources.dcgm.dmon import ALL, COMMON, Dmon
from gpuwatch.sources.program import Runner
from tests.fakes.clock import FakeClock
from tests.fakes.dcgm_page import UUIDS
from tests.fakes.dcgmi import NO_ENGINE, Answer, FakeDcgmi, listing, rows
from tests.fakes.host import Answers
from tests.fakes.until import SLOWER, until

LISTED = listing({"0": UUIDS[0], "1": UUIDS[1]})
BUSY = {1001: "0.993", 1002: "0.987", 1004: "0.940", 1005: "N/A", 1012: "1234567.000"}
NEEDS_ROOT = (
    "Unable to watch one or more of the requested fields because doing so requires the host engine to be running as root."
)


@pytest.fixture
def fake(tmp_path: Path) -> FakeDcgmi:
    """A dcgmi that knows two GPUs."""
    fake = FakeDcgmi(tmp_path / "dcgmi")
    fake.answers("discovery", LISTED)
    fake.answers("dmon", rows({"GPU 0": BUSY, "GPU-I 3": {1002: "0.5"}, "GPU 1": {1002: "0.000"}}))
    return fake


def config(program: str | Path, deadline: float = 20.0) -> Config:
    """Return the configuration for this dcgmi."""
    table = {"enabled": True, "mode": "dmon", "dcgmi": str(program), "deadline": deadline}
    return Config(sources=Sources(dcgm=msgspec.convert(table, Dcgm, dec_hook=lambda kind, value: kind(value))))


def ask(source: Dmon, tier: Tier = Tier.NORMAL, skip: frozenset[str] = frozenset()) -> Answers:
    """Ask once."""
    answers = Answers()
    source.ask(tier, skip, answers)
    assert answers.ends == 1
    return answers


def state(answers: Answers) -> tuple[float, str]:
    """Return whether DCGM is up, and the kind of its fault."""
    reading = answers.of(gpu.DCGM)
    return reading.values[gpu.DCGM_UP], reading.fault.kind if reading.fault else ""


def values(answers: Answers) -> dict[str, dict[Metric, float]]:
    """Return the values of every GPU."""
    return {one.target.key: dict(one.values) for one in answers.readings if one.target.subject is gpu.GPU}


def gone(pid: int) -> bool:
    """Say whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_rows_become_readings_of_the_gpus_that_discovery_names(fake: FakeDcgmi, clock: FakeClock) -> None:
    answers = ask(Dmon(config(fake.program), clock))
    assert state(answers) == (1.0, "")
    assert values(answers) == {
        UUIDS[0]: {
            gpu.GRAPHICS_ACTIVE: 0.993,
            gpu.SM_ACTIVE: 0.987,
            gpu.PIPE_ACTIVE["tensor"]: 0.94,
            gpu.NVLINK_THROUGHPUT["receive"]: 1234567.0,
        },
        UUIDS[1]: {gpu.SM_ACTIVE: 0.0},
    }
    assert answers.of(gpu.GPU, UUIDS[0]).absent[gpu.DRAM_ACTIVE] is Absence.EMPTY
    assert answers.of(gpu.GPU, UUIDS[1]).target.labels == {"gpu": "1", "uuid": UUIDS[1]}


def test_only_discovery_and_dmon_are_called_so_no_host_engine_is_started(fake: FakeDcgmi, clock: FakeClock) -> None:
    ask(Dmon(config(fake.program), clock))
    fields = ",".join(map(str, ALL))
    assert fake.calls() == [["discovery", "-l"], ["dmon", "-e", fields, "-d", "1000", "-c", "2"]]


def test_only_the_normal_tier_calls_it(fake: FakeDcgmi, clock: FakeClock) -> None:
    source = Dmon(config(fake.program), clock)
    assert [ask(source, tier).readings for tier in (Tier.FAST, Tier.SLOW)] == [[], []]
    assert fake.calls() == []


def test_a_field_that_the_gpus_lack_costs_only_the_rare_ones(fake: FakeDcgmi, clock: FakeClock) -> None:
    fake.answers("dmon", rows({"GPU 0": BUSY, "GPU 1": BUSY}, unsupported=[1011, 1012]))
    answers = ask(Dmon(config(fake.program), clock))
    assert (state(answers), len(values(answers)[UUIDS[0]])) == ((1.0, ""), 3)
    assert [call[2] for call in fake.calls()[1:]] == [",".join(map(str, fields)) for fields in (ALL, COMMON)]


def test_gpus_without_profiling_are_said_to_have_none(fake: FakeDcgmi, clock: FakeClock) -> None:
    fake.answers("dmon", rows({"GPU 0": BUSY}, unsupported=[1002]))
    assert state(ask(Dmon(config(fake.program), clock))) == (0.0, "unsupported")


def test_a_gpu_without_a_row_is_missing(fake: FakeDcgmi, clock: FakeClock) -> None:
    fake.answers("dmon", rows({"GPU 1": BUSY}))
    answers = ask(Dmon(config(fake.program), clock))
    assert (state(answers), answers.of(gpu.DCGM).values[gpu.DCGM_GPUS["missing"]]) == ((1.0, "missing"), 1.0)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"error": NO_ENGINE, "status": 255}, "no_host_engine"),
        ({"text": NO_ENGINE, "status": 0}, "no_host_engine"),
        ({"text": f"Error setting watches. Result: {NEEDS_ROOT}"}, "denied"),
        ({"text": "Error: Something new.", "status": 0}, "failed"),
        ({"status": 3}, "failed"),
        ({"text": "x" * 1024, "times": 4096}, "garbage"),
    ],
)
def test_what_dcgmi_complains_of_is_said_and_the_next_call_is_whole(
    fake: FakeDcgmi, clock: FakeClock, answer: Answer, kind: str
) -> None:
    fake.answers("discovery", answer, LISTED)
    fake.answers("dmon", answer, rows({"GPU 0": BUSY, "GPU 1": BUSY}))
    source = Dmon(config(fake.program), clock)
    states = [state(ask(source)), state(ask(source)), state(after := ask(source))]
    assert (states, len(values(after))) == ([(0.0, kind), (0.0, kind), (1.0, "")], 2)


@pytest.mark.parametrize(("command", "kind"), [("discovery", "empty"), ("dmon", "garbage")])
@pytest.mark.parametrize("text", ["", "\x00\xff{]GPU 0 1 2 3\n" * 100])
def test_junk_is_no_answer(fake: FakeDcgmi, clock: FakeClock, command: str, kind: str, text: str) -> None:
    fake.answers(command, {"text": text})
    assert state(ask(Dmon(config(fake.program), clock))) == (0.0, kind)


@pytest.mark.parametrize("command", ["discovery", "dmon"])
def test_a_call_that_hangs_is_killed_at_its_deadline(fake: FakeDcgmi, clock: FakeClock, command: str) -> None:
    fake.answers(command, {"hang": True})
    started = time.monotonic()
    answers = ask(Dmon(config(fake.program, 1.0), clock))
    assert state(answers) == (0.0, "timeout")
    assert 1.0 <= time.monotonic() - started < 2.0 + SLOWER
    until(lambda: all(gone(pid) for pid in fake.pids()))


def test_a_call_that_cannot_be_killed_is_said_and_not_made_again(fake: FakeDcgmi, clock: FakeClock) -> None:
    source = Dmon(config(fake.program), clock)
    answers = ask(source, skip=frozenset({"dcgmi discovery"}))
    assert (state(answers), fake.calls()) == ((0.0, "stuck"), [])


def test_a_process_that_survives_sigkill_is_told_of(fake: FakeDcgmi, clock: FakeClock) -> None:
    fake.answers("dmon", {"hang": True})
    runner = Runner(kill=lambda _pid, _signal: None)
    try:
        assert state(ask(Dmon(config(fake.program, 1.0), clock, runner))) == (0.0, "stuck")
    finally:
        stuck = fake.pids()[-1]
        os.kill(stuck, signal.SIGKILL)
        until(lambda: gone(stuck))
        runner.run(["true"], 10)  # reaps it


@pytest.mark.parametrize("what", ["missing", "a folder", "not to be run", "no program"])
def test_a_dcgmi_that_cannot_be_started_is_said(tmp_path: Path, clock: FakeClock, what: str) -> None:
    path = tmp_path / "dcgmi"
    if what == "a folder":
        path.mkdir()
    elif what != "missing":
        path.write_bytes(b"\x7fELF nothing")
        path.chmod(0o755 if what == "no program" else 0o644)
    assert state(ask(Dmon(config(path), clock))) == (0.0, "no_dcgmi")


def test_one_reading_of_the_source_goes_through_a_worker(fake: FakeDcgmi) -> None:
    found = once(["dcgm"], config(fake.program), 30.0)
    assert (found.problem, [one.target.key for one in found.readings]) == ("", ["", UUIDS[0], UUIDS[1]])


def test_dcgmi_that_is_missing_is_the_trouble_of_its_collector_and_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patience, quiet = Patience(deadline=30.0), (lambda _: None)
    crew = Probe(
        "gpuwatch-dcgm",
        ["dcgm"],
        config=config(tmp_path / "missing"),
        post=quiet,
        happened=quiet,
        clock=SystemClock(),
        patience=patience,
    )
    crew.start()
    try:
        for _ in range(2):
            crew.ask(Tier.NORMAL)
            until(lambda: crew.problem().startswith("no_dcgmi: "))
        until(lambda: crew.readings(0.0)[0].values.get(own.COLLECTOR_SUCCESS) == 0.0)
        assert own.COLLECTOR_LAST_SUCCESS not in crew.readings(0.0)[0].values
    finally:
        crew.stop(5)
    assert ["no_dcgmi" in line for line in caplog.messages] == [True]
