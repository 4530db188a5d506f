"""When the hardware is suspected: trouble that comes back on one GPU while its siblings are clean (failure-modes.md 4). Pure."""

from collections.abc import Collection, MutableMapping

import msgspec

from gpuwatch.catalogue.xids import RECOVERY_CHANGED
from gpuwatch.detectors import causes
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event

DAY, WEEK = 86400.0, 604800.0
APART = 60.0  # seconds without a word between two occasions
OFTEN, PROGRAMS, BOOTS = 3, 2, 3  # occasions a day; different programs; boots in which it was there (it came back after two)
KEPT, THINGS = 32, 2048  # occasions of one trouble, and troubles, that are remembered
COMES_BACK = frozenset({"Xid 62"})  # a controller that halts again is the card or its power
PROGRAM = "program"  # all errors that programs cause, taken together


class Occasion(msgspec.Struct, array_like=True):
    """One time at which a trouble was told, however often within it."""

    began: float
    last: float
    boot: str
    program: str


Past = MutableMapping[str, list[Occasion]]  # by thing and label, as `at` writes it


def at(thing: str, label: str) -> str:
    """Return the name under which the occasions of one trouble of one thing are kept."""
    return f"{thing}|{label}"


def note(past: Past, thing: str, label: str, event: Event, boot: str) -> None:  # the boot of the story, where the event has none
    """Remember that this was told now."""
    is_program = event.kind == "xid" and causes.rank(event) == causes.PROGRAM
    for name in (label, PROGRAM) if is_program else (label,):
        known = past.pop(at(thing, name), [])
        program = event.facts.get("name", "")
        near = next((one for one in reversed(known) if one.began - APART <= event.at <= one.last + APART), None)
        if near is None or (name == PROGRAM and program and near.program != program):
            known = [*known[-KEPT + 1 :], Occasion(event.at, event.at, boot, program)]
        else:
            near.began, near.last = min(near.began, event.at), max(near.last, event.at)
        # Put at the end: what has not been told for the longest time is the first to be forgotten.
        past[at(thing, name)] = [one for one in known if one.last >= event.at - WEEK]
    while len(past) > THINGS:
        del past[next(iter(past))]


def within(past: Past, place: str, now: float, window: float) -> list[Occasion]:
    """Return the occasions of that time, up to now: a journal may tell of the newest boot first."""
    return [one for one in past.get(place, ()) if one.began <= now + APART and now - one.last <= window]


def apart(found: Collection[Occasion]) -> int:
    """Return how many of these were not at the same time as another."""
    count, end = 0, float("-inf")
    for one in sorted(found, key=lambda one: one.began):
        count += one.began - end > APART
        end = max(end, one.last)
    return count


def repeated(past: Past, thing: str, label: str, now: float) -> bool:
    """Say whether this was told at more than one time within a day."""
    return apart(within(past, at(thing, label), now, DAY)) > 1


def of_chip(past: Past, thing: str, labels: Collection[str], severity: Severity, now: float) -> tuple[str, Severity]:
    """Return in words why a GPU is suspected for what only a GPU can do ("" where it is not), and how grave that is at least."""
    for label in labels:
        if label in COMES_BACK and (count := apart(within(past, at(thing, label), now, WEEK))) > 1:
            return f"{label} has come {count} times: suspect the card or its power, not the program", Severity.CRITICAL
    for label in labels if severity is Severity.CRITICAL else ():
        boots = {one.boot for one in within(past, at(thing, label), now, WEEK)} - {""}
        if len(boots) >= BOOTS and label != f"Xid {RECOVERY_CHANGED}":
            return f"{label} has come back after {len(boots) - 1} reboots: suspect the hardware", severity
    return "", Severity.INFO


def of_programs(past: Past, thing: str, others: Collection[str], now: float) -> str:
    """Return in words why a GPU is suspected for errors that programs cause; "" unless there are others, and all are clean."""
    if not others or any(within(past, at(other, PROGRAM), now, DAY) for other in others):
        return ""
    found = within(past, at(thing, PROGRAM), now, DAY)
    programs = sorted({one.program for one in found} - {""})
    if apart(found) >= OFTEN:
        return f"errors of programs {apart(found)} times in a day, none on the other GPUs: suspect this GPU"
    if len(programs) >= PROGRAMS:
        return f"errors of different programs ({', '.join(programs[:3])}), none on the other GPUs: suspect this GPU"
    return ""
