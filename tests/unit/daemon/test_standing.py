"""What is said of an open alert is what the page says of it in the same beat."""

from msgspec.structs import replace

from gpuwatch import shipped
from gpuwatch.daemon.standing import standing
from gpuwatch.model.alert import AlertState, Now, Open
from gpuwatch.rules.load import load
from tests.fakes.story import LOST, Story

RULE, CORE = "gpu_overheating", "temperature_celsius_core"


def begun(temperature: float = 94.0) -> Story:
    """Return a host whose GPU is about to slow down, and an alert of it that is open."""
    return Story(load(shipped.folder("alerts"), {}, "x")).gpu(0, temperature=temperature, slowdown=95.0).at(200)


def told(story: Story, rule: str = RULE) -> Open:
    """Return how the alert of a rule stands after the last beat, whose states are on the board as the daemon posts them."""
    for reading in story.engine.readings(story.wall):
        story.board.post(reading, story.mono)
    (incident,) = (one for one in story.incidents.open() if one.rule == rule)
    return standing(incident, story.board.view(story.wall, story.mono), story.engine.rules)


def severity_and_state(story: Story) -> tuple[str, str]:
    """Return both of the alert of heat."""
    found = told(story).incident
    return found.severity.value, found.state.value


def test_an_alert_that_recovers_is_told_so_with_its_number_of_now() -> None:
    story = begun()
    assert (severity_and_state(story), told(story).now) == (("critical", "firing"), Now(CORE, 94.0, "celsius"))
    story.gpu(0, temperature=69.0).at(230)
    found = told(story)
    assert (found.incident.state, found.now) == (AlertState.RECOVERING, Now(CORE, 69.0, "celsius"))
    assert "reached 94 C" in found.incident.summary


def test_the_state_is_that_of_the_severity_that_is_told() -> None:
    story = begun().gpu(0, temperature=86.0).at(230)  # a warning goes on, the critical alert recovers
    assert severity_and_state(story) == ("critical", "recovering")
    assert severity_and_state(story.at(500)) == ("warning", "firing")
    assert severity_and_state(story.gpu(0, temperature=70.0).at(520)) == ("warning", "recovering")


def test_an_alert_without_data_has_no_number() -> None:
    story = begun().gpu(0, fault=LOST).at(260)
    assert (severity_and_state(story)[1], told(story).now) == ("stale", None)
    assert told(story, "gpu_dropped").now is None  # its text tells no number


def test_before_the_first_beat_after_a_start_it_stands_as_it_was_told() -> None:
    story = begun()
    (incident,) = story.incidents.open()
    stale = replace(incident, state=AlertState.STALE, rule="of another version")
    view = Story(()).board.view(story.wall, story.mono)
    assert standing(stale, view, {}) == Open(stale, None)
    assert standing(incident, view, story.engine.rules) == Open(incident, None)
