"""What the routes answer."""

import json
import math
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from gpuwatch import __version__, catalogue
from gpuwatch.catalogue import gpu
from gpuwatch.export.api import routes
from gpuwatch.export.message import Request, Response
from gpuwatch.export.page import Page
from gpuwatch.model.alert import AlertState, Incident, Now, Open, Severity
from gpuwatch.model.event import Event
from gpuwatch.model.moment import EXPECTED
from gpuwatch.model.naming import Naming
from gpuwatch.model.past import Past, Question, UnreadableError
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.silence import Matcher
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.notify import Silences
from gpuwatch.store.ulid import Ulid
from tests.fakes import page_view
from tests.fakes.clock import FakeClock
from tests.fakes.journal import Journal
from tests.fakes.web import Releasing

INCIDENT = Incident(
    id="01HF0000000000000000000000",
    rule="gpu_overheating",
    subject="gpu",
    key=page_view.uuid(0),
    labels={"rule": "gpu_overheating", "gpu": "0"},
    info={"name": "显卡"},
    severity=Severity.WARNING,
    highest=Severity.CRITICAL,
    state=AlertState.FIRING,
    since=1.0,
    fired_at=2.0,
    changed_at=3.0,
    ended_at=None,
    value=91.0,
    summary="GPU 0 at 91 C",
    numbers={"threshold": 85.0},
    words={},
)


KEY = f"3/{page_view.uuid(3)}"  # of a GPU in that view
XID = Event(
    source="kernel",
    kind="xid",
    severity=Severity.CRITICAL,
    at=5.5,
    words="NVRM: Xid ...: 79",
    subject="gpu",
    key=KEY,
    code=79,
    facts={"pid": "7"},
    count=2,
    mark="boot:1",
)


class Known:
    """What a daemon would answer."""

    def __init__(self) -> None:
        self.now = page_view.big_host()
        self.page = Page(self.view)
        self.host = "vision-07"
        self.nobody = False
        self.asked: tuple[float, float, int, Collection[str] | None] | None = None
        self.naming = Naming(())
        self.clock = FakeClock()
        self.silences = Silences(Journal(), self.clock, Ulid(self.clock), {})
        self.releasing = Releasing()
        self.reasons: list[str] = []
        self.faults: list[str] = []
        self.refused = ""

    def ready(self) -> list[str]:
        """Return what is in the way."""
        return self.reasons

    def troubles(self) -> list[str]:
        """Return what is wrong with single things."""
        return self.faults

    def view(self) -> View:
        """Return the view."""
        return self.now

    def events(self, since: float, until: float, limit: int, keys: Collection[str] | None) -> Sequence[Event]:
        """Note what is asked for, and return one event, unless the disk refuses."""
        self.asked = (since, until, limit, keys)
        if self.refused:
            raise UnreadableError(self.refused)
        return [XID]

    def history(self, question: Question) -> Past:
        """Return nothing."""
        return Past(step=10.0, oldest=None, series=(), events=())

    def alerts(self) -> Sequence[Open]:
        """Return one incident."""
        return [Open(INCIDENT, Now("temperature_celsius_core", 69.0, "celsius"))]

    def status(self) -> dict[str, Any]:
        """Return a little."""
        return {"version": __version__, "channels": ["oncall"]}


@pytest.fixture
def answers() -> Known:
    """Return what a daemon would answer."""
    return Known()


def asked(answers: Known, **query: str) -> Response:
    [route] = [route for route in routes(answers) if route.path == "/api/v1/events"]
    return route.handler(Request(method="GET", path=route.path, query=query))


