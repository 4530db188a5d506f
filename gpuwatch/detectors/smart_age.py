"""When SMART data of each disk was last read whole: SMART is read by a worker that remembers nothing, so its source cannot say.

Without it the age of a disk that sleeps, fails or is denied would be absent just when a person asks for it.
"""

import msgspec

from gpuwatch.catalogue.disk import DISK, SMART_LAST_SUCCESS
from gpuwatch.detectors.detector import derived, measured
from gpuwatch.model.finding import Findings
from gpuwatch.model.view import View

LIMIT = 256  # disks; beyond it the one that was read longest ago is forgotten


class State(msgspec.Struct):
    """Wall time of the last success by disk."""

    last: dict[str, float] = {}


class SmartAge:
    """The detector."""

    name = "smart_age"
    version = 1

    def initial(self) -> State:
        """Return that no disk has been read."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Learn from the readings, and say what is known of the disks that there are."""
        readings = []
        for entry in view.of(DISK):
            for reading in measured(entry):
                if SMART_LAST_SUCCESS in reading.values:
                    state.last[entry.target.key] = reading.values[SMART_LAST_SUCCESS]
            if entry.target.key in state.last:
                readings.append(derived(entry.target, {SMART_LAST_SUCCESS: state.last[entry.target.key]}, {}, wall))
        if len(state.last) > LIMIT:
            del state.last[min(state.last, key=state.last.__getitem__)]
        return state, Findings(tuple(readings))
