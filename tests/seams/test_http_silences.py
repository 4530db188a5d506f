"""Silences over HTTP: who may, what is taken, what is refused in words, and that what is refused changes nothing."""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.client import Client, Reply
from gpuwatch.export.access import OVER_TCP, REFUSAL, name_of
from gpuwatch.export.silences import COMMENT_LENGTH, ENDED, MATCHERS, NOT_READ, VALUE_LENGTH
from gpuwatch.model.silence import Matcher, Silence
from gpuwatch.model.target import Target
from gpuwatch.notify import Silences
from gpuwatch.store.ulid import Ulid
from tests.fakes import page_view
from tests.fakes.clock import FakeClock
from tests.fakes.ordinary import NOBODY
from tests.fakes.until import PATIENCE
from tests.fakes.web import Answers, Served, serving

MAKE, END = "/api/v1/silences", "/api/v1/silences/end"
ROOT = os.geteuid() == 0


@pytest.fixture
def answers() -> Answers:
    """Return what the daemon knows."""
    return Answers()


@pytest.fixture
def served(tmp_path: Path, answers: Answers) -> Iterator[Served]:
    """Return a running server in a folder that everybody may enter."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path(folder.anchor):
            folder.chmod(folder.stat().st_mode | 0o011)
    with serving(tmp_path, answers=answers) as running:
        yield running


def post(served: Served, path: str, wish: object) -> Reply:
    """Ask over the socket."""
    return Client(str(served.path)).post(path, wish if isinstance(wish, bytes) else json.dumps(wish).encode())


def listed(served: Served) -> list[dict[str, Any]]:
    """Return what everybody sees, over TCP."""
    reply = Client(served.address).get(MAKE)
    assert reply.status == 200
    found: list[dict[str, Any]] = json.loads(reply.body)["silences"]
    return found


def as_nobody(act: Callable[[], str]) -> str:
    """Return what an act gives when an ordinary user does it, in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(write, act().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        found = said.read().decode()
    os.waitpid(child, 0)
    return found


@pytest.mark.parametrize("called", ["0000:65:00.0", "00000000:65:00.0", "GPU-B", "gpu-b"])
def test_a_gpu_may_be_named_by_address_or_uuid_and_is_silenced_as_itself(tmp_path: Path, called: str) -> None:
    card = Target(subject=GPU, key="GPU-B", labels={"gpu": "3", "uuid": "GPU-B"}, info={"pci_bus_id": "0000:65:00.0"})
    answers = Answers()
    answers.view = lambda: page_view.view([page_view.entry(card, {})])  # type: ignore[method-assign] # one GPU with an address
    with serving(tmp_path, answers=answers) as served:
        wish = {"matchers": [{"name": "gpu", "value": called}], "seconds": 60}
        assert json.loads(post(served, MAKE, wish).body)["silence"]["of"] == "uuid=GPU-B"
        wish["matchers"] = [{"name": "gpu", "value": "0000:66:00.0"}]
        reply = post(served, MAKE, wish)
        assert (reply.status, reply.body) == (400, b"matchers: no GPU is called 0000:66:00.0; known are 3\n")


def test_a_silence_that_is_made_is_seen_by_everybody_and_says_who_made_it(served: Served) -> None:
    reply = post(served, MAKE, {"matchers": [{"name": "gpu", "value": "3"}], "seconds": 7200, "comment": " 换风扇 "})
    made = json.loads(reply.body)
    (seen,) = listed(served)
    assert (reply.status, made["stored"], made["silence"]) == (200, True, seen)
    assert (seen["author"], seen["comment"], seen["of"], seen["state"]) == (name_of(os.getuid()), "换风扇", "gpu=3", "active")
    assert seen["matchers"] == [{"name": "gpu", "value": "3", "is_equal": True}]
    assert seen["ends_at"] - seen["starts_at"] == 7200


@pytest.mark.parametrize(
    ("name", "value", "is_equal", "of"),
    [
        ("host", "vision-07", True, "host=vision-07"),
        ("host", "vision-08", False, "host!=vision-08"),
        ("rack", "A3", True, "rack=A3"),
        ("rack", "B7", False, "rack!=B7"),
        ("gpu", "3", False, "gpu!=3"),
    ],
)
def test_what_alerts_of_this_host_can_be_is_taken(served: Served, name: str, value: str, is_equal: bool, of: str) -> None:
    wish = {"seconds": 60, "matchers": [{"name": name, "value": value, "is_equal": is_equal}]}
    assert json.loads(post(served, MAKE, wish).body)["silence"]["of"] == of


def test_a_silence_that_is_ended_says_by_whom(served: Served) -> None:
    made = json.loads(post(served, MAKE, {"seconds": 60}).body)["silence"]
    reply = post(served, END, {"id": made["id"]})
    (seen,) = listed(served)
    assert (reply.status, seen["state"], seen["ended_by"], seen["of"]) == (200, "expired", name_of(os.getuid()), "the whole host")
    assert post(served, END, {"id": made["id"]}).status == 200  # it is over all the same


JUNK: tuple[tuple[str, object, str], ...] = (
    (MAKE, b"", "cannot be read"),
    (MAKE, b"{", "cannot be read"),
    (MAKE, b"\xff\xfe", "cannot be read"),
    (MAKE, b'{"seconds": 60, "comment": "\xff"}', "cannot be read"),
    (MAKE, b'{"seconds": 60, "comment": "\\ud800"}', "cannot be read"),
    (MAKE, b"[" * 60_000, "cannot be read"),
    (MAKE, b'{"seconds": 60, "mood": ' + b"[" * 60_000, "cannot be read"),
    (MAKE, b'{"seconds": NaN}', "cannot be read"),
    (MAKE, [], "cannot be read: expected a table, found an array"),
    (MAKE, {}, "seconds: is missing, and it is required"),
    (MAKE, {"seconds": "2h"}, "seconds: expected a number, found text"),
    (MAKE, {"seconds": True}, "seconds: expected a number, found true or false"),
    (MAKE, {"seconds": 1e400}, "cannot be read"),
    (MAKE, {"seconds": 0}, "seconds: expected more than 0"),
    (MAKE, {"seconds": -5}, "seconds: expected more than 0"),
    (MAKE, {"seconds": 30 * 86400 + 1}, "at most 2592000 (30 days)"),
    (MAKE, {"seconds": 60, "mood": 1}, "mood: is not a known key"),
    (MAKE, {"seconds": 60, "author": "root"}, "author: is not a known key"),
    (MAKE, {"seconds": 60, "comment": "x" * (COMMENT_LENGTH + 1)}, f"comment: expected at most {COMMENT_LENGTH} characters"),
    (MAKE, {"seconds": 60, "matchers": {"gpu": "3"}}, "matchers: expected an array, found a table"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "gpu"}]}, "matchers[0].value: is missing"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "gpu", "value": 3}]}, "matchers[0].value: expected text, found a whole number"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "gpu", "value": ""}]}, "expected a value of 1 to"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "gpu", "value": "x" * (VALUE_LENGTH + 1)}]}, "expected a value of 1 to"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "g-pu\x1b", "value": "3"}]}, '"g-pu\\x1b" is not the name of a label'),
    (
        MAKE,
        {"seconds": 60, "matchers": [{"name": "gpu", "value": ".*", "is_regex": True}]},
        "matchers[0].is_regex: is not a known key",
    ),
    (MAKE, {"seconds": 60, "matchers": [{"name": "gpu", "value": "3", "mood": 1}]}, "mood: is not a known key"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "gpu", "value": "3"}] * (MATCHERS + 1)}, "matchers: expected at most"),
    (
        MAKE,
        {"seconds": 60, "matchers": [{"name": "rule", "value": "gpu_overheatng"}]},
        'matchers: "gpu_overheatng" is not a rule; did you mean gpu_overheating?',
    ),
    (
        MAKE,
        {"seconds": 60, "matchers": [{"name": "rule", "value": "x"}]},
        "known are disk_failing, disk_full, gpu_dropped, gpu_overheating, host_rebooted",
    ),
    (
        MAKE,
        {"seconds": 60, "matchers": [{"name": "rule", "value": "x\x1b", "is_equal": False}]},
        'matchers: "x\\x1b" is not a rule',
    ),
    (
        MAKE,
        {"seconds": 60, "matchers": [{"name": "gpuu", "value": "3"}]},
        '"gpuu" is not a label of any alert; known are device, gpu, host',
    ),
    (
        MAKE,
        {"seconds": 60, "matchers": [{"name": "severity", "value": "crit"}]},
        'expected one of info, warning, critical, found "crit"',
    ),
    (
        MAKE,
        {"seconds": 60, "matchers": [{"name": "rule", "value": "gpu_dropped"}, {"name": "severity", "value": "warning"}]},
        "matchers: no alert of gpu_dropped has severity=warning; there is critical",
    ),
    (MAKE, {"seconds": 60, "matchers": [{"name": "rule", "value": "disk_full"}]}, "matchers: rule disk_full is switched off"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "gpu", "value": "9"}]}, "no GPU is called 9; known are 0, 1, 2, 3, 4, 5, 6, 7"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "gpu", "value": "0000:ee:00.0"}]}, "no GPU is called 0000:ee:00.0"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "uuid", "value": "GPU-typo", "is_equal": False}]}, "no GPU is called GPU-typo"),
    (MAKE, {"seconds": 60, "matchers": [{"name": "host", "value": "vision-08"}]}, "this host is called vision-07, not vision-08"),
    (
        MAKE,
        {"seconds": 60, "matchers": [{"name": "host", "value": "vision-07", "is_equal": False}]},
        "every alert of this host has host=vision-07: none would be silenced",
    ),
    (MAKE, {"seconds": 60, "matchers": [{"name": "rack", "value": "B7\x1b"}]}, "this host has rack=A3, not B7\\x1b"),
    (
        MAKE,
        {"seconds": 60, "matchers": [{"name": "rack", "value": "A3", "is_equal": False}]},
        "every alert of this host has rack=A3: none would be silenced",
    ),
    (MAKE, {"seconds": 60, "matchers": [{"name": "gpu", "value": "9", "is_equal": False}]}, "no GPU is called 9; known are 0, 1"),
    (END, b"{", "cannot be read"),
    (END, {}, "id: is missing"),
    (END, {"id": 7}, "id: expected text, found a whole number"),
    (END, {"id": "x", "all": True}, "all: is not a known key"),
)


