"""A collector's own numbers, written as readings."""

from collections.abc import Mapping

from gpuwatch.catalogue import own
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sampling.events import Reason, Report, Standing


def readings(report: Report, last: Mapping[str, float], wall: float) -> list[Reading]:
    """Return the COLLECTOR numbers of each source; `last` is the wall time of its last reading."""
    return [
        reading(source, numbers(standing, last.get(source), report.restarts), wall)
        for source, standing in report.standings.items()
    ]


def numbers(standing: Standing, last: float | None, restarts: Mapping[Reason, int]) -> dict[Metric, float]:
    """Return the numbers of one source."""
    values: dict[Metric, float] = {own.COLLECTOR_HUNG: float(standing.hung)}
    values.update({own.COLLECTOR_RESTARTS[reason.value]: float(count) for reason, count in restarts.items()})
    if standing.success is not None:
        values[own.COLLECTOR_SUCCESS] = float(standing.success)
    if standing.took is not None:
        values[own.COLLECTOR_DURATION] = standing.took
    if last is not None:
        values[own.COLLECTOR_LAST_SUCCESS] = last
    return values


def reading(source: str, values: Mapping[Metric, float], wall: float) -> Reading:
    """Return one source's numbers as a reading."""
    target = Target(subject=own.COLLECTOR, key=source, labels={"collector": source})
    return Reading(source="own", tier=Tier.NORMAL, target=target, at=wall, took=0.0, values=values)


def dropped(queue: str, count: int, wall: float) -> Reading:
    """Return the reading that says how much a bounded queue has dropped."""
    target = Target(subject=own.QUEUE, key=queue, labels={"queue": queue})
    return Reading(source="own", tier=Tier.NORMAL, target=target, at=wall, took=0.0, values={own.QUEUE_DROPPED: float(count)})