def ask(answers: Known, path: str, **headers: str) -> Response:
    [route] = [route for route in routes(answers) if (route.path, route.method) == (path, "GET")]
    return route.handler(
        Request(method="GET", path=path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    )


@pytest.mark.parametrize("path", ["view", "alerts", "status", "silences", "release"])
def test_a_path_without_parameters_refuses_those_that_it_is_given(answers: Known, path: str) -> None:
    [route] = [route for route in routes(answers) if (route.path, route.method) == (f"/api/v1/{path}", "GET")]
    response = route.handler(Request(method="GET", path=route.path, query={"gp\x1bu": "3"}))
    said = "'gp\\x1bu' is not known here; this path takes no parameters\n"
    assert (response.status, response.body.decode()) == (400, said)
    assert route.handler(Request(method="GET", path=route.path)).status == 200


def test_events_that_the_disk_refuses_are_no_quiet_host(answers: Known) -> None:
    answers.refused = "the history cannot be read: \x1bdisk I/O error"
    assert asked(answers) == Response.text(503, "the history cannot be read: \\x1bdisk I/O error")


def test_a_healthy_process_says_so(answers: Known) -> None:
    assert ask(answers, "/-/healthy") == Response.text(200, "healthy")


def test_readiness_names_each_reason_on_a_line(answers: Known) -> None:
    assert ask(answers, "/-/ready").status == 200
    answers.reasons = ["nvml: driver not loaded", "host: late"]
    response = ask(answers, "/-/ready")
    assert (response.status, response.body) == (503, b"nvml: driver not loaded\nhost: late\n")


def test_readiness_says_what_is_wrong_with_single_things(answers: Known) -> None:
    answers.faults = ["GPU 5 GPU-x: lost: off the bus", "/mnt/\udc80: hung"]
    response = ask(answers, "/-/ready")
    assert (response.status, response.body) == (200, b"ready\nGPU 5 GPU-x: lost: off the bus\n/mnt/\\udc80: hung\n")
    answers.reasons = ["driver no_nodes: run nvidia-modprobe"]
    answers.faults = ["driver no_nodes: run nvidia-modprobe", "disk nvme0n1: timeout: no answer"]
    response = ask(answers, "/-/ready")
    lines = b"driver no_nodes: run nvidia-modprobe\ndisk nvme0n1: timeout: no answer\n"
    assert (response.status, response.body) == (503, lines)


def test_the_scrape_comes_in_the_wished_format_and_coding(answers: Known) -> None:
    plain = ask(answers, "/metrics")
    assert (plain.type, dict(plain.headers).get("Content-Encoding")) == ("text/plain; version=0.0.4; charset=utf-8", None)
    best = ask(answers, "/metrics", accept="application/openmetrics-text", accept_encoding="gzip")
    assert best.type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert dict(best.headers)["Content-Encoding"] == "gzip"
    assert best.body[:2] == b"\x1f\x8b"


def test_the_view_as_json_has_every_number_and_every_reason(answers: Known) -> None:
    document = json.loads(ask(answers, "/api/v1/view").body)
    assert (document["version"], document["now"]) == (__version__, page_view.NOW)
    assert len(document["targets"]) == len(answers.now.entries)
    for found, entry in zip(document["targets"], answers.now.entries.values(), strict=True):
        assert (found["subject"], found["key"], found["labels"]) == (
            entry.target.subject.name,
            entry.target.key,
            entry.target.labels,
        )
        exported = {metric.id: value for metric, value in entry.values.items() if not metric.internal}
        assert found["values"] == exported
        assert found["at"] == {"nvml": page_view.NOW - 0.5}


def test_a_target_in_trouble_says_why_in_json(answers: Known) -> None:
    target = page_view.target(gpu.GPU)
    fault = Fault("lost", "GPU is lost", 15)
    absent = {gpu.POWER: Absence.LOST, gpu.PCIE_RECEIVE_RAW: Absence.LOST}
    readings = tuple(
        Reading(source=source, tier=tier, target=target, at=at, took=0.0, values={}, absent=absent, fault=fault)
        for source, tier, at in (("nvml", Tier.FAST, 5.0), ("nvml", Tier.SLOW, 2.0), ("pci", Tier.SLOW, 3.0))
    )
    answers.now = page_view.view([Entry(target, {gpu.UTILIZATION: math.nan}, absent, readings)])
    [found] = json.loads(ask(answers, "/api/v1/view").body)["targets"]
    assert found["fault"] == {"kind": "lost", "words": "GPU is lost", "code": 15}
    assert (found["values"], found["absent"], found["at"]) == ({}, {gpu.POWER.id: "lost"}, {"nvml": 5.0, "pci": 3.0})


def test_all_who_ask_for_the_view_within_a_beat_share_the_same_bytes(answers: Known) -> None:
    first = ask(answers, "/api/v1/view").body
    assert ask(answers, "/api/v1/view").body is first
    answers.now = page_view.view([])
    answers.page.turn()
    assert json.loads(ask(answers, "/api/v1/view").body)["targets"] == []


def test_text_that_is_not_utf8_does_not_cost_the_answer(answers: Known) -> None:
    target = page_view.target(catalogue.SUBJECTS["filesystem"])
    odd = type(target)(subject=target.subject, key="/\udc80", labels={"mountpoint": "/\udc80"}, info={})
    answers.now = page_view.view([page_view.entry(odd, {})])
    [found] = json.loads(ask(answers, "/api/v1/view").body)["targets"]
    assert found["key"] == "/\\udc80"


def test_open_alerts_come_with_all_that_is_known_of_them(answers: Known) -> None:
    document = json.loads(ask(answers, "/api/v1/alerts").body)
    [found] = document["alerts"]
    assert (found["id"], found["severity"], found["state"], found["ended_at"]) == (INCIDENT.id, "warning", "firing", None)
    assert (found["info"], found["silenced_by"]) == ({"name": "显卡"}, [])
    assert found["now"] == {"metric": "temperature_celsius_core", "value": 69.0, "unit": "celsius"}


def test_an_open_alert_says_by_which_silences_nobody_is_told_of_it(answers: Known) -> None:
    made = [answers.silences.add([Matcher(name="gpu", value=gpu)], 60, author="lena", comment="") for gpu in ("0", "1")]
    assert made[0] is not None
    [found] = json.loads(ask(answers, "/api/v1/alerts").body)["alerts"]
    assert found["silenced_by"] == [made[0][0].id]


def test_the_status_is_what_the_daemon_says(answers: Known) -> None:
    assert json.loads(ask(answers, "/api/v1/status").body) == answers.status()


def test_the_landing_page_links_every_route_and_escapes_the_host_name(answers: Known) -> None:
    answers.host = '<script>alert("1")</script>'
    response = ask(answers, "/")
    text = response.body.decode()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert {route.path for route in routes(answers) if route.method == "GET"} - {"/"} == {
        line.split('"')[1] for line in text.splitlines() if "<li>" in line
    }
    assert not any(word in text for word in ("http:", "https:", "//", "src="))


def test_the_landing_page_says_when_nobody_will_be_told(answers: Known) -> None:
    for nobody in (False, True):
        answers.nobody = nobody
        assert ("Nobody will be told" in ask(answers, "/").body.decode()) == nobody


def test_an_event_says_what_it_is_and_which_gpu_it_is_of_now(answers: Known) -> None:
    response = asked(answers)
    assert (response.status, answers.asked) == (200, (-(2.0**40), 2.0**40, 1000, None))
    assert json.loads(response.body) == {
        "version": __version__,
        "events": [
            {
                "at": 5.5,
                "source": "kernel",
                "kind": "xid",
                "name": "GPU fell off the PCIe bus",
                "severity": "critical",
                "subject": "gpu",
                "key": KEY,
                "gpu": "3",
                "code": 79,
                "count": 2,
                "words": "NVRM: Xid ...: 79",
                "facts": {"pid": "7"},
            }
        ],
    }


def test_events_are_asked_for_by_time_number_and_gpu(answers: Known) -> None:
    asked(answers, since="1.5", until="2e9", limit="7", gpu="3")
    assert answers.asked == (1.5, 2e9, 7, [KEY])
    asked(answers, gpu="GPU-of-long-ago")
    assert answers.asked == (-(2.0**40), 2.0**40, 1000, ["GPU-of-long-ago"])
    asked(answers, since="1h", until="2023-11-14T22:00:00Z", gpu="3")  # by the daemon's clock
    assert answers.asked == (answers.clock.wall() - 3600, 1_699_999_200.0, 1000, [KEY])


def test_events_of_an_index_are_those_of_every_gpu_that_has_it(answers: Known) -> None:
    labels = {"gpu": "3", "uuid": "GPU-lost"}
    lost = page_view.entry(Target(subject=gpu.GPU, key="GPU-lost", labels=labels), {})  # it keeps its index; another came to it
    answers.now = page_view.view([lost, *answers.now.entries.values()])
    asked(answers, gpu="3")
    assert answers.asked == (-(2.0**40), 2.0**40, 1000, ["GPU-lost", KEY])
    asked(answers, gpu="GPU-lost")
    assert answers.asked == (-(2.0**40), 2.0**40, 1000, ["GPU-lost"])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"since": "yesterday"}, f"since: {EXPECTED}, got 'yesterday'"),
        ({"since": "1_0"}, f"since: {EXPECTED}, got '1_0'"),
        ({"since": "nan"}, f"since: {EXPECTED}, got 'nan'"),
        ({"until": "inf"}, f"until: {EXPECTED}, got 'inf'"),
        ({"until": ""}, f"until: {EXPECTED}, got ''"),
        (
            {"since": "2024-05-01 14:00"},
            "since: expected a time with its zone, such as 2024-05-01 14:00Z, got '2024-05-01 14:00'",
        ),
        ({"since": "6h", "until": "7h"}, "until: expected a time after since"),
        ({"limit": "0"}, "limit: expected a number from 1 to 10000, got '0'"),
        ({"limit": "-1"}, "limit: expected a number from 1 to 10000, got '-1'"),
        ({"limit": "\u0663"}, "limit: expected a number from 1 to 10000, got '\u0663'"),
        ({"limit": "9" * 5000}, f"limit: expected a number from 1 to 10000, got '{'9' * 40}'"),
        ({"gpu": "99"}, "gpu: no GPU is called '99'; known are 0, 1, 2, 3, 4, 5, 6, 7"),
        ({"sinse": "1"}, "'sinse' is not known here; known are since, until, limit, gpu"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered_in_words(answers: Known, query: dict[str, str], words: str) -> None:
    response = asked(answers, **query)
    assert (response.status, response.body.decode(), answers.asked) == (400, f"{words}\n", None)
