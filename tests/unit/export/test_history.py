"""`/api/v1/history`: what may be asked, and what comes back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch import __version__, catalogue
from gpuwatch.catalogue import gpu
from gpuwatch.export.history import LEAST, MOST, NAMES, PATH, route
from gpuwatch.export.message import Request, Response
from gpuwatch.model.past import NoTargetError, Past, Question, Series, TooMuchError, UnreadableError
from gpuwatch.model.view import View
from tests.fakes import page_view
from tests.fakes.clock import FakeClock
from tests.fakes.happenings import xid

OTHERS = "metric, target, since, until, limit"

KEY = f"3/{page_view.uuid(3)}"  # of a GPU in the view
VIEW = page_view.big_host()
NOW = FakeClock().wall()


class Known:
    """A daemon whose history is one answer, or one refusal."""

    def __init__(self, found: Past | Exception | None = None) -> None:
        self.clock = FakeClock()
        self.asked: list[Question] = []
        self.found = found or Past(step=10.0, oldest=None, series=(), events=())

    def view(self) -> View:
        """Return the view."""
        return VIEW

    def history(self, question: Question) -> Past:
        """Note what is asked for, and answer."""
        self.asked.append(question)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def ask(known: Known, **query: str) -> Response:
    """Ask."""
    return route(known).handler(Request(method="GET", path=PATH, query=query))


def question(**query: str) -> Question:
    """Return what a daemon is asked for by a query that makes sense."""
    known = Known()
    assert ask(known, **query).status == 200
    return known.asked[0]


def test_each_series_says_what_it_is_and_events_come_beside_it() -> None:
    labels = {"gpu": "3", "uuid": page_view.uuid(3)}
    points = [(NOW - 20, 61.5), (NOW - 10, None), (NOW, 0.0)]
    series = Series(metric=gpu.TEMPERATURE["core"], key=KEY, labels=labels, points=points)
    known = Known(Past(step=10.0, oldest=5.5, series=[series], events=[xid(31, KEY, NOW - 15)], truncated=["events: some"]))
    document: dict[str, Any] = json.loads(ask(known, metric="temperature_celsius_core", gpu="3").body)
    events = document.pop("events")
    assert document == {
        "version": __version__,
        "since": NOW - 21_600,
        "until": NOW,
        "step": 10.0,
        "oldest": 5.5,
        "series": [
            {
                "subject": "gpu",
                "key": KEY,
                "labels": labels,
                "metric": "temperature_celsius_core",
                "family": "gpuwatch_gpu_temperature_celsius",
                "members": {"sensor": "core"},
                "unit": "celsius",
                "kind": "gauge",
                "keep": "max",
                "points": [[NOW - 20, 61.5], [NOW - 10, None], [NOW, 0.0]],
            }
        ],
        "truncated": ["events: some"],
    }
    assert [(event["at"], event["code"], event["gpu"], event["name"]) for event in events] == [
        (NOW - 15, 31, "3", "GPU memory page fault (MMU fault)")
    ]


def test_a_longer_step_has_the_lowest_and_highest_too() -> None:
    series = Series(metric=gpu.POWER, key=KEY, labels={}, points=[(NOW, 2.0, 1.0, 3.0)])
    document = json.loads(ask(Known(Past(step=60.0, oldest=5.5, series=[series], events=[])), metric="power_watts").body)
    assert (document["step"], document["series"][0]["points"]) == (60.0, [[NOW, 2.0, 1.0, 3.0]])


def test_a_question_is_read_with_its_times_target_and_labels() -> None:
    usual = question(metric="power_watts")
    assert (usual.metrics, usual.since, usual.until, usual.key, usual.labels) == ((gpu.POWER,), NOW - 21_600, NOW, None, {})
    assert (usual.is_narrowed, usual.points) == (False, 2_500)
    whole = question(metric="power_watts", since="2023-11-14T22:00:00Z", until="10m", target=KEY, gpu="3", limit="10")
    assert (whole.since, whole.until, whole.key, whole.labels) == (NOW - 800, NOW - 600, KEY, {"gpu": "3"})
    assert (whole.is_narrowed, whole.points) == (True, 10)


def test_a_family_is_all_its_members_or_those_with_a_label() -> None:
    family = "gpuwatch_gpu_temperature_celsius"
    assert question(metric=family).metrics == tuple(gpu.TEMPERATURE.values())
    chosen = question(metric=family, sensor="memory", uuid="GPU-x")
    assert (chosen.metrics, chosen.labels) == ((gpu.TEMPERATURE["memory"],), {"uuid": "GPU-x"})


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "metric: expected the id or the family of a metric; `gpuwatch metrics` lists all"),
        ({"metric": ""}, "metric: expected the id or the family of a metric; `gpuwatch metrics` lists all"),
        ({"metric": "power_wats"}, "no metric is called 'power_wats'; did you mean power_watts"),
        ({"metric": "pcie_receive_raw_bytes"}, "'pcie_receive_raw_bytes' feeds detectors and is not kept"),
        ({"metric": "power_watts", "since": "yesterday"}, "since: expected a time ago such as 6h or 7d, seconds since 1970"),
        ({"metric": "power_watts", "until": "nan"}, "until: expected a time ago such as 6h or 7d"),
        (
            {"metric": "power_watts", "until": "2024-05-01 14:00"},
            "until: expected a time with its zone, such as 2024-05-01 14:00Z",
        ),
        ({"metric": "power_watts", "since": "1h", "until": "2h"}, "until: expected a time after since"),
        ({"metric": "power_watts", "since": "9d", "until": "9d"}, "until: expected a time after since"),
        ({"metric": "power_watts", "limit": "9"}, "limit: expected a number from 10 to 10000, got '9'"),
        ({"metric": "power_watts", "limit": "9" * 5000}, f"limit: expected a number from 10 to 10000, got '{'9' * 40}'"),
        (
            {"metric": "temperature_celsius", "sinse": "1"},
            f"'sinse' is not known here: the labels of temperature_celsius are gpu, uuid, sensor; beside them there are {OTHERS}",
        ),
        ({"metric": "temperature_celsius", "sensor": "x"}, "no member has sensor=x; there are sensor=core; sensor=memory"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered_in_words(query: dict[str, str], words: str) -> None:
    known = Known()
    response = ask(known, **query)
    assert (response.status, known.asked) == (400, [])
    assert response.body.decode().startswith(words)


@pytest.mark.parametrize(
    ("refusal", "status", "said"),
    [
        (NoTargetError("the history has no gpu with gpu=\x1b[2J"), 404, b"the history has no gpu with gpu=\\x1b[2J\n"),
        (TooMuchError("more than 5 rows"), 400, b"more than 5 rows\n"),
        (UnreadableError("the history cannot be read: x"), 503, b"the history cannot be read: x\n"),
    ],
)
def test_what_cannot_be_had_is_said_in_words(refusal: Exception, status: int, said: bytes) -> None:
    response = ask(Known(refusal), metric="power_watts")
    assert (response.status, response.body) == (status, said)


def test_no_label_is_called_as_a_part_of_the_question() -> None:
    labels = {label for subject in catalogue.SUBJECTS.values() for label in subject.labels}
    members = {name for metric in catalogue.METRICS for name, _ in metric.labels}
    assert set(NAMES) & labels == set()
    assert set(NAMES) & members == {"limit"}  # of the power limits, which are chosen by their ids
    assert not any(name in metric.subject.labels for metric in catalogue.METRICS for name, _ in metric.labels)


WORD = st.text(max_size=20) | st.sampled_from(
    ["power_watts", "temperature_celsius", "6h", "1h", "0", "-1", "1e400", "GPU-1", "²"]
)


@given(st.dictionaries(st.sampled_from([*NAMES, "gpu", "uuid", "sensor", "device"]) | st.text(max_size=10), WORD, max_size=6))
def test_whatever_is_asked_is_answered_or_refused_in_words(query: dict[str, str]) -> None:
    known = Known()
    response = route(known).handler(Request(method="GET", path=PATH, query=query))
    if response.status == 400:
        assert (len(response.body) > 5, known.asked) == (True, [])
        return
    (asked,) = known.asked
    assert response.status == 200
    assert asked.since < asked.until
    assert LEAST <= asked.points <= MOST
