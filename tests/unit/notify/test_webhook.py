"""The generic webhook: its request, its signature, its body, and how it judges."""

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import gpuwatch
from gpuwatch.model.alert import AlertState, Incident
from gpuwatch.model.delivery import Delivery, DeliveryKind, Outcome, Result
from gpuwatch.notify.receivers import webhook
from gpuwatch.notify.receivers.payload import LIMIT, Notification
from gpuwatch.notify.receivers.receiver import Answer, Attempt
from tests.fakes.incidents import HOT, WALL, ended, hot, stale, worse

HERE = Path(__file__).resolve().parent
SCHEMA_FILE = HERE.parents[2] / "docs" / "webhook.schema.json"
GOLDEN = HERE / "golden"
OPTIONS = webhook.Options(url="https://chat.example/hook/token", key=b"0123456789abcdef0123456789abcdef")
ATTEMPT = Attempt(at=WALL + 11, number=1, host="vision-07", host_labels={"rack": "A3"})


def delivery(*incidents: Incident, kind: DeliveryKind = DeliveryKind.FIRING) -> Delivery:
    return Delivery(id="01HG0000000000000000000001", channel="oncall", kind=kind, created=WALL + 10, incidents=incidents)


def sent(*incidents: Incident, kind: DeliveryKind = DeliveryKind.FIRING, attempt: Attempt = ATTEMPT) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(webhook.request(delivery(*incidents, kind=kind), OPTIONS, attempt).body)
    return found


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA_FILE.read_text())
    return found


def answer(status: int, **headers: str) -> Answer:
    return Answer(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=b"", at=WALL)


def test_the_signature_is_that_of_standard_webhooks() -> None:
    key, body = b"0123456789abcdef0123456789abcdef", b'{"version":"1","status":"firing"}'
    assert webhook.signature(key, "msg_2026_0001", "1700000000", body) == "v1,2x8gDgruvM0wUYE8o2aSBErzMQuwlz//MwZs95YkAro="


def test_a_secret_with_the_prefix_is_base64_and_one_without_is_text() -> None:
    encoded = "whsec_" + base64.b64encode(b"0123456789abcdef").decode()
    assert (webhook.signing_key("secret", encoded), webhook.signing_key("secret", "0123")) == (b"0123456789abcdef", b"0123")


def test_the_headers_are_those_of_the_contract() -> None:
    request = webhook.request(delivery(HOT), OPTIONS, ATTEMPT)
    assert dict(request.headers) == {
        "content-type": "application/json; charset=utf-8",
        "user-agent": f"gpuwatch/{gpuwatch.__version__}",
        "webhook-id": "01HG0000000000000000000001",
        "webhook-timestamp": "1700000011",
        "webhook-signature": webhook.signature(OPTIONS.key, "01HG0000000000000000000001", "1700000011", request.body),
    }


def test_without_a_secret_nothing_is_signed() -> None:
    assert "webhook-signature" not in webhook.request(delivery(HOT), dataclasses.replace(OPTIONS, key=b""), ATTEMPT).headers


def test_a_retry_keeps_the_id_and_has_its_own_timestamp_and_signature() -> None:
    first = webhook.request(delivery(HOT), OPTIONS, ATTEMPT).headers
    second = webhook.request(delivery(HOT), OPTIONS, replace(ATTEMPT, at=WALL + 40, number=2)).headers
    same = {name for name in first if first[name] == second[name]}
    assert same == {"content-type", "user-agent", "webhook-id"}


def test_no_repr_shows_address_key_or_signature() -> None:
    request = webhook.request(delivery(HOT), OPTIONS, ATTEMPT)
    assert (repr(OPTIONS), repr(request)) == ("Options(ca_file='')", "Request()")


def test_each_status_is_judged_as_documented() -> None:
    expected = {
        **dict.fromkeys((200, 201, 202, 204, 299), Result.SENT),
        **dict.fromkeys((408, 425, 429, 500, 502, 503, 504, 599), Result.RETRY),
        **dict.fromkeys((401, 403), Result.AUTH),
        410: Result.GONE,
        **dict.fromkeys((300, 301, 302, 303, 304, 307, 308), Result.REFUSED),
        **dict.fromkeys((400, 402, 404, 405, 406, 409, 411, 413, 415, 418, 422, 451, 499), Result.REFUSED),
        **dict.fromkeys((100, 101), Result.REFUSED),
    }
    assert {status: webhook.judge(answer(status)).result for status in expected} == expected


def test_a_word_that_joins_a_sentence_stands_alone_as_an_annotation() -> None:
    joined = replace(HOT, words={"held_by": "; it had: job 7", "also": " (also Xid 63)", "cause": ""})
    (alert,) = msgspec.json.decode(webhook.request(delivery(joined), OPTIONS, ATTEMPT).body)["alerts"]
    told = {name: alert["annotations"][name] for name in joined.words}
    assert told == {"held_by": "it had: job 7", "also": "(also Xid 63)", "cause": ""}


def test_a_redirect_is_refused_with_words() -> None:
    words = "status 302: it points to another address, which is not followed; configure the final address"
    assert webhook.judge(answer(302, location="https://chat.example/login")) == Outcome.refused(words)


def test_the_receivers_wish_to_wait_is_handed_on() -> None:
    assert webhook.judge(answer(429, retry_after="90")) == Outcome.retry("status 429: too many requests", 90.0)
    assert webhook.judge(answer(503, retry_after="Tue, 14 Nov 2023 22:13:50 GMT")) == Outcome.retry("status 503", 30.0)


