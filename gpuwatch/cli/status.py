"""Say how this host and its monitor are, on one page.

Exit code 0: all is well; 1: something is wrong; 2: the daemon wants a password, or another one; 3: no daemon answers.

example: gpuwatch status
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from gpuwatch.cli import ask
from gpuwatch.cli.usage import width, wrapped
from gpuwatch.model.escape import printable
from gpuwatch.model.silence import DAY

PLACE = "gpuwatch status"
LONGEST = 1000  # characters of a line
USERS = 8  # of one GPU that are shown; --json has all
ACCESS = "Make it anew, with CDI or with links in /dev/char (nvidia-ctk system create-dev-char-symlinks)."
DOWN = {  # what is said of a GPU that is not read, by its state or by why that is; others by their own name
    "driver": "not read while the driver does not answer",
    "degraded": "NO ANSWER",
    "unknown_error": "NO ANSWER",
    "late": "NO ANSWER",
    "": "NO ANSWER",
}
UNITS = {"celsius": "C", "watts": "W"}
DRIVERS = {  # what the header says where the driver's version is not known
    "": "driver not known yet",
    "no_library": "no NVIDIA driver",
    "not_loaded": "NVIDIA driver not loaded",
    "nouveau": "nouveau in place of the NVIDIA driver",
    "released": "driver released, its version is not known",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    ask.add(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the daemon and print what it says."""

    def talk() -> int:
        page = ask.granted(args, PLACE, ask.client(args).get("/api/v1/status")).json()
        columns = width() if sys.stdout is not None and sys.stdout.isatty() else 0  # who searches it finds a thing in one line
        text = json.dumps(page, indent=1) if args.json else "\n".join(shown(lines(page, time.time()), columns))
        code = int(not well(page))
        print(text)
        return code

    return ask.conversation(PLACE, talk)


def shown(page: Iterable[str], columns: int) -> Iterator[str]:
    """Yield the lines as they are printed: broken between words where the terminal ends, and indented below their own."""
    for text in page:
        line = printable(text, LONGEST)
        yield wrapped(line, columns, len(line) - len(line.lstrip()) + 4) if 0 < columns < len(line) else line


def well(page: dict[str, Any]) -> bool:
    """Whether nothing on the page needs a person."""
    return (
        page["ready"]
        and not page["troubles"]
        and not page["store"]
        and not page["telling"]["problems"]
        and not page.get("judging", [])
        and not any(alert["severity"] != "info" for alert in page["alerts"])
    )


def lines(page: dict[str, Any], now: float) -> Iterator[str]:
    """Yield the page line by line."""
    host, driver = page["host"], page["driver"]
    cards = page["gpus"]
    models = Counter(card.get("name", "unknown model") for card in cards)
    there = ", ".join(f"{count} x {name}" for name, count in models.items()) or "no GPU"
    yield "  ".join(filter(None, (host["name"], host.get("os", ""), of_driver(driver), there)))
    yield f"gpuwatch {page['version']}, running for {span(now - page['started'])}, {'ready' if page['ready'] else 'NOT READY'}"
    waits = page["driver"].get("waits", False)  # what comes by itself is no alarm
    yield from (f"  {'.' if waits and reason.startswith('driver ') else '!'} {reason}" for reason in page["reasons"])
    yield from (f"  ! {trouble}" for trouble in page["troubles"] if trouble not in page["reasons"])
    yield from (f"  . {note}" for note in page["notes"])
    wrong = {*page["reasons"], *page["troubles"]}
    standings = ((name, "FAILS" if f"{name}: {why}" in wrong else why or "ok") for name, why in page["collectors"].items())
    reading = "  ".join(f"{name} {standing}" for name, standing in standings)
    yield f"reading: {reading}"
    if released(page):
        yield f"GPUs: {of_release(page['release'], now)}; `gpuwatch resume` ends it"
    else:
        yield f"GPUs: {sum(card['up'] for card in cards)} of {number(page['expected_gpus'], len(cards))} up"
    words = driver.get("words", "")
    if driver["state"] not in {"", "ok", "released"} and words and not any(words in reason for reason in page["reasons"]):
        yield f"  . driver {driver['state']}: {words}"  # a host without GPUs needs none, and is well
    yield from (f"  {line}" for card in cards for line in of_gpu(card, now))
    yield from (f"  . {one['words']}. {ACCESS}" for one in page.get("lacking", []))
    if page["disks"]:
        yield "disks:"
        yield from (f"  {of_disk(disk)}" for disk in page["disks"])
    yield f"alerts: {len(page['alerts']) or 'none'}"
    for alert in page["alerts"]:
        quiet = " (silenced)" if alert.get("silenced_by") else ""
        lasts = f"for {span(now - alert['since'])}{of_state(alert)}"
        yield f"  {alert['severity'].upper()} {alert['rule']} {lasts}{quiet}: {alert['summary']}"
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


