"""What a detector finds: derived readings, and evidence for the text of an alert."""

from collections.abc import Mapping

import msgspec

from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading
from gpuwatch.model.target import Target


class Evidence(msgspec.Struct, frozen=True):
    """Numbers and words that explain a derived metric; they go into an alert's text, never into its identity.

    `otherwise` are the words that stand where nobody knows better: they take the place of no word that was ever known.
    """

    numbers: Mapping[str, float] = {}
    words: Mapping[str, str] = {}
    otherwise: Mapping[str, str] = {}


class Findings(msgspec.Struct, frozen=True):
    """All that one detector, or all of them together, say about one beat."""

    readings: tuple[Reading, ...] = ()
    evidence: Mapping[tuple[Target, Metric], Evidence] = {}
    events: tuple[Event, ...] = ()  # what happened, as it is to be kept
    counted: tuple[str, ...] = ()  # detectors whose counters have grown by what is told here: they must not fall after a kill