def test_the_published_schema_is_that_of_the_body(regold: bool) -> None:
    made = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuwatch webhook, version 1",
        **msgspec.json.schema(Notification),
    }
    if regold:
        SCHEMA_FILE.write_text(json.dumps(made, indent=2) + "\n")
    assert schema() == made


CASES: dict[str, Delivery] = {
    "firing-warning": delivery(HOT),
    "firing-critical": delivery(worse(HOT)),
    "update": delivery(worse(HOT), kind=DeliveryKind.UPDATE),
    "repeat-of-eight": delivery(*(hot(number) for number in range(8)), kind=DeliveryKind.REPEAT),
    "resolved": delivery(ended(HOT), kind=DeliveryKind.RESOLVED),
    "stale": delivery(stale(HOT), kind=DeliveryKind.STALE),
    "cjk": delivery(replace(HOT, summary="视觉-07 的 GPU 3 温度 88 °C，超过 85 °C", info={"label": "三号槽"})),
    "no-value": delivery(replace(HOT, value=None, numbers={}, words={}, info={})),
    "hostile": delivery(
        replace(
            HOT,
            summary='</script><@everyone> \udc80 "quoted" \\ \x1b[31m\u202e',
            words={"comm": "@channel\n\x00"},
            numbers={"bad": float("nan"), "worse": float("inf")},
            value=float("-inf"),
        )
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_body_is_the_golden_one(name: str, regold: bool) -> None:
    late = replace(ATTEMPT, number=7, late=10_800.9, stored=False) if name == "repeat-of-eight" else ATTEMPT
    found = json.loads(webhook.request(CASES[name], OPTIONS, late).body)
    file = GOLDEN / f"webhook-{name}.json"
    if regold:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(found, indent=2, ensure_ascii=name != "cjk") + "\n")  # a reviewer must see what hides
    assert found == json.loads(file.read_text())


@pytest.mark.parametrize("name", CASES)
def test_the_body_meets_the_published_schema(name: str) -> None:
    found = json.loads(webhook.request(CASES[name], OPTIONS, ATTEMPT).body)
    jsonschema.validate(found, schema(), cls=jsonschema.Draft202012Validator)


def test_a_body_that_lacks_a_field_does_not_meet_the_schema() -> None:
    found = sent(HOT)
    del found["alerts"][0]["fingerprint"]
    with pytest.raises(jsonschema.ValidationError, match="'fingerprint' is a required property"):
        jsonschema.validate(found, schema(), cls=jsonschema.Draft202012Validator)


def test_the_whole_fires_while_anything_fires() -> None:
    assert [
        sent(*incidents)["status"]
        for incidents in ((ended(HOT), hot(1)), (ended(HOT), stale(hot(1))), (ended(HOT), ended(hot(1))))
    ] == ["firing", "stale", "resolved"]


def test_last_seen_is_the_end_of_what_ended_and_the_change_of_what_went_stale() -> None:
    found = [alert["last_seen_at"] for alert in sent(HOT, ended(hot(1)), stale(hot(2)))["alerts"]]
    assert found == ["2023-11-14T22:13:30.000Z", "2023-11-14T22:23:20.000Z", "2023-11-14T22:18:20.000Z"]


def test_the_unit_is_that_of_the_metric_that_has_the_value() -> None:
    ratio = replace(HOT, value=0.9, numbers={"utilization_ratio": 0.9})
    none = replace(HOT, value=1.0, numbers={"up": 1.0})
    assert [alert["unit"] for alert in sent(HOT, ratio, none)["alerts"]] == ["celsius", "ratio", None]


def test_what_does_not_fit_is_counted_and_said() -> None:
    big = [replace(hot(number), words={"what": "x" * 1900, "more": "y" * 1900}) for number in range(200)]
    found = sent(*big)
    shown = len(found["alerts"])
    assert 40 < shown < 200
    assert found["truncated_alerts"] == 200 - shown
    assert found["summary"].endswith(f" (+199 more, of which {200 - shown} did not fit)")


def test_one_alert_always_fits() -> None:
    words = {f"{number} \x01" * 100: "\x01" * 100_000 for number in range(300)}
    monster = replace(
        HOT, words=words, info=words, labels={"what": "\x01" * 3000}, summary="\x01" * 100_000, numbers=dict.fromkeys(words, 1.0)
    )
    body = webhook.request(delivery(monster), OPTIONS, replace(ATTEMPT, host="\x01" * 9000, host_labels=words)).body
    assert (len(body) <= LIMIT, len(json.loads(body)["alerts"])) == (True, 1)


ANYTHING = st.text(st.characters(), max_size=3000)  # surrogates too: names from /proc have them


@settings(max_examples=60, deadline=None)
@given(ANYTHING, st.dictionaries(ANYTHING, ANYTHING, max_size=4), st.none() | st.floats(), st.integers(1, 60))
def test_any_text_gives_a_bounded_body_of_valid_json(text: str, words: dict[str, str], value: float | None, count: int) -> None:
    incidents = tuple(replace(hot(number), summary=text * 20, words=words, info=words, value=value) for number in range(count))
    body = webhook.request(delivery(*incidents), OPTIONS, ATTEMPT).body
    found = json.loads(body.decode("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert len(body) <= LIMIT
    assert found["truncated_alerts"] + len(found["alerts"]) == count


def test_an_alert_of_every_state_has_a_status() -> None:
    found = [sent(replace(HOT, state=state))["status"] for state in AlertState]
    assert found == ["resolved", "firing", "firing", "firing", "stale"]
