"""Say how this host and its monitor are, on one page.

Exit code 0: all is well; 1: something is wrong; 2: the daemon wants a password, or another one; 3: no daemon answers.

example: gpuwatch status
"""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

from gpuwatch.cli import ask
from gpuwatch.model.escape import printable
from gpuwatch.model.silence import DAY

PLACE = "gpuwatch status"
BAD_VERDICTS = {"warn", "fail"}


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    ask.add(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the daemon and print what it says."""

    def talk() -> int:
        page = ask.granted(args, PLACE, ask.client(args).get("/api/v1/status")).json()
        text = json.dumps(page, indent=1) if args.json else "\n".join(printable(line, 400) for line in lines(page, time.time()))
        code = int(not well(page))
        print(text)
        return code

    return ask.conversation(PLACE, talk)


def well(page: dict[str, Any]) -> bool:
    """Whether nothing on the page needs a person."""
    return (
        page["ready"]
        and not any(page["collectors"].values())
        and not page["store"]
        and not page["telling"]["problems"]
        and not page.get("judging", [])
        and not any(alert["severity"] != "info" for alert in page["alerts"])
        and not any(disk["verdict"] in BAD_VERDICTS for disk in page["disks"])
        and (released(page) or all(card["up"] for card in page["gpus"]))
    )


def lines(page: dict[str, Any], now: float) -> Iterator[str]:
    """Yield the page line by line."""
    host, driver = page["host"], page["driver"]
    cards = page["gpus"]
    models = ", ".join(dict.fromkeys(card.get("name", "GPU") for card in cards)) or "no GPU"
    version = driver.get("driver_version") or driver["state"] or "unknown"
    yield f"{host['name']}  {host.get('os', '')}  driver {version}  {len(cards)} x {models}"
    yield f"gpuwatch {page['version']}, running for {span(now - page['started'])}, {'ready' if page['ready'] else 'NOT READY'}"
    waits = page["driver"].get("waits", False)  # what comes by itself is no alarm
    yield from (f"  {'.' if waits and reason.startswith('driver ') else '!'} {reason}" for reason in page["reasons"])
    yield from (f"  . {note}" for note in page["notes"])
    yield from (
        f"  ! {name}: {why}" for name, why in page["collectors"].items() if why and f"{name}: {why}" not in page["reasons"]
    )
    reading = "  ".join(f"{name} {'FAILS' if why else 'ok'}" for name, why in page["collectors"].items())
    yield f"reading: {reading}"
    if released(page):
        yield f"GPUs: {of_release(page['release'])}; `gpuwatch resume` ends it"
    yield f"GPUs: {sum(card['up'] for card in cards)} of {number(page['expected_gpus'], len(cards))} up"
    words = driver.get("words", "")
    if driver["state"] not in {"", "ok", "released"} and words and not any(words in reason for reason in page["reasons"]):
        yield f"  . driver {driver['state']}: {words}"  # a host without GPUs needs none, and is well
    yield from (f"  {of_gpu(card, now)}" for card in cards)
    if page["disks"]:
        yield "disks:"
        yield from (f"  {of_disk(disk)}" for disk in page["disks"])
    yield f"alerts: {len(page['alerts']) or 'none'}"
    for alert in page["alerts"]:
        quiet = " (silenced)" if alert.get("silenced_by") else ""
        yield f"  {alert['severity'].upper()} {alert['rule']} for {span(now - alert['since'])}{quiet}: {alert['summary']}"
    yield from (f"silenced: {of_silence(silence, now)}" for silence in page.get("silences", []))
    if page["store"]:
        yield f"history: {page['store']}"
    yield from (f"judging: {problem}" for problem in page.get("judging", []))
    yield from (f"messages: {problem}" for problem in page["telling"]["problems"])
    if receivers := page["telling"].get("receivers"):
        yield f"messages go to: {', '.join(receivers)}"
    yield from (f"messages: {words}" for words in page["telling"].get("unheard", []))
    if page["telling"]["nobody"]:
        yield "messages: NOBODY WILL BE TOLD. No receiver is configured: add [[receivers]] to the configuration."


def of_gpu(card: dict[str, Any], now: float) -> str:
    """Return one line on one GPU."""
    values = card["values"]
    name = f"GPU {card.get('gpu', '?')}" + (f" ({card['label']})" if card.get("label") else "")
    if not card["up"]:
        seen = values.get("last_seen_timestamp_seconds")
        ago = f", last seen {span(now - seen)} ago" if seen else ""
        return f"{name}: {(card['state'] or card['down_reason'] or 'no reading').upper()}{ago}. {card['words']}".rstrip()
    shown = [
        f"{values['utilization_ratio']:.0%}" if "utilization_ratio" in values else "-",
        f"{values['temperature_celsius_core']:.0f} C" if "temperature_celsius_core" in values else "-",
        f"{values['power_watts']:.0f} W" if "power_watts" in values else "-",
        memory(values),
    ]
    return f"{name}: {'  '.join(shown)}" + (f"  {card['state']}" if card["state"] not in {"ok", ""} else "")


def memory(values: dict[str, float]) -> str:
    """Return used and whole memory, as far as they are known."""
    used, size = values.get("memory_used_bytes"), values.get("memory_size_bytes")
    if used is None:
        return "-"
    return f"{used / 2**30:.1f}{f' of {size / 2**30:.0f}' if size else ''} GiB"


def of_disk(disk: dict[str, Any]) -> str:
    """Return one line on one disk."""
    wear = disk["values"].get("wear_used_ratio")
    worn = f"  {wear:.0%} worn" if wear is not None else ""
    words = f"  {disk['words']}" if disk["words"] else ""
    unread = "virtual, has no SMART" if disk.get("protocol") == "virtio" else "SMART not read yet"
    return f"{disk.get('device', '?')}: {disk['verdict'] or unread}{worn}{words}  {disk.get('model', '')}".rstrip()


def of_silence(silence: dict[str, Any], now: float) -> str:
    """Return one line on one silence that is not over."""
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(silence["ends_at"]))
    said = f": {silence['comment']}" if silence["comment"] else ""
    return f"{silence['of']} until {until} (in {span(silence['ends_at'] - now)}), by {silence['author']}{said}"


def released(page: dict[str, Any]) -> bool:
    """Whether somebody has had the daemon let go of the GPUs."""
    return bool(page.get("release", {}).get("state") == "released")


def of_release(release: dict[str, Any]) -> str:
    """Return when a release ends, and by whom it is."""
    until = time.localtime(release["until"])
    is_near = abs(release["until"] - time.time()) < DAY / 2  # over midnight, too, the time of day says it
    waits = f", and longer while {release['waits_for']} is at work" if release.get("waits_for") else ""
    return f"released until {time.strftime('%H:%M' if is_near else '%Y-%m-%d %H:%M', until)} by {release['by']}{waits}"


def number(found: float | None, otherwise: int) -> str:
    """Return a count, or what is known instead."""
    return f"{found:.0f}" if found is not None else str(otherwise)


def span(seconds: float) -> str:
    """Return a length of time as people say it: 40 s, 12 min, 6 h 4 min, 3 d 2 h."""
    seconds = max(0.0, seconds)
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 90:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
