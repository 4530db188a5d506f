"""What an alert has told stays told: later words only add to it, until it is over."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpuwatch.catalogue import derived, gpu
from gpuwatch.detectors.events import Events
from gpuwatch.model.alert import AlertState, Transition
from gpuwatch.model.finding import Evidence
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.rules.engine import Engine
from gpuwatch.rules.incidents import Incidents
from gpuwatch.rules.load import load
from tests.fakes.happenings import xid
from tests.fakes.story import LOST, START, Story, Work

CARD = Target(subject=gpu.GPU, key="GPU-1", labels={"gpu": "1", "uuid": "GPU-1"})
LOST_STATE = derived.STATE["lost"]
GONE, BACK = derived.STATE.at("lost"), derived.STATE.at("ok")
TEXT = """
[a]
subject = "gpu"
summary = "{cause}; {reported}; {held_by}; {power_watts:.0f} W, {temperature_celsius_core:.0f} C, {value:g} of {threshold:g}"
resolved = "{cause}; {reported}; {power_watts:.0f} W, {temperature_celsius_core:.0f} C"
latch = "until state_ok"
[[a.step]]
severity = "critical"
when = "state_lost == 1"
"""
CORE = {gpu.TEMPERATURE["core"]: 61.0}
ALL = Evidence({"power_watts": 312.0}, {"cause": "code 15", "reported": "Xid 79"}, {"held_by": "nobody", "reported": "no Xid"})
Tell = Callable[..., Story]


def heard(
    folder: Path, beats: Mapping[int, tuple[dict[Metric, float], Evidence | None]], until: int, text: str = TEXT
) -> list[Transition]:
    """Return what is told: from each of these seconds on the values and the evidence are so."""
    (folder / "rules.toml").write_text(text)
    engine = Engine(load(folder, {}, "test"))
    found: list[Transition] = []
    for now in range(until):
        values, evidence = beats[max(begun for begun in beats if begun <= now)]
        reading = Reading(source="nvml", tier=Tier.FAST, target=CARD, at=now, took=0, values=values)
        view = View(now, {CARD: Entry(CARD, values, {}, (reading,))})
        found += engine.beat(view, now, {(CARD, LOST_STATE): evidence} if evidence else {})
    return found


def test_what_is_known_no_more_stays_in_the_text_and_what_comes_is_added(tmp_path: Path) -> None:
    first = Evidence({"power_watts": 312.0}, {"cause": "code 15"}, {"held_by": "nobody", "reported": "no Xid"})
    later = Evidence({}, {"reported": "Xid 79"})
    found = heard(tmp_path, {0: (GONE | CORE, first), 2: (GONE, later), 5: (GONE, None), 7: (GONE, first), 20: (GONE, None)}, 60)
    assert [one.summary for one in found] == [
        "code 15; no Xid; nobody; 312 W, 61 C, 1 of 1",
        "code 15; Xid 79; nobody; 312 W, 61 C, 1 of 1",
    ]
    assert (found[-1].words["cause"], found[-1].words["held_by"]) == ("code 15", "nobody")
    assert (found[-1].numbers["power_watts"], found[-1].value) == (312.0, 1.0)


def test_a_word_that_a_detector_leaves_empty_takes_that_of_an_earlier_story_away(tmp_path: Path) -> None:
    first = Evidence({}, {"cause": "Xid 63", "reported": " (also Xid 92)", "held_by": "x"})
    later = Evidence({}, {"cause": "Xid 119", "reported": ""})
    found = heard(tmp_path, {0: (GONE, first), 2: (GONE, later)}, 30)
    assert [one.summary.partition("; unknown")[0] for one in found] == ["Xid 63;  (also Xid 92); x", "Xid 119; ; x"]


def test_words_that_are_gone_at_the_time_of_their_completion_are_no_news(tmp_path: Path) -> None:
    assert len(heard(tmp_path, {0: (GONE | CORE, ALL), 1: (GONE, None)}, 100)) == 1


def test_no_data_takes_nothing_from_an_alert_nor_does_its_return(tmp_path: Path) -> None:
    text = TEXT.replace('latch = "until state_ok"\n', "")
    found = heard(tmp_path, {0: (GONE | CORE, ALL), 3: ({}, None), 10: (GONE, None), 30: ({}, None), 40: (GONE, None)}, 60, text)
    assert [one.after.value for one in found] == ["firing", "stale", "firing", "stale", "firing"]
    assert {one.summary for one in found} == {"code 15; Xid 79; nobody; 312 W, 61 C, 1 of 1"}
    assert {(one.words["reported"], one.numbers["power_watts"], one.value) for one in found} == {("Xid 79", 312.0, 1.0)}


def test_the_end_keeps_what_was_found_but_no_measurement_of_that_time(tmp_path: Path) -> None:
    *_, end = heard(tmp_path, {0: (GONE | CORE, ALL), 10: (BACK, None)}, 20)
    assert (end.after, end.summary) == (AlertState.INACTIVE, "code 15; Xid 79; 312 W, unknown C")
    assert gpu.TEMPERATURE["core"].id not in end.numbers


def test_the_next_alert_begins_with_nothing_of_the_last(tmp_path: Path) -> None:
    *_, again = heard(tmp_path, {0: (GONE | CORE, ALL), 10: (BACK, None), 20: (GONE, None)}, 30)
    assert (again.after, again.summary) == (AlertState.FIRING, "unknown; unknown; unknown; unknown W, unknown C, 1 of 1")


PAIRS = """
[a]
subject = "gpu"
summary = "{value:g} against {threshold:g}"
[[a.step]]
severity = "critical"
when = "WHEN"
"""
CORE_ID, POWER_ID, LIMIT_ID = gpu.TEMPERATURE["core"].id, gpu.POWER.id, gpu.POWER_LIMIT["enforced"].id


@pytest.mark.parametrize(
    ("when", "values", "summary", "numbers"),
    [
        (  # two metrics: each has its own name, too
            f"{POWER_ID} > {LIMIT_ID}",
            {gpu.POWER: 312.0, gpu.POWER_LIMIT["enforced"]: 300.0},
            "312 against 300",
            {"value": 312.0, "threshold": 300.0, POWER_ID: 312.0, LIMIT_ID: 300.0},
        ),
        (f"60 < {CORE_ID}", CORE, "61 against 60", {"value": 61.0, "threshold": 60.0}),  # what was measured is the value
        (  # the text means the number that its step calls so, whatever else holds
            f"{POWER_ID} > {LIMIT_ID} or {CORE_ID} > threshold\nthreshold = 85",
            CORE | {gpu.POWER: 312.0, gpu.POWER_LIMIT["enforced"]: 300.0},
            "312 against 85",
            {"value": 312.0, "threshold": 300.0, POWER_ID: 312.0, LIMIT_ID: 300.0},
        ),
    ],
)
def test_each_side_of_a_condition_is_told(
    tmp_path: Path, when: str, values: dict[Metric, float], summary: str, numbers: dict[str, float]
) -> None:
    condition, _, parameters = when.partition("\n")
    text = PAIRS.replace("WHEN", condition) + parameters
    (fired,) = heard(tmp_path, {0: (values, None)}, 5, text)
    assert (fired.summary, fired.numbers) == (summary, numbers)


@pytest.mark.parametrize("after", [0.5, 2.5, 8.0])
@pytest.mark.parametrize("down", [1.0, 300.0])
def test_a_driver_that_goes_after_a_gpu_leaves_its_alert_as_it_was(tell: Tell, after: float, down: float) -> None:
    story = tell(gpus=4, every=0.5)
    story.work = [Work(2, "train-7", "ann")]
    story.at(60).gpu(2, fault=LOST)
    story.at(60.5).happens(xid(79, "0000:42:00.0", story.wall)).at(60 + after)
    story.driver = "not_loaded"
    story.at(60 + after + down)
    story.driver = "ok"
    story.gpu(2, fault=LOST).at(60 + after + down + 60)
    said = [one for _, one in story.transitions if one.rule == "gpu_dropped"]
    assert {one.after.value for one in said} <= {"firing", "stale"}
    assert [one.summary for one in said if "unknown" in one.summary] == []
    (incident,) = [one for one in story.incidents.open() if one.rule == "gpu_dropped"]
    for text in ("0000:42:00.0", "(code 15)", "Xid 79", "train-7 of ann", "last seen 2023", "Power cycle"):
        assert text in incident.summary
    assert incident.words["cause"] == "NVML says that it is lost (code 15)"


def test_an_xid_that_is_known_no_more_is_not_taken_back(tell: Tell) -> None:
    story = tell(gpus=4).at(60).gpu(2, fault=LOST).happens(xid(79, "0000:42:00.0", START + 60)).at(61)
    (told,) = [one for one in story.incidents.open() if one.rule == "gpu_dropped"]
    story.runner.states["events"] = Events(65.0).initial()
    story.at(200)
    (incident,) = [one for one in story.incidents.open() if one.rule == "gpu_dropped"]
    assert ("Xid 79" in told.summary, told.summary) == (True, incident.summary)


def test_what_was_told_before_a_restart_is_still_known_where_nobody_finds_it_again(tmp_path: Path) -> None:
    text = TEXT.replace('latch = "until state_ok"\n', "")
    incidents = Incidents("vision-07", lambda: "id-1")
    incidents.apply(heard(tmp_path, {0: (GONE | CORE, ALL)}, 5, text))
    engine = Engine(load(tmp_path, {}, "test"))
    assert engine.adopt(incidents.open(), 900, 10) == []
    for now in range(100):  # there is no data for some seconds, and then but the state
        reading = Reading(source="nvml", tier=Tier.FAST, target=CARD, at=10 + now, took=0, values=GONE if now > 80 else {})
        incidents.apply(engine.beat(View(10 + now, {CARD: Entry(CARD, reading.values, {}, (reading,))}), 900 + now, {}))
    (incident,) = incidents.open()
    assert (incident.state, incident.changed_at) == (AlertState.FIRING, 91)
    assert incident.summary == "code 15; Xid 79; nobody; 312 W, 61 C, 1 of 1"
    assert incident.numbers == {"power_watts": 312.0, gpu.TEMPERATURE["core"].id: 61.0, "value": 1.0, "threshold": 1.0}
