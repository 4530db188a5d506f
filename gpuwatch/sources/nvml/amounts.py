"""What a look gave of one part of a GPU (an instance, a link): each number, or why it is not there."""

from collections.abc import Mapping

from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target

Amounts = Mapping[Metric, float | Absence]


def reading(tier: Tier, target: Target, amounts: Amounts, *, at: float, took: float) -> Reading:
    """Return it as a reading."""
    return Reading(
        source="nvml",
        tier=tier,
        target=target,
        at=at,
        took=took,
        values={metric: value for metric, value in amounts.items() if not isinstance(value, Absence)},
        absent={metric: why for metric, why in amounts.items() if isinstance(why, Absence)},
    )
