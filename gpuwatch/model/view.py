"""What the board knows at one moment: immutable, merged over the sources, late values already dropped."""

from collections.abc import Mapping, Sequence

import msgspec

from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Absence, Fault, Reading
from gpuwatch.model.target import Target


class Entry(msgspec.Struct, frozen=True):
    """All that is known of one target. `readings` are those that count, the most trusted source first."""

    target: Target
    values: Mapping[Metric, float]
    absent: Mapping[Metric, Absence]
    readings: tuple[Reading, ...]

    def at(self, metric: Metric) -> float | None:
        """Return the wall time at which the merged value of `metric` was read, None where it is absent."""
        return next((reading.at for reading in self.readings if metric in reading.values), None)

    @property
    def fault(self) -> Fault | None:
        """The fault of the most trusted source that reports one."""
        return next((reading.fault for reading in self.readings if reading.fault), None)


class View(msgspec.Struct, frozen=True, eq=False):
    """The board at one moment: entries by target, those of a subject in natural order; events since the last beat.

    The keys are the targets as they first came; their labels and facts of now are those of `Entry.target`.
    """

    now: float  # wall clock, seconds
    entries: Mapping[Target, Entry]
    events: tuple[Event, ...] = ()  # in the order of their arrival; only detectors are shown any
    mono: float = 0.0  # monotonic clock at that moment: what durations are made of
    _by_subject: dict[Subject, list[Entry]] = {}

    def of(self, subject: Subject) -> Sequence[Entry]:
        """Return the entries of one subject; sorted out once, since all detectors ask."""
        if not self._by_subject and self.entries:
            found: dict[Subject, list[Entry]] = {}
            for entry in self.entries.values():
                found.setdefault(entry.target.subject, []).append(entry)
            self._by_subject.update(found)
        return self._by_subject.get(subject, ())

    def value(self, target: Target, metric: Metric) -> float | None:
        """Return a value, None where the target or the value is absent."""
        entry = self.entries.get(target)
        return None if entry is None else entry.values.get(metric)
