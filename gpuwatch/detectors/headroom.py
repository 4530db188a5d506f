"""Degrees left until the hardware slows a GPU down.

Where the card tells an absolute limit: limit minus temperature. Cards that tell offsets (many from Ada on): the driver's margin
minus the offset at which slowdown acts. Both may be below 0: with the usual offset of -2 a card slows down at a margin of -2. The
source gives no margin that the core temperature refutes.
"""

import msgspec

from gpuwatch.catalogue.derived import TEMPERATURE_HEADROOM
from gpuwatch.catalogue.gpu import GPU, TEMPERATURE, TEMPERATURE_LIMIT, TEMPERATURE_MARGIN, TEMPERATURE_TLIMIT_OFFSET
from gpuwatch.detectors.detector import derived, measured
from gpuwatch.model.finding import Findings
from gpuwatch.model.reading import Absence
from gpuwatch.model.view import Entry, View

CORE, LIMIT, OFFSET = TEMPERATURE["core"], TEMPERATURE_LIMIT["slowdown"], TEMPERATURE_TLIMIT_OFFSET["slowdown"]


class State(msgspec.Struct):
    """Nothing has to be remembered."""


class Headroom:
    """The detector."""

    name = "headroom"
    version = 1

    def initial(self) -> State:
        """Return nothing."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Say the headroom of every GPU, or why it cannot be said."""
        readings = []
        for entry in view.of(GPU):
            if measured(entry):
                found = headroom(entry)
                values = {} if isinstance(found, Absence) else {TEMPERATURE_HEADROOM: found}
                absent = {TEMPERATURE_HEADROOM: found} if isinstance(found, Absence) else {}
                readings.append(derived(entry.target, values, absent, wall))
        return state, Findings(tuple(readings))


def headroom(entry: Entry) -> float | Absence:
    """Return the degrees that are left, or why they are not known."""
    values = entry.values
    if LIMIT in values:
        core = values.get(CORE)
        return entry.absent.get(CORE, Absence.FAILED) if core is None else values[LIMIT] - core
    margin, offset = values.get(TEMPERATURE_MARGIN), values.get(OFFSET)
    if margin is not None and offset is not None:
        return margin - offset
    never = Absence.UNSUPPORTED
    if entry.absent.get(LIMIT) is never and never in (entry.absent.get(TEMPERATURE_MARGIN), entry.absent.get(OFFSET)):
        return never
    return Absence.EMPTY
