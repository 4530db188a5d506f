"""The engine: inhibition, excuses, its own readings, latches and growth, over Views made by hand."""

import dataclasses
import logging
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.catalogue import derived, gpu, host, own
from gpuwatch.model.alert import Transition
from gpuwatch.model.finding import Evidence
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.rules.engine import Engine
from gpuwatch.rules.load import load
from gpuwatch.rules.rule import Rule

CORE = gpu.TEMPERATURE["core"]
CARDS = [Target(subject=gpu.GPU, key=f"GPU-{n}", labels={"gpu": str(n), "uuid": f"GPU-{n}"}) for n in range(8)]
HERE = Target(subject=host.HOST, key="", info={"name": "vision-07"})


def view(now: float, known: dict[Target, dict[Metric, float]], fault: Fault | None = None) -> View:
    """Return a view of these values."""
    entries = {}
    for target, values in known.items():
        reading = Reading(source="nvml", tier=Tier.FAST, target=target, at=now, took=0, values=values, fault=fault)
        entries[target] = Entry(target, values, {}, (reading,))
    return View(now, entries)


def rules(folder: Path, text: str) -> tuple[Rule, ...]:
    """Return rules written in a test."""
    (folder / "rules.toml").write_text(text)
    return load(folder, {}, "test")


def hot(name: str, *lines: str, when: str = "temperature_celsius_core > 85", severity: str = "warning") -> str:
    """Return a rule about heat with more lines."""
    head = f'[{name}]\nsubject = "gpu"\nsummary = "{{where}}: {{value}}"\n' + "\n".join(lines)
    return f'{head}\n[[{name}.step]]\nseverity = "{severity}"\nwhen = "{when}"\n'


def told(transitions: list[Transition]) -> list[tuple[str, str, str]]:
    """Return rule, target and new state of each."""
    return [(one.rule, one.target.key, one.after.value) for one in transitions]


def test_a_rule_mutes_others_on_the_same_target_only(tmp_path: Path) -> None:
    engine = Engine(
        rules(tmp_path, hot("a", 'inhibits = ["b", "a"]', when="temperature_celsius_core > 95") + hot("b") + hot("c"))
    )
    engine.beat(view(0, {CARDS[0]: {CORE: 90.0}, CARDS[1]: {CORE: 99.0}}), 0, {})
    assert engine.muted() == {("b", CARDS[1])}


def test_a_rule_of_another_subject_mutes_everywhere(tmp_path: Path) -> None:
    down = '[down]\nsubject = "driver"\nsummary = "x"\ninhibits = ["gpu.*"]\n[[down.step]]\nseverity = "critical"\n'
    engine = Engine(rules(tmp_path, down + 'when = "state_not_loaded == 1"\n' + hot("b")))
    driver = Target(subject=gpu.DRIVER, key="")
    known = {driver: gpu.DRIVER_STATE.at("not_loaded"), CARDS[0]: {CORE: 90.0}, CARDS[1]: {CORE: 50.0}}
    engine.beat(view(0, known), 0, {})
    assert engine.muted() == {("b", CARDS[0]), ("b", CARDS[1])}


def test_nothing_begins_while_a_condition_excuses_it_and_nothing_ends_by_it(tmp_path: Path) -> None:
    engine = Engine(rules(tmp_path, hot("a", 'unless = ["driver.version_mismatch", "persistence_mode"]')))
    driver = Target(subject=gpu.DRIVER, key="")

    def beat(now: float, temperature: float, mismatch: float, persistence: float) -> list[Transition]:
        known = {driver: {gpu.DRIVER_MISMATCH: mismatch}, CARDS[0]: {CORE: temperature, gpu.PERSISTENCE_MODE: persistence}}
        return engine.beat(view(now, known), now, {})

    assert told(beat(0, 90, 1, 0)) == []
    assert told(beat(1, 90, 0, 1)) == []
    assert told(beat(2, 90, 0, 0)) == [("a", "GPU-0", "firing")]
    assert told(beat(3, 90, 1, 1)) == []
    assert told(beat(4, 80, 1, 1)) == [("a", "GPU-0", "inactive")]


def test_a_latched_alert_ends_by_its_evidence_alone(tmp_path: Path) -> None:
    engine = Engine(rules(tmp_path, hot("a", 'latch = "until state_ok"')))

    def beat(now: float, values: dict[Metric, float]) -> list[tuple[str, str, str]]:
        return told(engine.beat(view(now, {CARDS[0]: values}), now, {}))

    assert beat(0, {CORE: 90.0, **derived.STATE.at("lost")}) == [("a", "GPU-0", "firing")]
    assert beat(1, {CORE: 50.0, **derived.STATE.at("lost")}) == []
    assert [beat(2 + n, {}) for n in range(10)] == [[]] * 10
    assert beat(20, {CORE: 90.0, **derived.STATE.at("ok")}) == []  # the condition still holds
    assert beat(21, {CORE: 80.0, **derived.STATE.at("ok")}) == [("a", "GPU-0", "inactive")]


