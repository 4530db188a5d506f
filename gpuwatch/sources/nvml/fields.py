"""Field values: many numbers of a GPU in one nvmlDeviceGetFieldValues call."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence

ALL = 0xFFFFFFFF  # the scope of a field that sums over all NVLinks
UNSIGNED = 0xFFFFFFFF  # "not available" in 32 bits; drivers write it into 64 as well
# nvmlValueType_t -> member of the union, and what the driver writes for "not available" (all ones)
MEMBERS = {
    0: ("dVal", None),
    1: ("uiVal", UNSIGNED),
    2: ("ulVal", 0xFFFFFFFFFFFFFFFF),
    3: ("ullVal", 0xFFFFFFFFFFFFFFFF),
    4: ("sllVal", None),
    5: ("siVal", None),
    6: ("usVal", 0xFFFF),
}


class Field(msgspec.Struct, frozen=True):
    """One field: its id (nvml.h 13.5), the metric that it gives, and the factor to the metric's unit.

    `scope` is the NVLink that is meant, where it is one, or ALL of them.
    `signed` fields are offsets below zero that some drivers declare as unsigned. `states` makes the values of a state set from
    a field that is one of several numbered states; `metric` is then any of them.
    """

    number: int
    metric: Metric
    scale: float = 1.0
    scope: int = 0
    signed: bool = False
    states: Callable[[float], Mapping[Metric, float]] | None = None


def given(field: Field, raw: Any, metrics: tuple[Metric, ...]) -> Mapping[Metric, float | Absence]:
    """Return what a field gives for the metrics of its chain."""
    found = value(field, raw)
    if field.states is None or isinstance(found, Absence):
        return dict.fromkeys(metrics, found)
    return field.states(found)


def value(field: Field, raw: Any) -> float | Absence:
    """Return what a c_nvmlFieldValue_t holds; its nvmlReturn was 0."""
    member, none = MEMBERS.get(raw.valueType, ("", None))
    if not member:
        return Absence.FAILED  # a type that is newer than we are
    number = getattr(raw.value, member)
    if none is not None and number == none:
        return Absence.UNSUPPORTED
    if none is not None and number == UNSIGNED:
        return Absence.FAILED  # "not available" of a number that was widened, or a counter on its way past it
    if field.signed:
        number = signed(number, raw.valueType)
    return float(number * field.scale)


def signed(number: int, kind: int) -> int:
    """Return a number that the driver calls unsigned but means as signed."""
    bits = {1: 32, 2: 64, 3: 64, 6: 16}.get(kind, 0)
    return number - (1 << bits) if bits and number >= 1 << (bits - 1) else number
