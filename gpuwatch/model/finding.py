"""What a detector finds: derived readings, and evidence for the text of an alert."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading
from gpuwatch.model.target import Target


@dataclass(frozen=True, slots=True)
class Evidence:
    """Numbers and words that explain a derived metric; they go into an alert's text, never into its identity."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Findings:
    """All that one detector, or all of them together, say about one beat."""

    readings: tuple[Reading, ...] = ()
    evidence: Mapping[tuple[Target, Metric], Evidence] = field(default_factory=dict)
    events: tuple[Event, ...] = ()  # what happened, as it is to be kept
