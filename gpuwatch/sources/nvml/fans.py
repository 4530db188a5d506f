"""The fans of one GPU, each a target of its own. The speed is what is commanded: a stuck fan still reads normal."""

from ctypes import byref
from typing import Any

from gpuwatch.catalogue.gpu import FAN, FAN_RPM, FAN_SPEED
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources.nvml import verdicts
from gpuwatch.sources.nvml.bounds import plausible
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, GpuGoneError, Library

MOST = 8  # fans of one card; a driver before R515 does not say how many there are
PERMANENT = verdicts.PERMANENT | {verdicts.INVALID_ARGUMENT, verdicts.ARGUMENT_VERSION_MISMATCH}


class Fans:
    """Reads what each fan answers; passive cards have none, or say 0 % (A40, A10G)."""

    def __init__(self, library: Library, card: Target, clock: Clock) -> None:
        self._library = library
        self._clock = clock
        self._card = card
        self._targets: list[Target] | None = None
        self._never: set[tuple[str, Metric]] = set()

    def look(self, handle: Any) -> list[Reading]:
        """Return one Reading a fan; raises GpuGoneError and DriverGoneError."""
        if self._targets is None:
            self._targets = [self._target(fan) for fan in range(self._count(handle))]
        return [self._look(handle, fan, target) for fan, target in enumerate(self._targets)]

    def silent(self, why: Absence) -> list[Reading]:
        """Return one Reading a fan without values; made without a call."""
        absent = {FAN_SPEED: why, FAN_RPM: why}
        at = self._clock.wall()
        return [
            Reading(source="nvml", tier=Tier.NORMAL, target=target, at=at, took=0.0, values={}, absent=absent)
            for target in self._targets or ()
        ]

    def _target(self, fan: int) -> Target:
        return Target(subject=FAN, key=f"{self._card.key}/{fan}", labels={**self._card.labels, "fan": str(fan)})

    def _count(self, handle: Any) -> int:
        """Return how many fans answer; before R515 only by trying."""
        try:
            return min(MOST, int(self._library.named("nvmlDeviceGetNumFans", handle)))
        except CallError as error:
            if error.code != verdicts.FUNCTION_NOT_FOUND:
                return 0 if passing(error).code in PERMANENT else 1
        return next((fan for fan in range(MOST) if not self._answers(handle, fan)), MOST)

    def _answers(self, handle: Any, fan: int) -> bool:
        """Return whether there is such a fan, also where it does not answer now."""
        try:
            self._library.named("nvmlDeviceGetFanSpeed_v2", handle, fan)
        except CallError as error:
            return passing(error).code not in PERMANENT
        return True

    def _look(self, handle: Any, fan: int, target: Target) -> Reading:
        values: dict[Metric, float] = {}
        absent: dict[Metric, Absence] = {}
        at, started = self._clock.wall(), self._clock.mono()
        for metric in (FAN_SPEED, FAN_RPM):
            if (target.key, metric) in self._never:
                absent[metric] = Absence.UNSUPPORTED
                continue
            try:
                found = plausible(metric, self._ratio(handle, fan) if metric is FAN_SPEED else self._rpm(handle, fan))
            except CallError as error:
                absent[metric] = verdicts.absence(passing(error).code)
                if error.code in PERMANENT:
                    absent[metric] = Absence.UNSUPPORTED
                    self._never.add((target.key, metric))
                continue
            if isinstance(found, Absence):
                absent[metric] = found
            else:
                values[metric] = found
        return Reading(
            source="nvml",
            tier=Tier.NORMAL,
            target=target,
            at=at,
            took=self._clock.mono() - started,
            values=values,
            absent=absent,
        )

    def _ratio(self, handle: Any, fan: int) -> float:
        percent = int(self._library.named("nvmlDeviceGetFanSpeed_v2", handle, fan))
        return known(percent) / 100

    def _rpm(self, handle: Any, fan: int) -> float:
        """Ask for any fan; pynvml's own nvmlDeviceGetFanSpeedRPM always asks fan 0."""
        info = self._library.struct("c_nvmlFanSpeedInfo_t", "nvmlFanSpeedInfo_v1")
        info.fan = fan
        self._library.symbol("nvmlDeviceGetFanSpeedRPM", handle, byref(info))
        return float(known(int(info.speed)))


def known(number: int) -> int:
    """Return a number that is one; all ones mean "not available"."""
    if number == 0xFFFFFFFF:
        raise CallError(verdicts.NOT_SUPPORTED)
    return number


def passing(error: CallError) -> CallError:
    """Return an error of one call, and raise one that ends the whole look."""
    if isinstance(error, (GpuGoneError, DriverGoneError)):
        raise error
    return error
