"""The language of `when`: `A op B [and|or ...]`, parsed to a small frozen tree (rulings 5).

A and B are a metric id of the rule's subject, a number (with a unit where the other side is in seconds or bytes), a named
parameter of the step, `increase(id, window)`, `age(id)` or `absent(id)`; nothing else. `and` binds closer than `or`.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping

import msgspec

from gpuwatch import catalogue
from gpuwatch.model.metric import Kind, Metric, Subject
from gpuwatch.model.nearest import hint
from gpuwatch.model.quantity import BYTES, DURATION, SECONDS, SIZE, duration, size

TOKEN = re.compile(r"\s*(?:(-?\d+(?:\.\d+)?(?:[A-Za-z]+)?)|([A-Za-z_][A-Za-z0-9_]*)|(>=|<=|==|!=|>|<|\(|\)|,))")
OPERATORS = (">", ">=", "<", "<=", "==", "!=")
FUNCTIONS = ("increase", "age", "absent")


class Number(msgspec.Struct, frozen=True):
    """A number as the rule wrote it; `unit` is seconds or bytes where it was written with one."""

    value: float
    unit: str = ""


class Parameter(msgspec.Struct, frozen=True):
    """A named number of the step, not yet filled in."""

    name: str


class Value(msgspec.Struct, frozen=True):
    """The present value of a metric."""

    metric: Metric


class Increase(msgspec.Struct, frozen=True):
    """By how much a counter grew in the last `window` seconds; its resets add nothing."""

    metric: Metric
    window: float


class Age(msgspec.Struct, frozen=True):
    """Seconds since the time that the metric tells."""

    metric: Metric


class Absent(msgspec.Struct, frozen=True):
    """1 while the target is known and the metric has no value, else 0."""

    metric: Metric


Operand = Number | Parameter | Value | Increase | Age | Absent


class Comparison(msgspec.Struct, frozen=True):
    """`left op right`."""

    left: Operand
    op: str
    right: Operand


class Both(msgspec.Struct, frozen=True):
    """All parts hold."""

    parts: tuple[Comparison, ...]


class Either(msgspec.Struct, frozen=True):
    """At least one part holds."""

    parts: tuple[Comparison | Both, ...]


Condition = Comparison | Both | Either


def parse(text: str, subject: Subject, parameters: Mapping[str, Number]) -> Condition:
    """Parse a condition; raises ValueError that says what was found and what was expected."""
    condition = Parser(text, subject, parameters).condition()
    for comparison in comparisons(condition):
        check_units(comparison, parameters)
    return condition


def number(found: object) -> Number:
    """Convert a number of a rule or an override: 85, "30s", "512MiB"; raises ValueError."""
    if isinstance(found, (int, float)) and not isinstance(found, bool) and math.isfinite(found):
        return Number(float(found))
    if isinstance(found, str) and DURATION.fullmatch(found):
        return Number(float(duration(found)), "seconds")
    if isinstance(found, str) and SIZE.fullmatch(found):
        return Number(float(size(found)), "bytes")
    raise ValueError('expected a number, a duration such as "30s" or a size such as "512MiB"')


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """Yield every comparison of a condition, left to right."""
    if isinstance(condition, Comparison):
        yield condition
    else:
        for part in condition.parts:
            yield from comparisons(part)


def metrics(condition: Condition) -> tuple[Metric, ...]:
    """Return the metrics that a condition looks at, each once, left to right."""
    operands = (operand for comparison in comparisons(condition) for operand in (comparison.left, comparison.right))
    return tuple(dict.fromkeys(operand.metric for operand in operands if not isinstance(operand, (Number, Parameter))))


def bind(condition: Condition, parameters: Mapping[str, Number]) -> Condition:
    """Return the condition with its parameters filled in."""
    if isinstance(condition, Comparison):
        return Comparison(filled(condition.left, parameters), condition.op, filled(condition.right, parameters))
    if isinstance(condition, Both):
        return Both(tuple(Comparison(filled(p.left, parameters), p.op, filled(p.right, parameters)) for p in condition.parts))
    parts = (bind(part, parameters) for part in condition.parts)
    return Either(tuple(part for part in parts if not isinstance(part, Either)))


def filled(operand: Operand, parameters: Mapping[str, Number]) -> Operand:
    """Return the number that a parameter stands for; everything else as it is."""
    return parameters[operand.name] if isinstance(operand, Parameter) else operand


def unit_of(operand: Operand, parameters: Mapping[str, Number]) -> str:
    """Return the unit of an operand: that of its metric, seconds, bytes or none."""
    if isinstance(operand, Age):
        return "seconds"
    if isinstance(operand, Absent):
        return ""
    if isinstance(operand, (Value, Increase)):
        return operand.metric.unit
    known = filled(operand, parameters)
    return known.unit if isinstance(known, Number) else ""


def check_units(comparison: Comparison, parameters: Mapping[str, Number]) -> None:
    """Refuse a comparison of unlike things; raises ValueError."""
    left, right = comparison.left, comparison.right
    left_unit, right_unit = unit_of(left, parameters), unit_of(right, parameters)
    left_fixed, right_fixed = (isinstance(side, (Number, Parameter)) for side in (left, right))
    if left_fixed and right_fixed:
        raise ValueError(f"{written(left)} {comparison.op} {written(right)} compares two numbers; one side must be a metric")
    if left_fixed or right_fixed:
        fixed, fixed_unit, measured_unit = (left, left_unit, right_unit) if left_fixed else (right, right_unit, left_unit)
        if measured_unit == "seconds" and fixed_unit != "seconds":
            raise ValueError(f'{written(fixed)} is compared with seconds: expected a duration with a unit, such as "24h"')
        if fixed_unit not in ("", measured_unit):
            raise ValueError(f"{written(fixed)} is in {fixed_unit}, and the other side is in {measured_unit or 'no unit'}")
    elif left_unit != right_unit:
        raise ValueError(f"{written(left)} is in {left_unit or 'no unit'}, and {written(right)} in {right_unit or 'no unit'}")


def written(operand: Operand) -> str:
    """Return an operand as a rule writes it."""
    if isinstance(operand, Number):
        return f"{operand.value:g}"
    if isinstance(operand, Parameter):
        return operand.name
    if isinstance(operand, Value):
        return operand.metric.id
    if isinstance(operand, Increase):
        return f"increase({operand.metric.id}, {operand.window:g}s)"
    return f"{type(operand).__name__.lower()}({operand.metric.id})"


class Parser:
    """Recursive descent over the tokens of one condition."""

    def __init__(self, text: str, subject: Subject, parameters: Collection[str]) -> None:
        self.subject, self.parameters = subject, parameters
        self.ids = {metric.id: metric for metric in catalogue.of(subject)}
        self.tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = TOKEN.match(text, at)
            if found is None:
                raise ValueError(f'"{text[at:].strip()}" is not part of the language of rules')
            self.tokens.append(found[0].strip())
            at = found.end()
        self.at = 0

    def next(self, expected: str) -> str:
        """Take the next token; raises ValueError at the end."""
        if self.at == len(self.tokens):
            raise ValueError(f"ends where {expected} was expected")
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, token: str) -> bool:
        """Take this token if it comes next."""
        found = self.at < len(self.tokens) and self.tokens[self.at] == token
        self.at += found
        return found

    def condition(self) -> Condition:
        """Parse the whole text."""
        parts = [self.both()]
        while self.take("or"):
            parts.append(self.both())
        if self.at < len(self.tokens):
            raise ValueError(f'found "{self.tokens[self.at]}" where "and", "or" or the end was expected')
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def both(self) -> Comparison | Both:
        """Parse comparisons joined by `and`."""
        parts = [self.comparison()]
        while self.take("and"):
            parts.append(self.comparison())
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def comparison(self) -> Comparison:
        """Parse `A op B`."""
        left = self.operand()
        op = self.next(f"one of {' '.join(OPERATORS)}")
        if op not in OPERATORS:
            raise ValueError(f'found "{op}" where one of {" ".join(OPERATORS)} was expected')
        return Comparison(left, op, self.operand())

    def operand(self) -> Operand:
        """Parse one side of a comparison."""
        token = self.next("a metric, a number or a parameter")
        if token[0].isdigit() or token[0] == "-":
            return self.number(token)
        if token in FUNCTIONS and self.take("("):
            return self.function(token)
        if token in self.parameters:
            return Parameter(token)
        if token in self.ids:
            return Value(self.ids[token])
        near = hint(token, {*self.ids, *self.parameters})
        raise ValueError(f'"{token}" is neither a metric of {self.subject.name} nor a parameter of this step{near}')

    def number(self, token: str) -> Number:
        """Read a number that may have a unit."""
        if token.lstrip("-").replace(".", "", 1).isdigit():
            return Number(float(token))
        try:
            return number(token)
        except ValueError:
            raise ValueError(f'"{token}" is no number; units are {" ".join(SECONDS)} and {" ".join(BYTES)}') from None

    def function(self, name: str) -> Operand:
        """Parse the arguments of increase, age or absent, after the bracket."""
        token = self.next("a metric")
        if token not in self.ids:
            raise ValueError(f'"{token}" is no metric of {self.subject.name}{hint(token, self.ids)}')
        metric = self.ids[token]
        operand: Operand = Absent(metric)
        if name == "age":
            if not metric.id.endswith("timestamp_seconds"):
                raise ValueError(f"age({metric.id}): expected a metric that tells a time (..._timestamp_seconds)")
            operand = Age(metric)
        elif name == "increase":
            if metric.kind is not Kind.COUNTER:
                raise ValueError(f"increase({metric.id}, ...): expected a counter (..._total)")
            operand = Increase(metric, self.window())
        elif name == "absent" and not self.subject.info:
            raise ValueError(f"absent({metric.id}): {self.subject.name} has no info family that would say which targets exist")
        if not self.take(")"):
            raise ValueError(f'expected ")" after {name}({metric.id}')
        return operand

    def window(self) -> float:
        """Parse `, 10m`."""
        if not self.take(","):
            raise ValueError("increase(id, window): the window is missing")
        token = self.next("a duration")
        if not DURATION.fullmatch(token) or not duration(token):
            raise ValueError("increase(id, window): expected a duration with a unit as the window, such as 10m")
        return float(duration(token))
