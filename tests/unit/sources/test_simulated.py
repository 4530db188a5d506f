"""The simulated host obeys physics and its scenario."""

import re
from pathlib import Path
from typing import Literal

import pytest

from gpuwatch.catalogue import disk, gpu, host
from gpuwatch.catalogue.process import GPU_PROCESSES, PROCESS_GPU, PROCESS_GPU_MEMORY, PROCESS_GPU_UTILIZATION
from gpuwatch.config import Config, ConfigError, Gpu, Privacy, Simulated, Sources
from gpuwatch.daemon.building import SIMULATED
from gpuwatch.model.event import Event as Occurrence
from gpuwatch.model.quantity import Duration
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.sources.kernel.replay import replay
from gpuwatch.sources.simulated import World, source
from gpuwatch.sources.simulated.scenario import DEMO, Event, Kind, Load, Scenario, check, read
from tests.fakes.clock import FakeClock

BUSY = Load(at=Duration(0), level=0.95)


def world(*events: Event, model: str = "A40") -> World:
    """A host of two busy cards with this fate."""
    return World(Scenario(model=model, gpus=2, disks=1, load=[BUSY], event=list(events)))


def event(kind: Kind, amount: float = 1.0, at: float = 100, lasts: float | None = None) -> Event:
    """Something that happens to card 1, or to disk 0."""
    on = {"disk": 0} if kind is Kind.WEAR else {"gpu": 1}
    return Event(kind=kind, at=Duration(at), lasts=None if lasts is None else Duration(lasts), amount=amount, **on)