def test_growth_of_a_counter_is_judged_over_its_window(tmp_path: Path) -> None:
    engine = Engine(rules(tmp_path, hot("a", when="increase(pcie_replays_total, 10s) > 0")))
    heard = [told(engine.beat(view(now, {CARDS[0]: {gpu.PCIE_REPLAYS: 7.0 if now < 5 else 8.0}}), now, {})) for now in range(30)]
    assert [(now, one[0][2]) for now, one in enumerate(heard) if one] == [(5, "firing"), (15, "inactive")]


def test_growth_goes_on_over_a_restart(tmp_path: Path) -> None:
    both = rules(tmp_path, hot("a", when="increase(pcie_replays_total, 60s) > 1"))
    engine = Engine(both)
    for now, count in ((0, 7.0), (1, 8.0)):
        engine.beat(view(now, {CARDS[0]: {gpu.PCIE_REPLAYS: count}}), now, {})
    again = Engine(both)
    again.restore(engine.dump(1, 1), 500, 11)
    assert told(again.beat(view(12, {CARDS[0]: {gpu.PCIE_REPLAYS: 9.0}}), 501, {})) == [("a", "GPU-0", "firing")]


def test_a_vanished_target_keeps_its_alert_which_turns_stale(tmp_path: Path) -> None:
    engine = Engine(rules(tmp_path, hot("a")))
    engine.beat(view(0, {CARDS[0]: {CORE: 90.0}}), 0, {})
    heard = [told(engine.beat(view(now, {}), now, {})) for now in range(1, 10)]
    assert [(now, one[0][2]) for now, one in enumerate(heard, 1) if one] == [(3, "stale")]
    assert told(engine.beat(view(10, {CARDS[0]: {CORE: 90.0}}), 10, {})) == [("a", "GPU-0", "firing")]


def test_a_retired_target_has_no_alerts(tmp_path: Path) -> None:
    engine = Engine(rules(tmp_path, hot("a")))
    engine.beat(view(0, {CARDS[0]: {CORE: 90.0}}), 0, {})
    (end,) = engine.beat(view(1, {CARDS[0]: {}}, Fault("retired", "replaced at 0000:40:00.0")), 1, {})
    assert (told([end]), end.summary) == ([("a", "GPU-0", "inactive")], "GPU 0: over after 1 s (replaced at 0000:40:00.0)")


def test_evidence_goes_into_the_text_and_never_into_the_identity(tmp_path: Path) -> None:
    text = hot("a", when="state_lost == 1").replace("{where}: {value}", "{where}: {cause}; {last_seen}; {power_watts:.0f}")
    engine = Engine(rules(tmp_path, text))
    evidence = {(CARDS[0], derived.STATE["lost"]): Evidence({"power_watts": 312.7}, {"cause": "evil\x1b[2J\u202ename"})}
    (fired,) = engine.beat(view(0, {CARDS[0]: derived.STATE.at("lost")}), 0, evidence)
    assert fired.summary == "GPU 0: evil\\x1b[2J\\u202ename; unknown; 313"
    assert fired.target == CARDS[0]


def test_its_own_readings_tell_states_and_counts(tmp_path: Path) -> None:
    text = (
        hot("a", 'inhibits = ["b"]')
        + hot("b")
        + '[[b.step]]\nseverity = "critical"\nwhen = "temperature_celsius_core > 95"\nfor = "10s"\n'
    )
    engine = Engine(rules(tmp_path, text))
    counts = {one.target.key: one.values[own.ALERTS_FIRED] for one in engine.readings(0)}
    assert counts == {"a|warning|": 0, "b|warning|": 0, "b|critical|": 0}
    engine.beat(view(0, {CARDS[3]: {CORE: 99.0}}), 0, {})
    found = {one.target.key: one for one in engine.readings(0)}
    states = {
        key: sorted(state for state, metric in own.ALERT_STATE.items() if one.values[metric])
        for key, one in found.items()
        if one.target.subject is own.ALERT
    }
    assert states == {
        "a|warning|GPU-3": ["firing"],
        "b|warning|GPU-3": ["firing", "muted"],
        "b|critical|GPU-3": ["muted", "pending"],
    }
    assert found["b|critical|GPU-3"].target.labels == {"rule": "b", "severity": "critical", "gpu": "3", "uuid": "GPU-3"}
    assert found["a|warning|"].values == {own.ALERTS_FIRED: 1.0}