@pytest.mark.parametrize(("path", "wish", "words"), JUNK, ids=[str(number) for number in range(len(JUNK))])
def test_what_cannot_be_done_is_refused_in_words_and_changes_nothing(
    served: Served, answers: Answers, path: str, wish: object, words: str
) -> None:
    reply = post(served, path, wish)
    assert (reply.status, words in reply.body.decode()) == (400, True), reply
    assert (listed(served), answers.journal.commits) == ([], [])


def test_a_silence_that_is_not_known_cannot_be_ended(served: Served) -> None:
    reply = post(served, END, {"id": "no\x1bsuch"})
    assert (reply.status, reply.body) == (404, b"there is no silence no\\x1bsuch\n")


def test_before_the_alert_memory_was_read_that_is_said_of_what_is_not_known(tmp_path: Path, answers: Answers) -> None:
    answers.silences = Silences(answers.journal, answers.clock, Ulid(answers.clock), {})
    with serving(tmp_path, answers=answers) as served:
        reply = post(served, END, {"id": "x"})
        assert (reply.status, reply.body) == (503, f"{NOT_READ}\n".encode())
        assert json.loads(Client(served.address).get(MAKE).body)["complete"] is False
        made = json.loads(post(served, MAKE, {"seconds": 60}).body)["silence"]
        assert post(served, END, {"id": made["id"]}).status == 200  # what this run has made it knows
        answers.silences.restore(())
        assert post(served, END, {"id": "x"}).status == 404
        assert json.loads(Client(served.address).get(MAKE).body)["complete"] is True