class Answers:
    """An Answer that keeps what it is given."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.events: list[Occurrence] = []
        self.rounds = 0

    def reading(self, reading: Reading) -> None:
        """Keep it."""
        self.readings.append(reading)

    def event(self, event: Occurrence) -> None:
        """Keep it."""
        self.events.append(event)

    def working(self, item: str) -> None:
        """Nothing of a simulated host can hang."""

    def restart(self, reason: str) -> None:
        """A simulated host has no driver that changes."""

    def failed(self, words: str) -> None:
        """None of this has a bug to tell of."""
        raise AssertionError(words)

    def done(self, busy: object = ()) -> None:
        """Count the rounds."""
        self.rounds += 1


def test_bytes_are_whole_on_every_card_and_disk() -> None:
    clock, answers = FakeClock(), Answers()
    simulated = source(Config(sources=Sources(simulated=Simulated(enabled=True, scenario=str(DEMO)))), clock)
    for tier in (*Tier, *Tier):
        clock.forward(37.3)
        simulated.ask(tier, frozenset(), answers)
    amounts = [value for one in answers.readings for metric, value in one.values.items() if metric.unit == "bytes"]
    assert len(amounts) > 50
    assert [value for value in amounts if not value.is_integer()] == []


def test_temperature_follows_power_with_a_time_constant() -> None:
    simulated = world()
    card = simulated.cards[0]
    simulated.advance(card.model.time_constant)
    after_one = card.temperature
    simulated.advance(10 * card.model.time_constant)
    final = simulated.scenario.ambient + card.model.full_load_rise * card.power / card.model.power_limit
    assert card.temperature == pytest.approx(final, abs=1.5)
    assert after_one < final - 8


def test_a_hot_card_settles_near_its_limit_with_its_clock_down() -> None:
    simulated = world(event(Kind.OVERHEATING, 1.8))
    simulated.advance(600)
    well, hot = simulated.cards
    assert hot.temperature == pytest.approx(hot.model.slowdown - 1, abs=2)
    assert hot.clock < 0.97 * well.clock
    assert hot.hot_seconds > 100
    assert well.hot_seconds == 0


def test_a_card_cools_and_gets_its_clock_back_when_the_fault_ends() -> None:
    simulated = world(event(Kind.OVERHEATING, 1.8, lasts=200))
    simulated.advance(700)
    assert simulated.cards[1].temperature == pytest.approx(simulated.cards[0].temperature, abs=2)
    assert simulated.cards[1].clock == pytest.approx(simulated.cards[0].clock)


def test_a_power_cap_holds_power_and_lowers_the_clock() -> None:
    simulated = world(event(Kind.POWER_CAP, 180))
    simulated.advance(200)
    assert simulated.cards[1].power == 180
    assert simulated.cards[1].capped
    assert simulated.cards[1].clock < simulated.cards[0].clock


def test_a_leak_grows_at_its_rate_up_to_the_size_of_the_memory() -> None:
    simulated = world(event(Kind.LEAK, 1e7, at=0))
    simulated.advance(100)
    assert simulated.cards[1].memory_used - simulated.cards[0].memory_used == pytest.approx(1e9, rel=0.02)
    simulated.advance(3600)
    model = simulated.cards[1].model
    assert simulated.cards[1].memory_used == model.memory_size - model.memory_reserved


def test_a_starved_card_idles_while_its_loaders_are_busy() -> None:
    simulated = world(event(Kind.STARVATION, 0.5))
    simulated.advance(90)
    before = simulated.host.used
    simulated.advance(110)
    assert simulated.cards[1].utilization == pytest.approx(0.48, abs=0.05)
    assert simulated.host.used > before


def test_a_disk_wears_out_and_its_verdict_follows() -> None:
    simulated = world(event(Kind.WEAR, 24.0, at=0))
    verdicts = []
    for _ in range(30):
        simulated.advance(600)
        found = [r for r in simulated.readings(Tier.SLOW, Config(), 0.0, 0.0) if r.source == "smart"]
        verdicts += [state for state, metric in disk.VERDICT.items() if found[0].values[metric] == 1]
    assert list(dict.fromkeys(verdicts)) == ["ok", "warn", "fail"]


def test_energy_and_cpu_time_never_fall() -> None:
    simulated = world(event(Kind.OVERHEATING, 1.8), event(Kind.LOST, at=150, lasts=50))
    before = (0.0, 0.0)
    for _ in range(50):
        simulated.advance(5)
        now = (simulated.cards[1].energy, simulated.host.idle)
        assert now >= before
        before = now


@pytest.mark.parametrize(("kind", "why"), [(Kind.LOST, Absence.LOST), (Kind.HUNG, Absence.LATE)])
def test_a_card_that_is_gone_has_no_values_and_the_other_has_all(kind: Kind, why: Absence) -> None:
    simulated = world(event(kind))
    simulated.advance(101)
    for tier in Tier:
        well, gone = [r for r in simulated.readings(tier, Config(), 0.0, 0.0) if r.target.subject is gpu.GPU]
        assert well.fault is None
        assert well.values
        assert gone.fault is not None
        assert gone.fault.kind == kind.value
        assert gone.values == {}
        assert set(gone.absent) == set(well.values) or tier is Tier.NORMAL
        assert set(gone.absent.values()) == {why}


def test_the_source_answers_every_tier_and_moves_with_the_clock(clock: FakeClock) -> None:
    simulated = source(Config(sources=Sources(simulated=Simulated(enabled=True))), clock)
    answers = Answers()
    for tier in Tier:
        simulated.ask(tier, frozenset(), answers)
        clock.forward(1)
    assert answers.rounds == 3
    assert {reading.source for reading in answers.readings} == set(SIMULATED)
    temperatures = []
    for _ in range(2):
        answers.readings.clear()
        clock.forward(10)
        simulated.ask(Tier.FAST, frozenset(), answers)
        first = next(r for r in answers.readings if r.target.subject is gpu.GPU)
        temperatures.append(first.values[gpu.TEMPERATURE["core"]])
    assert temperatures[0] < temperatures[1]


def test_a_fall_from_the_bus_is_told_once_each_time_as_the_kernel_log_would(clock: FakeClock, tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text("gpus = 2\n" + "".join(f"[[event]]\nkind='lost'\nat='{at}s'\nlasts='50s'\ngpu=1\n" for at in (100, 300)))
    simulated = source(Config(sources=Sources(simulated=Simulated(enabled=True, scenario=str(path)))), clock)
    answers, found = Answers(), list[int]()
    for second in range(400):
        simulated.ask(Tier.NORMAL if second % 10 == 0 else Tier.FAST, frozenset(), answers)
        if len(answers.events) > len(found):
            assert answers.events[-1].at == clock.wall()
            found.append(second)
        clock.forward(1)
    assert (found, len(answers.events)) == ([100, 300], 2)
    told = answers.events[0]
    (line,) = replay([f"[ 100.000000] {told.words}\n"], told.at)
    for name in ("source", "kind", "severity", "words", "subject", "key", "code"):
        assert getattr(line, name) == getattr(told, name), name
    assert line.code == 79


def on_gpus(simulated: World, config: Config) -> dict[str, Reading]:
    """Return what is told of the process on each GPU, by index."""
    found = simulated.readings(Tier.NORMAL, config, 5.0, 3.0)
    return {one.target.labels["gpu"]: one for one in found if one.target.subject is PROCESS_GPU}


def test_a_card_in_use_has_the_process_of_somebody_until_it_falls_off_the_bus() -> None:
    simulated = world(event(Kind.LOST))
    assert [one.values for one in on_gpus(simulated, Config()).values()] == [{}, {}]  # nothing has begun
    simulated.advance(50)
    well, other = on_gpus(simulated, Config()).values()
    values = {PROCESS_GPU_MEMORY: round(simulated.cards[0].memory_used), PROCESS_GPU_UTILIZATION: pytest.approx(0.94, abs=0.1)}
    assert (well.source, well.values, other.values[PROCESS_GPU_MEMORY]) == ("jobs", values, values[PROCESS_GPU_MEMORY])
    assert {well.target.info["user"], well.target.info["key"]} == {"ann", "slurm/4101"}
    simulated.advance(51)
    lost = on_gpus(simulated, Config())["1"]
    assert (lost.values, lost.target, on_gpus(simulated, Config())["0"].values == {}) == ({}, other.target, False)
    cards = [one for one in simulated.readings(Tier.NORMAL, Config(), 0.0, 0.0) if one.target.subject is gpu.GPU]
    assert [one.values.get(GPU_PROCESSES["compute"]) for one in cards] == [1.0, None]


def test_of_a_card_that_hangs_nobody_can_say_who_is_on_it() -> None:
    simulated = world(event(Kind.HUNG))
    simulated.advance(101)
    assert set(on_gpus(simulated, Config())) == {"0"}


@pytest.mark.parametrize(("how", "user"), [("name", "ann"), ("uid", "2001"), ("off", None)])
def test_the_people_of_a_simulated_host_are_told_as_privacy_says(how: Literal["name", "uid", "off"], user: str | None) -> None:
    simulated = world()
    simulated.advance(10)
    target = on_gpus(simulated, Config(privacy=Privacy(users=how)))["0"].target
    assert (target.info.get("user"), target.info.get("users"), target.labels["job"]) == (user, user, "4101")
    assert user is not None or "ann" not in repr(target)


def test_every_model_can_be_simulated() -> None:
    for name in ("A40", "RTX 3090", "A100", "T4"):
        simulated = world(model=name)
        simulated.advance(300)
        card = simulated.cards[0]
        assert 50 < card.temperature < card.model.slowdown
        assert card.model.idle_power < card.power <= card.model.power_limit


def test_every_card_of_the_largest_host_has_a_pci_address_of_its_own() -> None:
    large = World(Scenario(gpus=72, disks=0))
    readings = [one for one in large.readings(Tier.SLOW, Config(), 0.0, 0.0) if one.target.subject is host.PCI]
    found = {one.target.key for one in readings if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:00\.0", one.target.key)}
    assert len(found) == 72


def test_the_demo_shows_each_kind_of_fault_within_two_minutes() -> None:
    demo = read(DEMO)
    assert {event.kind for event in demo.event} == set(Kind) - {Kind.HUNG}
    assert max(event.at for event in demo.event) <= 120


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = 'B9000'", 'model: expected one of A40, RTX 3090, A100, T4, found "B9000"'),
        ("gpus = -1", "gpus: expected a whole number of at least 0"),
        (
            "[[event]]\nkind = 'lots'\nat = '1s'",
            'event[0].kind: expected one of overheating, power_cap, leak, lost, hung, starvation, wear, found "lots"',
        ),
        ("[[event]]\nkind = 'lost'\nat = '1s'", "event[0].gpu: expected a gpu below 8, found none"),
        ("[[event]]\nkind = 'wear'\nat = '1s'\ndisk = 5", "event[0].disk: expected a disk below 2, found 5"),
        ("[[load]]\nat = '0s'\nlevel = 0.5\ngpus = [9]", "load[0].gpus: expected GPUs below 8, found 9"),
        ("[[load]]\nat = 0\nlevel = 0.5", "expected a duration as a string with a unit"),
        ("gpu = 8", "gpu: is not a known key; did you mean gpus?"),
        ("= 3", "is not valid TOML"),
    ],
)
def test_a_mistake_in_a_scenario_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read(path)
    assert str(raised.value).startswith(str(path))
    assert said in str(raised.value)


def test_a_scenario_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read(tmp_path / "none.toml")


def test_a_scenario_built_in_code_is_checked_alike() -> None:
    with pytest.raises(ConfigError, match="expected a gpu below 1, found 1"):
        check(Scenario(gpus=1, event=[event(Kind.LOST)]), "here")


def test_the_operators_label_is_shown() -> None:
    simulated = World(Scenario(gpus=1))
    config = Config(gpus={"0000:17:00.0": Gpu(label="slot 3")})
    targets = [r.target for r in simulated.readings(Tier.FAST, config, 0.0, 0.0) if r.target.subject is gpu.GPU]
    assert [target.info["label"] for target in targets] == ["slot 3"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\xff\xfe", "is not UTF-8 text (byte 0)"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, "is nested too deeply"),
        (b"seed = " + b"9" * 5000, "a number in it is too large"),
        (b"cores = 100000", "cores: expected a whole number of at most 1024, found 100000"),
    ],
)
def test_a_scenario_file_that_cannot_be_used_is_named_with_its_mistake(tmp_path: Path, raw: bytes, said: str) -> None:
    file = tmp_path / "scenario.toml"
    file.write_bytes(raw)
    with pytest.raises(ConfigError) as raised:
        read(file)
    assert said in str(raised.value)
    assert raised.value.place == str(file)