def of_driver(driver: dict[str, Any]) -> str:
    """Return which driver there is, or that none is known."""
    if driver.get("driver_version"):
        return f"driver {driver['driver_version']}"
    state = driver["state"]
    return DRIVERS.get(state, f"driver {state.replace('_', ' ')}")


def of_gpu(card: dict[str, Any], now: float) -> Iterator[str]:
    """Yield the line of one GPU, then one for each of its MIG instances and of those who are on it."""
    values = card["values"]
    name = f"GPU {card.get('gpu', '?')}" + (f" ({card['label']})" if card.get("label") else "")
    if card["down_reason"] == "released":
        yield f"{name}: released"
    elif not card["up"]:
        seen = values.get("last_seen_timestamp_seconds")
        ago = f", last seen {span(now - seen)} ago" if seen else ""
        how = card["state"] or card["down_reason"]
        yield f"{name}: {DOWN.get(how) or how.replace('_', ' ').upper()}{ago}"  # what is wrong with it is among the troubles
    else:
        yield f"{name}: {numbers(card)}" + (f"  {card['state']}" if card["state"] not in {"ok", ""} else "")
    for instance in card.get("mig") or ():
        profile = instance["profile"] or "instance"
        yield f"  {profile} (instance {instance['gpu_instance']}): {memory(instance['values'])}"
    found = card.get("users", [])
    yield from (f"  {of_user(one)}" for one in found[:USERS])
    if len(found) > USERS:
        yield f"  and {len(found) - USERS} more"


def numbers(card: dict[str, Any]) -> str:
    """Return the numbers of a GPU, "-" for each that is not known. One with MIG on has no use and no memory as a whole."""
    values, instances = card["values"], card.get("mig")
    temperature = f"{values['temperature_celsius_core']:.0f} C" if "temperature_celsius_core" in values else "-"
    power = f"{values['power_watts']:.0f} W" if "power_watts" in values else "-"
    if instances is not None:
        return f"MIG, {len(instances) or 'no'} instance{'' if len(instances) == 1 else 's'}  {temperature}  {power}"
    if not values.keys() - {"last_seen_timestamp_seconds"}:
        return "no numbers yet"
    used = f"{values['utilization_ratio']:.0%}" if "utilization_ratio" in values else "-"
    return f"{used}  {temperature}  {power}  {memory(values)}"


def of_user(user: dict[str, Any]) -> str:
    """Return who is on a GPU: owner, job, command, memory, and on which part of it."""
    pids = user["pids"]
    job = f"{user['job']} ({user['command']})" if user["command"] and user["job"] else user["job"] or user["command"]
    who = ": ".join(filter(None, (user["user"], job))) or f"pid {', '.join(pids[:3])}"
    held = memory({} if user["memory_bytes"] is None else {"memory_used_bytes": user["memory_bytes"]})
    many = f", {len(pids)} processes" if len(pids) > 1 else ""
    on = f", instance {user['gpu_instance']}" if user["gpu_instance"] else ""
    return f"{who}  {held}{many}{on}"


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
    unread = "virtual, has no SMART" if disk.get("protocol") == "virtio" else "SMART not read yet"
    return f"{disk.get('device', '?')}: {disk['verdict'] or unread}{worn}  {disk.get('model', '')}".rstrip()


def of_state(alert: dict[str, Any]) -> str:
    """Return how an alert stands where it does not just fire, with what its text tells as it is now."""
    now = f", {amount(**alert['now'])} now" if alert.get("now") else ""
    return {"stale": ", no data now", "recovering": f", recovering{now}"}.get(alert.get("state", ""), "")


def amount(value: float, unit: str, **_: str) -> str:
    """Return a number with its unit."""
    if unit == "ratio":
        return f"{value:.0%}"
    if unit == "bytes":
        return f"{value / 2**30:.1f} GiB"
    if unit == "seconds":
        return span(value)
    return f"{value:.0f} {UNITS[unit]}" if unit in UNITS else f"{value:g} {unit}".rstrip()


def of_silence(silence: dict[str, Any], now: float) -> str:
    """Return one line on one silence that is not over."""
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(silence["ends_at"]))
    said = f": {silence['comment']}" if silence["comment"] else ""
    return f"{silence['of']} until {until} (in {span(silence['ends_at'] - now)}), by {silence['author']}{said}"


def released(page: dict[str, Any]) -> bool:
    """Whether somebody has had the daemon let go of the GPUs."""
    return bool(page.get("release", {}).get("state") == "released")


def of_release(release: dict[str, Any], now: float) -> str:
    """Return when a release ends, and by whom it is."""
    until = time.localtime(release["until"])
    is_near = abs(release["until"] - now) < DAY / 2  # over midnight, too, the time of day says it
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
    minutes = round(seconds / 60)  # of an hour that has just begun 60 are left, and not 59
    if minutes < 90:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