def test_what_lasts_is_listed_and_of_what_is_over_the_hundred_that_ended_last(tmp_path: Path, answers: Answers) -> None:
    clock = FakeClock(wall=answers.clock.wall() - 1000)
    answers.silences = Silences(answers.journal, clock, Ulid(clock), {})
    for number in range(2 * ENDED):
        answers.silences.add((Matcher(name="gpu", value=str(number)),), 1 + number, author="lena", comment="")
    answers.silences.add((), 1e6, author="lena", comment="lasts")
    clock.forward(1000)
    with serving(tmp_path, answers=answers) as served:
        found = listed(served)
    assert [silence["comment"] for silence in found if silence["state"] == "active"] == ["lasts"]
    assert len(found) == ENDED + 1
    assert min(silence["ends_at"] - silence["starts_at"] for silence in found) == ENDED + 1


def test_what_a_release_holds_back_is_listed_beside_the_others(served: Served, answers: Answers) -> None:
    post(served, MAKE, {"seconds": 60})
    wall = answers.clock.wall()
    answers.silences.hold(Silence(id="release", matchers=(), starts_at=wall, ends_at=wall + 9, author="root", comment="released"))
    assert [silence["comment"] for silence in listed(served)] == ["", "released"]
    answers.silences.hold(None)
    assert [silence["comment"] for silence in listed(served)] == [""]


