"""The generic webhook: our own JSON, signed as Standard Webhooks do. Its schema is docs/webhook.schema.json.

The fields are a promise: new ones may come, none goes or changes its meaning while `version` is "1".
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import msgspec

import gpuwatch
from gpuwatch.model.delivery import Delivery, Outcome
from gpuwatch.notify.receivers import receiver
from gpuwatch.notify.receivers.payload import body
from gpuwatch.notify.receivers.receiver import Answer, Attempt, HttpReceiver, MistakeError, Request
from gpuwatch.notify.receivers.secret import secret
from gpuwatch.notify.retry import retry_after

LATER = {408: "it timed out", 425: "too early", 429: "too many requests"}


class Keys(receiver.Keys, frozen=True):
    """The keys of a webhook."""

    url: str = ""
    url_file: str = ""
    secret: str = ""
    secret_file: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a webhook is sent with. Address and key are in no repr."""

    url: str = field(repr=False)
    key: bytes = field(repr=False)  # b"": not signed
    ca_file: str = ""


def configure(keys: receiver.Keys) -> Options:
    """Read the secret files and check address and key; raises MistakeError."""
    found = cast("Keys", keys)
    url = secret("url", found.url, found.url_file)
    where = "url_file" if found.url_file else "url"
    if not url:
        raise MistakeError("url", "is missing, and so is url_file; one of them is required")
    check_url(where, url)
    text = secret("secret", found.secret, found.secret_file)
    return Options(url=url, key=signing_key("secret_file" if found.secret_file else "secret", text), ca_file=found.ca_file)


def check_url(where: str, url: str) -> None:
    """Refuse what is no http(s) address; the words do not show it, since an address can be a secret."""
    if problem := flaw(url):
        raise MistakeError(where, f'expected an address such as "https://host/path", found {problem}')
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise MistakeError(where, "has a user or password in it, which is not supported; sign with secret instead")


def flaw(url: str) -> str:
    """Return what keeps text from being an http(s) address, "" where nothing does."""
    if any(char.isspace() or not char.isprintable() for char in url):
        return "one with a space or a character that is not printed"
    if not url.lower().startswith(("https://", "http://")):
        return "text that does not begin with https:// or http://"
    try:
        host, port = urlsplit(url).hostname, urlsplit(url).port
    except ValueError:
        return "one whose host or port is none"
    return "one without a host" if not host else "one with port 0" if port == 0 else ""


def signing_key(where: str, text: str) -> bytes:
    """Return the bytes of the key: base64 after `whsec_`, as Standard Webhooks' libraries write it, else the text itself."""
    if not text.startswith("whsec_"):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise MistakeError(where, "begins with whsec_ but what follows is not base64") from None


def signature(key: bytes, identifier: str, timestamp: str, payload: bytes) -> str:
    """Sign one attempt: `v1,` and base64 of HMAC-SHA256 over id, timestamp and raw body, joined by dots."""
    signed = b".".join((identifier.encode(), timestamp.encode(), payload))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def request(delivery: Delivery, options: receiver.Options, attempt: Attempt) -> Request:
    """Build the POST. The id is that of the delivery on every attempt; timestamp and signature are this attempt's."""
    mine = cast("Options", options)
    payload = msgspec.json.encode(body(delivery, attempt))
    timestamp = str(int(attempt.at))
    headers = {
        "content-type": "application/json; charset=utf-8",
        "user-agent": f"gpuwatch/{gpuwatch.__version__}",
        "webhook-id": delivery.id,
        "webhook-timestamp": timestamp,
    }
    if mine.key:
        headers["webhook-signature"] = signature(mine.key, delivery.id, timestamp, payload)
    return Request(url=mine.url, headers=headers, body=payload)


def judge(answer: Answer) -> Outcome:
    """Judge by the status alone: the body of a generic webhook means nothing (notify.md section 1)."""
    status = answer.status
    words = f"status {status}"
    if 200 <= status < 300:
        return Outcome.sent(words)
    if status in LATER or status >= 500:
        return Outcome.retry(f"{words}: {LATER[status]}" if status in LATER else words, retry_after(answer.headers, answer.at))
    if status in (401, 403):
        return Outcome.auth(f"{words}: it does not accept our secret")
    if status == 410:
        return Outcome.gone(f"{words}: it wants no more messages")
    if 300 <= status < 400:
        return Outcome.refused(f"{words}: it points to another address, which is not followed; configure the final address")
    return Outcome.refused(words)


RECEIVER = HttpReceiver(keys=Keys, configure=configure, request=request, judge=judge)
