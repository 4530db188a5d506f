"""An idle alert costs nothing and changes nothing: the engine and the bare `step()` agree on every beat, however it comes."""

import random
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.alert import AlertState
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.rules.engine import Engine
from gpuwatch.rules.load import load
from gpuwatch.rules.step import State, step

CORE = gpu.TEMPERATURE["core"]
CARD = Target(subject=gpu.GPU, key="GPU-0", labels={"gpu": "0", "uuid": "GPU-0"})
HEAD = '[r]\nsubject = "gpu"\nsummary = "x"\n[[r.step]]\nseverity = "warning"\nwhen = "temperature_celsius_core > 85"\n'
TIMES = {
    "held": 'for = "5s"\nclear_for = "7s"\n',
    "share": 'share = 0.6\nwindow = "40s"\nclear_for = "10s"\n',
    "at_once": "",
}


def phases(dice: random.Random, folder: Path) -> tuple[list[AlertState], list[AlertState], bool]:
    """Return what the engine and what the bare step came to over one random story, and whether the engine ever dozed."""
    (rule,) = load(folder, {}, "test")
    engine, state, now, mood, dozed = Engine([rule]), State(), 0.0, 0, False
    from_engine: list[AlertState] = []
    from_step: list[AlertState] = []
    for _ in range(400):
        now += dice.choice((1.0, 1.0, 1.0, 1.0, 2.5, 30.0))
        mood = mood if dice.random() < 0.8 else dice.randrange(4)  # calm, calm, hot, silent
        temperature = (60.0, 61.0, 90.0, None)[mood]
        values: dict[Metric, float] = {} if temperature is None else {CORE: temperature}
        reading = Reading(source="nvml", tier=Tier.FAST, target=CARD, at=now, took=0, values=values)
        engine.beat(View(now, {CARD: Entry(CARD, values, {}, (reading,))}), now, {})
        alert = engine.alerts["r"][CARD.key]
        dozed = dozed or alert.idle is not None
        state, _ = step(rule.steps[0].timing, state, None if temperature is None else temperature > 85, now)
        from_engine.append(alert.phase)
        from_step.append(state.phase)
        if alert.idle is None:
            assert alert.states == [state]
    return from_engine, from_step, dozed


@pytest.mark.parametrize("name", TIMES)
def test_engine_and_step_agree_on_random_stories(tmp_path: Path, name: str) -> None:
    (tmp_path / "rules.toml").write_text(HEAD + TIMES[name])
    dice, fired = random.Random(7), 0
    for _ in range(25):
        from_engine, from_step, dozed = phases(dice, tmp_path)
        assert (from_engine, dozed) == (from_step, True)
        fired += AlertState.FIRING in from_step
    assert fired > 5