def test_a_list_that_takes_its_time_holds_no_other_page_up(tmp_path: Path, answers: Answers) -> None:
    gate, entered = threading.Event(), threading.Event()

    class Slow(Silences):
        def known(self) -> list[Silence]:
            entered.set()
            gate.wait(PATIENCE)
            return super().known()

    answers.silences = Slow(answers.journal, answers.clock, Ulid(answers.clock), {})
    with serving(tmp_path, answers=answers) as served:
        asking = threading.Thread(target=listed, args=(served,))
        asking.start()
        try:
            assert entered.wait(PATIENCE)
            assert Client(served.address).get("/-/healthy").status == 200
        finally:
            gate.set()
            asking.join(PATIENCE)


def test_a_silence_that_the_disk_does_not_take_holds_and_says_so(
    served: Served, answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    answers.journal.stall()
    reply = post(served, MAKE, {"seconds": 60})
    assert (reply.status, json.loads(reply.body)["stored"]) == (200, False)
    assert [silence["state"] for silence in listed(served)] == ["active"]
    assert "the disk has not taken it yet" in caplog.text


def test_over_tcp_without_a_password_nobody_makes_or_ends_one(
    served: Served, answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(served.address)
    replies = [client.post(MAKE, b'{"seconds": 60}'), client.post(END, b'{"id": "x"}')]
    assert [(reply.status, reply.body.decode().strip()) for reply in replies] == [(403, OVER_TCP)] * 2
    assert (listed(served), answers.journal.commits) == ([], [])
    assert f"POST {END} refused" in caplog.text


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_another_user_sees_silences_and_can_neither_make_nor_end_one(
    served: Served, answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    made = json.loads(post(served, MAKE, {"seconds": 60}).body)["silence"]
    commits = list(answers.journal.commits)
    caplog.set_level(logging.WARNING)

    def act() -> str:
        client = Client(str(served.path))
        asked = client.post(MAKE, b'{"seconds": 60}'), client.post(END, json.dumps({"id": made["id"]}).encode())
        return " ".join(str(reply.status) for reply in (client.get(MAKE), *asked))

    assert as_nobody(act) == "200 403 403"
    assert ([silence["state"] for silence in listed(served)], answers.journal.commits) == (["active"], commits)
    who = name_of(NOBODY)
    assert [record.getMessage() for record in caplog.records] == [
        f"POST {path} refused: user {who}: {REFUSAL}" for path in (MAKE, END)
    ]


def test_a_user_whom_nobody_knows_is_a_number() -> None:
    assert name_of(4_000_000_000) == "uid 4000000000"
