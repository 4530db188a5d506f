"""Whether a condition holds for one target now: True, False, or None where there is no data to tell.

`and` is False as soon as one part is; `or` is True as soon as one part is. Otherwise a part without data makes the whole
unknown, with one exception: in an `or`, a part about a number that this device will never have is left out.
"""

from collections import deque
from collections.abc import Callable, Mapping
from math import isnan
from operator import eq, ge, gt, le, lt, ne

import msgspec

from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.rules.language import Absent, Age, Comparison, Condition, Either, Increase, Number, Operand, Value, comparisons

OPERATORS = {">": gt, ">=": ge, "<": lt, "<=": le, "==": eq, "!=": ne}


class Growth:
    """What one counter grew by, step by step; only steps over 0 are kept, so a quiet counter costs nothing."""

    __slots__ = ("last", "steps")

    def __init__(self, last: float | None = None) -> None:
        self.last = last
        self.steps: deque[tuple[float, float]] = deque()  # monotonic time, growth

    def add(self, value: float, now: float, window: float) -> None:
        """Take in one value. A counter that falls was reset: what it shows since is growth, as Prometheus has it."""
        if self.last is not None and value != self.last:
            self.steps.append((now, value - self.last if value > self.last else value))
        self.last = value
        while self.steps and self.steps[0][0] <= now - window:
            self.steps.popleft()

    def shift(self, seconds: float) -> None:
        """Move all its times."""
        self.steps = deque((at + seconds, growth) for at, growth in self.steps)

    def total(self) -> float:
        """Return the growth within the window."""
        return sum(growth for _, growth in self.steps)


class Look(msgspec.Struct, frozen=True):
    """What is known of one target at one moment, as conditions see it."""

    values: Mapping[Metric, float]
    absent: Mapping[Metric, Absence]
    wall: float
    growth: Mapping[Increase, Growth] = {}


def amount(operand: Operand, look: Look) -> float | None:
    """Return the number that an operand stands for now, None where there is no data."""
    if isinstance(operand, Number):
        return operand.value
    if isinstance(operand, Value):
        found = look.values.get(operand.metric)
        return None if found is None or isnan(found) else found
    if isinstance(operand, Age):
        stamp = look.values.get(operand.metric)
        return None if stamp is None else look.wall - stamp
    if isinstance(operand, Absent):
        return float(operand.metric not in look.values)
    if isinstance(operand, Increase):
        growth = look.growth.get(operand)
        return None if growth is None or operand.metric not in look.values else growth.total()
    raise TypeError(f"parameter {operand.name} was not filled in")


def holds(condition: Condition, look: Look) -> bool | None:
    """Say whether the condition holds; None where there is no data to tell."""
    if isinstance(condition, Comparison):
        left, right = amount(condition.left, look), amount(condition.right, look)
        return None if left is None or right is None else OPERATORS[condition.op](left, right)
    verdicts = [(part, holds(part, look)) for part in condition.parts]
    if isinstance(condition, Either):
        if any(verdict for _, verdict in verdicts):
            return True
        known = [verdict for part, verdict in verdicts if not (verdict is None and unsupported(part, look))]
        return None if None in known or not known else False
    if any(verdict is False for _, verdict in verdicts):
        return False
    return None if any(verdict is None for _, verdict in verdicts) else True


def compiled(condition: Condition) -> Callable[[Look], bool | None]:
    """Return `holds` for one condition; the plain case, a metric and a number, without the walk over the tree."""
    if not isinstance(condition, Comparison):
        return lambda look: holds(condition, look)
    left, right = condition.left, condition.right
    if not isinstance(left, Value) or not isinstance(right, Number):
        return lambda look: holds(condition, look)
    metric, limit, compare = left.metric, right.value, OPERATORS[condition.op]

    def plain(look: Look) -> bool | None:
        found = look.values.get(metric)
        return None if found is None or isnan(found) else compare(found, limit)

    return plain


def unsupported(condition: Condition, look: Look) -> bool:
    """Say whether the condition needs a number that this device will never have."""
    return any(
        look.absent.get(operand.metric) is Absence.UNSUPPORTED
        for comparison in comparisons(condition)
        for operand in (comparison.left, comparison.right)
        if isinstance(operand, (Value, Age, Increase))
    )


def witness(condition: Condition, look: Look) -> Comparison | None:
    """Return the first comparison that holds, else the first that has data, None where none has: its numbers are for people."""
    verdicts = [(comparison, holds(comparison, look)) for comparison in comparisons(condition)]
    holding = (comparison for comparison, verdict in verdicts if verdict)
    return next(holding, next((comparison for comparison, verdict in verdicts if verdict is not None), None))
