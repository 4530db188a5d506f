"""The NVLinks of one GPU, each a target of its own. All that is asked of all of them is one call.

NVML does not say how many links there are (18 today, room for 36): every number is asked for once, and what answers is a link.
A GPU without NVLink costs that one call. Bytes and errors of all links together are chains of `readers.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuwatch.catalogue.interconnect import (
    LINK_ERRORS,
    LINK_RECEIVE,
    LINK_TRANSMIT,
    NVLINK,
    NVLINK_SPEED,
    NVLINK_UP,
    NVLINKS,
    NVLINKS_SPEED,
)
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources.nvml import fields, verdicts
from gpuwatch.sources.nvml.amounts import Amounts, reading
from gpuwatch.sources.nvml.bounds import plausible
from gpuwatch.sources.nvml.fields import Field
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, GpuGoneError, Library

MOST = 36  # NVML_NVLINK_MAX_LINKS of nvml.h 13
UP = {0: 0.0, 1: 1.0, 2: 1.0}  # inactive, active, asleep
MEGA, KIBI = 1e6, 1024.0
PERMANENT = verdicts.PERMANENT | {verdicts.INVALID_ARGUMENT, verdicts.ARGUMENT_VERSION_MISMATCH}
STATE = 165  # R515 and later
SPEEDS = (*range(84, 90), *range(132, 138))  # of the links 0 to 11, before field 164
EACH: Mapping[Metric, tuple[tuple[int, float], ...]] = {  # fields to try and their scale, as for all links together
    LINK_TRANSMIT: ((138, KIBI), (202, 1.0)),
    LINK_RECEIVE: ((139, KIBI), (204, 1.0)),
    LINK_ERRORS["replay"]: ((161, 1.0),),
    LINK_ERRORS["recovery"]: ((162, 1.0),),
    LINK_ERRORS["crc"]: ((163, 1.0),),
    LINK_ERRORS["symbol"]: ((221, 1.0),),
    LINK_ERRORS["recovery_failed"]: ((214, 1.0),),
}

Place = tuple[int, Metric]  # a number of a link


class Links:
    """Reads what each link answers. `each` adds bytes and errors link by link to state and speed."""

    def __init__(self, library: Library, card: Target, clock: Clock, *, each: bool) -> None:
        self._library = library
        self._clock = clock
        self._card = card
        self._each = each
        self._targets: dict[int, Target] = {}  # the links that have told their state
        self._ways: dict[Place, list[Field]] = {(link, NVLINK_UP): [Field(STATE, NVLINK_UP, scope=link)] for link in range(MOST)}
        self._told: set[Place] = set()  # what has answered once goes on being asked for
        self._old: int | None = None  # links of a driver before field 165; None: not looked for

    def look(self, handle: Any) -> list[Reading]:
        """Return one Reading a link; raises GpuGoneError and DriverGoneError."""
        at, started = self._clock.wall(), self._clock.mono()
        found = self._ask(handle, self._ways)
        if not self._ways and self._old is None:
            self._old = self._search(handle)
        for link in range(self._old or 0):
            found[link, NVLINK_UP] = self._state(handle, link)
        new = {link for link, metric in found if metric is NVLINK_UP and link not in self._targets}
        new = {link for link in new if isinstance(found[link, NVLINK_UP], float)}
        if new:
            more = {place: ways for link in sorted(new) for place, ways in self._wanted(link)}
            found |= self._ask(handle, more)
            self._ways |= more
            self._targets |= {link: self._target(link) for link in sorted(new)}
        took = self._clock.mono() - started
        return [self._reading(link, target, found, at, took) for link, target in self._targets.items()]

    def silent(self, why: Absence) -> list[Reading]:
        """Return one Reading a link without values; made without a call."""
        found: dict[Place, float | Absence] = {
            (link, metric): why for link in self._targets for metric in (NVLINK_UP, NVLINK_SPEED)
        }
        return [self._reading(link, target, found, self._clock.wall(), 0.0) for link, target in self._targets.items()]

    def _target(self, link: int) -> Target:
        return Target(subject=NVLINK, key=f"{self._card.key}/{link}", labels={**self._card.labels, "link": str(link)})

    def _wanted(self, link: int) -> Iterable[tuple[Place, list[Field]]]:
        """Yield what is asked of a link beside its state, each with the fields that may give it."""
        older = [Field(SPEEDS[link], NVLINK_SPEED, MEGA)] if link < len(SPEEDS) else []
        yield (link, NVLINK_SPEED), older if self._old else [Field(164, NVLINK_SPEED, MEGA, link)]
        for metric, ways in EACH.items() if self._each else ():
            yield (link, metric), [Field(number, metric, scale, link) for number, scale in ways]

    def _search(self, handle: Any) -> int | None:
        """Count the links of a driver that does not know the field of the state, by trying; None: ask again another time."""
        for link in range(MOST):
            state = self._state(handle, link)
            if isinstance(state, Absence):
                return link if state is Absence.UNSUPPORTED else None
        return MOST

    def _state(self, handle: Any, link: int) -> float | Absence:
        """Return whether a link is up by the call of old drivers."""
        try:
            return UP.get(int(self._library.named("nvmlDeviceGetNvLinkState", handle, link)), Absence.FAILED)
        except CallError as error:
            return why(error)

    def _ask(self, handle: Any, wanted: dict[Place, list[Field]]) -> dict[Place, float | Absence]:
        """Read the fields that may give these numbers in one call, and forget of each those that never will."""
        asked = [(place, field) for place, ways in wanted.items() for field in ways]
        found: dict[Place, float | Absence] = {}
        answers, whole = self._fields(handle, [(field.number, field.scope) for _, field in asked])
        for position, (place, field) in enumerate(asked):
            if isinstance(found.get(place), float):
                continue  # the field before this has given it
            error = whole or self._refusal(answers[position].nvmlReturn)
            if error is None:
                found[place] = self._value(field, answers[position])
                self._told.add(place)
                wanted[place] = [field]
            else:
                found[place] = why(error)
                if error.code in PERMANENT and place not in self._told:
                    wanted[place] = [other for other in wanted[place] if other is not field]
        for place in [place for place, ways in wanted.items() if not ways]:
            del wanted[place]
        return found

    def _fields(self, handle: Any, asked: list[tuple[int, int]]) -> tuple[Any, CallError | None]:
        """Return the answers, or the error of the whole call, which fails where every field in it does."""
        if not asked:
            return (), None
        try:
            return self._library.named("nvmlDeviceGetFieldValues", handle, asked), None
        except (GpuGoneError, DriverGoneError):
            raise
        except CallError as error:
            return (), error

    def _refusal(self, code: int) -> CallError | None:
        """Return the error of one field, None where it has answered; raises what ends the whole look."""
        error = self._library.classify(code) if code else None
        if isinstance(error, (GpuGoneError, DriverGoneError)):
            raise error
        return error

    @staticmethod
    def _value(field: Field, answer: Any) -> float | Absence:
        value = fields.value(field, answer)
        if field.metric is NVLINK_UP and not isinstance(value, Absence):
            value = UP.get(int(value), Absence.FAILED)
        return plausible(field.metric, value)

    def _reading(self, link: int, target: Target, found: Mapping[Place, float | Absence], at: float, took: float) -> Reading:
        mine = {metric: value for (other, metric), value in found.items() if other == link}
        if mine.get(NVLINK_UP) == 0.0 and NVLINK_SPEED in mine:
            mine[NVLINK_SPEED] = Absence.EMPTY  # drivers say 0, or what it was
        return reading(Tier.SLOW, target, mine, at=at, took=took)


def together(links: Sequence[Reading]) -> Amounts:
    """Return what all links of a GPU come to, nothing where it has none. What is not known of one is not known of all."""
    lacking: list[Absence] = [one.absent.get(NVLINK_UP, Absence.FAILED) for one in links if NVLINK_UP not in one.values]
    if lacking or not links:
        return dict.fromkeys((*NVLINKS.values(), NVLINKS_SPEED), lacking[0]) if lacking else {}
    up = [one for one in links if one.values[NVLINK_UP]]
    counts = {NVLINKS["up"]: float(len(up)), NVLINKS["down"]: float(len(links) - len(up))}
    slow: list[Absence] = [one.absent.get(NVLINK_SPEED, Absence.UNSUPPORTED) for one in up if NVLINK_SPEED not in one.values]
    return {**counts, NVLINKS_SPEED: slow[0] if slow else sum(one.values[NVLINK_SPEED] for one in up)}


def why(error: CallError) -> Absence:
    """Return why a number is absent; raises what ends the whole look."""
    if isinstance(error, (GpuGoneError, DriverGoneError)):
        raise error
    return Absence.UNSUPPORTED if error.code in PERMANENT else verdicts.absence(error.code)