def test_the_milder_step_is_muted_by_the_graver(tmp_path: Path) -> None:
    text = hot("b") + '[[b.step]]\nseverity = "critical"\nwhen = "temperature_celsius_core > 95"\n'
    engine = Engine(rules(tmp_path, text))
    (only,) = engine.beat(view(0, {CARDS[3]: {CORE: 99.0}}), 0, {})
    assert only.severity.value == "critical"
    muted = {one.target.labels["severity"]: one.values.get(own.ALERT_STATE["muted"]) for one in engine.readings(0)[2:]}
    assert muted == {"warning": 1.0, "critical": 0.0}


def test_a_first_start_alert_of_a_host_names_the_host(tmp_path: Path) -> None:
    text = '[a]\nsubject = "host"\nsummary = "{where} is at {value:.1f}"\n[[a.step]]\nseverity = "info"\nwhen = "load1 > 5"\n'
    (fired,) = Engine(rules(tmp_path, text)).beat(view(0, {HERE: {host.LOAD1: 7.25}}), 0, {})
    assert fired.summary == "vision-07 is at 7.2"


@pytest.mark.parametrize(("count", "limit"), [(3, 2e-3), (40, 20e-3)])
def test_a_beat_of_eight_gpus_is_cheap(tmp_path: Path, count: int, limit: float) -> None:
    """The limits are far above what is measured (see the report of tests/bench), so that a busy machine does not fail them."""
    share = 'share = 0.8\nwindow = "2m"\nclear_for = "3m"\n'
    engine = Engine(rules(tmp_path, "".join(hot(f"r{n}") + (share if n % 2 else "") for n in range(count))))
    seen = view(0, {card: {CORE: 60.0} for card in CARDS})
    for now in range(20):
        engine.beat(seen, now, {})
    started = time.process_time()
    for now in range(20, 120):
        engine.beat(seen, now, {})
    assert (time.process_time() - started) / 100 < limit


def test_a_rule_that_fails_costs_only_itself_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours in one rule must not silence the others."""
    bad, good = rules(tmp_path, hot("bad") + hot("good"))
    broken = [True]

    def fires(look: object) -> bool:
        if broken:
            raise ZeroDivisionError("a bug")
        return False

    engine = Engine((replace(bad, steps=tuple(dataclasses.replace(one, fires=fires) for one in bad.steps)), good))
    caplog.set_level(logging.INFO)
    heard = [one for n in range(3) for one in engine.beat(view(n, {CARDS[0]: {CORE: 90.0}}), n, {})]
    assert [one.rule for one in heard] == ["good"]
    assert engine.problem() == "rules that fail: bad"
    broken.clear()
    engine.beat(view(3, {CARDS[0]: {CORE: 90.0}}), 3, {})
    assert engine.problem() == ""
    assert [record.getMessage() for record in caplog.records] == [
        "rule bad failed: it judges nothing until it works again",
        "rule bad works again",
    ]


def test_a_subject_that_rests_begins_and_ends_nothing_and_the_time_counts_for_nothing(tmp_path: Path) -> None:
    lines = hot("a") + hot("b") + 'for = "30s"\n' + hot("c", when="temperature_celsius_core > 40")
    engine = Engine(rules(tmp_path, lines))
    known = {CARDS[0]: {CORE: 90.0}, CARDS[1]: {CORE: 50.0}}
    before = told(engine.beat(view(0, known), 0, {}))
    assert before == [("a", "GPU-0", "firing"), ("c", "GPU-0", "firing"), ("c", "GPU-1", "firing")]
    engine.resting = frozenset({gpu.GPU})
    for at in range(1, 600):
        assert engine.beat(view(at, {card: {} for card in CARDS[:2]}), at, {}) == []
    engine.resting = frozenset()
    nothing: dict[Target, dict[Metric, float]] = {CARDS[0]: {}, CARDS[1]: {}}
    for at in range(600, 610):  # it takes a while until there is something to judge
        assert engine.beat(view(at, nothing), at, {}) == []
    assert told(engine.beat(view(611, {CARDS[0]: {CORE: 90.0}, CARDS[1]: {CORE: 30.0}}), 611, {})) == [("c", "GPU-1", "inactive")]
    assert told(engine.beat(view(641, {CARDS[0]: {CORE: 90.0}, CARDS[1]: {CORE: 30.0}}), 641, {})) == [("b", "GPU-0", "firing")]
