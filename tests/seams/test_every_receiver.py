"""Every kind of receiver is tested by being in the table: what all of them must do, whatever they speak."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch import notify
from gpuwatch.config import Config, ConfigError
from gpuwatch.model.delivery import Delivery, DeliveryKind, Result
from gpuwatch.notify.receivers import RECEIVERS
from gpuwatch.notify.receivers.receiver import Answer, Attempt
from tests.fakes import receiver as fake
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import HOT, WALL, ended, hot, stale, worse
from tests.fakes.journal import Journal
from tests.fakes.telling import Life

SECRET, PATH = "hush-hush", "/token-in-the-path"
EVERY_KIND = pytest.mark.parametrize("kind", RECEIVERS)
GOOD: dict[str, fake.Answer] = {"webhook": fake.Answer(204)}  # what this kind's service says when it has taken a message
INCIDENTS = {
    "firing": HOT,
    "critical": worse(HOT),
    "ended": ended(HOT),
    "stale": stale(HOT),
    "without a value": replace(HOT, value=None, numbers={}, words={}, info={}),
    "Chinese": replace(HOT, summary="视觉-07 的 GPU 3 温度 88 °C"),
    "markup": replace(HOT, summary="<b>*_`~|[x](http://127.0.0.1/)</b> @everyone <!here>", words={"comm": "\x1b]0;\x07\u202e"}),
    "half characters": replace(HOT, summary="\udc80\udcff", words={"\udc80": "\udcff"}),
    "endless": replace(HOT, summary="长" * 100_000, words={str(number): "x" * 9000 for number in range(99)}),
}


@pytest.fixture
def receiver() -> Iterator[fake.Receiver]:
    with fake.Receiver(path=PATH) as found:
        yield found


def build(kind: str, url: str) -> notify.Channels:
    table: dict[str, Any] = {"name": "a", "kind": kind, "url": url, "secret": SECRET}
    return notify.build(Config(receivers=[table]))


def attempt() -> Attempt:
    return Attempt(at=WALL, number=1, host="vision-07")


def test_every_kind_says_what_its_good_answer_is() -> None:
    assert set(GOOD) == set(RECEIVERS)


@EVERY_KIND
def test_every_kind_delivers(kind: str, receiver: fake.Receiver, clock: FakeClock) -> None:
    receiver.always = GOOD[kind]
    journal = Journal()
    with Life(build(kind, receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
    assert journal.results == ["sent"]


@EVERY_KIND
@pytest.mark.parametrize(
    "answer",
    [
        fake.Answer(503),
        fake.Answer(500),
        fake.Answer(429, headers={"Retry-After": "1"}),
        fake.Answer(how="reset"),
        fake.Answer(how="close"),
        fake.Answer(how="garbage"),
        fake.Answer(how="silent"),
    ],
    ids=lambda answer: f"{answer.how} {answer.status}",
)
def test_every_kind_tries_again_what_may_pass(kind: str, answer: fake.Answer, receiver: fake.Receiver, clock: FakeClock) -> None:
    receiver.always = GOOD[kind]
    receiver.script(answer)
    journal = Journal()
    with Life(build(kind, receiver.url), clock, journal, deadline=0.5) as life:
        life.fire(HOT)
        life.attempts(1)
        life.forward(2)
        life.attempts(2)
    assert journal.results == ["retry", "sent"]


@EVERY_KIND
def test_no_kind_follows_a_redirect(kind: str, receiver: fake.Receiver, clock: FakeClock) -> None:
    receiver.always = fake.REDIRECT
    journal = Journal()
    with Life(build(kind, receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
    assert (journal.results, len(receiver.requests)) == (["refused"], 1)


@EVERY_KIND
def test_every_kind_judges_any_status(kind: str) -> None:
    judged = {
        RECEIVERS[kind].judge(Answer(status=status, headers={}, body=b"\xff<html>", at=WALL)).result for status in range(100, 600)
    }
    assert judged <= set(Result) - {Result.SUPERSEDED}


@EVERY_KIND
@pytest.mark.parametrize("name", INCIDENTS)
@pytest.mark.parametrize("message", DeliveryKind)
def test_every_kind_can_say_anything(kind: str, name: str, message: DeliveryKind) -> None:
    channel = build(kind, "http://127.0.0.1:1/").by_name["a"]
    incidents = (INCIDENTS[name], *(hot(number) for number in range(40)))
    delivery = Delivery(id="01HG", channel="a", kind=message, created=WALL, incidents=incidents)
    request = channel.receiver.request(delivery, channel.options, attempt())
    assert (request.url, len(request.body) < 1 << 20) == ("http://127.0.0.1:1/", True)


@EVERY_KIND
def test_no_kind_shows_a_secret(kind: str, receiver: fake.Receiver) -> None:
    channel = build(kind, receiver.url).by_name["a"]
    delivery = Delivery(id="01HG", channel="a", kind=DeliveryKind.FIRING, created=WALL, incidents=(HOT,))
    request = channel.receiver.request(delivery, channel.options, attempt())
    answer = Answer(status=404, headers={"x": SECRET}, body=f"{PATH} {SECRET}".encode(), at=WALL)
    shown = f"{channel!r} {channel.options!r} {request!r} {channel.receiver.judge(answer)!r}"
    assert [word for word in (SECRET, PATH, "127.0.0.1") if word in shown] == []


@EVERY_KIND
def test_no_kind_shows_a_secret_in_an_error_of_its_configuration(kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(kind, f"nothing like an address {PATH} {SECRET}")
    assert (SECRET in str(caught.value), PATH in str(caught.value)) == (False, False)
