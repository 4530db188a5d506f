"""TOML tables -> Rules: the shipped ones in `alerts/`, with the configuration's numbers (`[rules.NAME]`) in them.

Every mistake is a ConfigError that names the file, the key, what was found and what was expected.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from gpuwatch import catalogue
from gpuwatch.catalogue import derived
from gpuwatch.config import ConfigError, read, shown
from gpuwatch.model.alert import Severity
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.nearest import advice, hint
from gpuwatch.rules.judge import compiled
from gpuwatch.rules.language import Condition, Number, Parameter, bind, comparisons, metrics, number, parse
from gpuwatch.rules.rule import Only, Rule, Step
from gpuwatch.rules.step import Timing
from gpuwatch.rules.text import RESOLVED, Template, template

RULE_KEYS = ("subject", "summary", "resolved", "step", "latch", "inhibits", "unless", "enabled")
TIMES = ("for", "window", "clear_for")
STEP_KEYS = ("severity", "when", "clear", "share", "summary", *TIMES)
ONLY_KEYS = ("model", "uuid", "clear", "share", *TIMES, *(severity.value for severity in Severity), "enabled")
SEVERITIES = tuple(severity.value for severity in Severity)
SHORTEST = 10.0  # seconds of a window: one sample speaks for an eighth of it at most (`step`), and a beat takes 1 s


class Place(msgspec.Struct, frozen=True):
    """Where a value was found, for the error that names it."""

    file: str
    key: str

    def at(self, key: str) -> "Place":
        """Return the place of a key below this one."""
        return Place(self.file, f"{self.key}.{key}" if self.key else key)

    def error(self, problem: str) -> ConfigError:
        """Return the error for this place."""
        return ConfigError(self.file, self.key, problem)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """One step as written, before its parameters are filled in."""

    place: Place
    severity: Severity
    when: Condition
    parameters: Mapping[str, Number]
    clear: Mapping[str, Number] = {}
    share: float | None = None
    times: Mapping[str, float] = {}


def load(folder: Path, overrides: Mapping[str, Any], name: str) -> tuple[Rule, ...]:
    """Read every rule in `folder` and apply the tables of `[rules]`, which were found in the file `name`."""
    tables: dict[str, tuple[Place, dict[str, Any]]] = {}
    for file in sorted(folder.glob("*.toml")):
        for rule, table in read(file).items():
            place = Place(str(file), rule)
            if rule in tables:
                raise place.error(f"is already a rule in {tables[rule][0].file}")
            tables[rule] = place, as_table(table, place)
    for rule in overrides:
        if rule not in tables:
            raise Place(name, f"rules.{rule}").error(f"is not a known rule{advice(rule, tables)}")
    rules = (
        build(rule, table, place, as_table(overrides.get(rule, {}), Place(name, f"rules.{rule}")), Place(name, f"rules.{rule}"))
        for rule, (place, table) in tables.items()
    )
    return tuple(rule for rule in rules if rule is not None)


def build(name: str, table: Mapping[str, Any], place: Place, over: Mapping[str, Any], where: Place) -> Rule | None:
    """Build one rule, None where it is switched off."""
    known_keys(table, RULE_KEYS, place)
    subject = catalogue.SUBJECTS.get(text(table, "subject", place))
    if subject is None:
        near = hint(table["subject"], catalogue.SUBJECTS)
        raise place.at("subject").error(f"{shown(table['subject'])} is not a subject{near}")
    steps = table.get("step")
    if not isinstance(steps, list) or not steps:
        raise place.at("step").error("is missing; a rule needs at least one [[step]]")
    drafts = [draft(as_table(step, place), subject, place.at(f"step[{index}]")) for index, step in enumerate(steps)]
    own = [(one, step) for one, step in zip(drafts, steps, strict=True) if "summary" in step]
    if len({step.severity for step in drafts}) < len(drafts):
        raise place.at("step").error("has two steps of the same severity")
    until = latch(table, subject, place)
    fields = known_fields(drafts)
    changed, enabled = override(drafts, {key: over[key] for key in over if key != "only"}, where)
    rule = Rule(
        name=name,
        subject=subject,
        summary=a_template(text(table, "summary", place), fields, place.at("summary")),
        summaries={
            one.severity: a_template(text(step, "summary", one.place), fields, one.place.at("summary")) for one, step in own
        },
        resolved=a_template(text(table, "resolved", place, RESOLVED), fields | {"lasted"}, place.at("resolved")),
        steps=finished(changed, until),
        only=tuple(sorted(onlys(changed, over.get("only", []), until, where.at("only")), key=lambda only: only.width)),
        until=until,
        inhibits=tuple(names(table, "inhibits", place)),
        unless=tuple(named_metric(metric, subject, place.at("unless")) for metric in names(table, "unless", place)),
    )
    return rule if enabled and boolean(table, "enabled", place) else None


def draft(table: Mapping[str, Any], subject: Subject, place: Place) -> Draft:
    """Read one step."""
    severity = text(table, "severity", place)
    if severity not in SEVERITIES:
        raise place.at("severity").error(f"expected one of {', '.join(SEVERITIES)}, found {shown(severity)}")
    parameters = {key: a_number(value, place.at(key)) for key, value in table.items() if key not in STEP_KEYS}
    try:
        when = parse(text(table, "when", place), subject, parameters)
    except ValueError as error:
        raise place.at("when").error(str(error)) from None
    sides = [side for comparison in comparisons(when) for side in (comparison.left, comparison.right)]
    used = {side.name for side in sides if isinstance(side, Parameter)}
    for key in parameters:
        if key not in used:
            raise place.at(key).error(f"is not a known key, and `when` does not name it{hint(key, STEP_KEYS)}")
    empty = Draft(place=place, severity=Severity(severity), when=when, parameters=parameters)
    settings = {key: table[key] for key in ("clear", "share", *TIMES) if key in table}
    return change(empty, settings, place)


def change(step: Draft, settings: Mapping[str, Any], place: Place) -> Draft:
    """Return the step with some of its numbers changed. A clear level keeps its distance from a threshold that moves."""
    parameters, clear, share, times = dict(step.parameters), dict(step.clear), step.share, dict(step.times)
    for key, value in settings.items():
        where = place.at(key)
        if key in TIMES:
            found = a_number(value, where)
            if found.unit != "seconds" or found.value < 0:
                raise where.error(f'expected a duration with a unit, such as "30s", found {shown(value)}')
            if key == "window" and found.value < SHORTEST:
                raise where.error(f"expected at least {SHORTEST:g}s, for a share needs some beats of 1 s, found {shown(value)}")
            times[key] = found.value
        elif key == "share":
            found = a_number(value, where)
            share = found.value
            if found.unit or not 0 < share <= 1:
                raise where.error(f"expected a number over 0 and at most 1, found {shown(value)}")
        elif key in parameters:
            before, after = parameters[key], a_number(value, where)
            if before.unit != after.unit:
                raise where.error(f"expected {'a plain number' if not before.unit else before.unit}, found {shown(value)}")
            parameters[key] = after
            if key in clear and "clear" not in settings:
                clear[key] = Number(clear[key].value + after.value - before.value, after.unit)
        elif key != "clear":
            known = (*parameters, "clear", "share", *TIMES, *SEVERITIES, "only", "enabled")
            raise where.error(f"is not a known key{advice(key, known)}")
    if "clear" in settings:
        clear = clear_levels(settings["clear"], step, place.at("clear"))
    return replace(step, place=place, parameters=parameters, clear=clear, share=share, times=times)


def clear_levels(value: object, step: Draft, place: Place) -> dict[str, Number]:
    """Read `clear`: one number for the only parameter of the step, or a table by parameter."""
    if isinstance(value, dict):
        known_keys(value, tuple(step.parameters), place)
        return {key: a_number(level, place.at(key)) for key, level in value.items()}
    if len(step.parameters) != 1:
        raise place.error(f"the step has {len(step.parameters)} parameters; expected a table that names which one it belongs to")
    return {next(iter(step.parameters)): a_number(value, place)}


def finish(step: Draft, until: Metric | None) -> Step:
    """Check a step as a whole and fill in its numbers."""
    for comparison in comparisons(step.when):
        for side, rising in ((comparison.right, ">"), (comparison.left, "<")):
            if isinstance(side, Parameter) and side.name in step.clear:
                level, threshold = step.clear[side.name].value, step.parameters[side.name].value
                fair = level <= threshold if comparison.op.startswith(rising) else level >= threshold
                if comparison.op in ("==", "!=") or not fair:
                    raise step.place.at("clear").error(f"{level:g} is not on the quiet side of {side.name} = {threshold:g}")
    times = step.times
    if (step.share is None) != ("window" not in times):
        raise step.place.at("share").error("share and window belong together")
    if step.share is not None and ("for" in times or not times["window"]):
        raise step.place.at("for").error("expected either `for`, or `share` and a `window` over 0")
    timing = Timing(
        hold=times.get("for", 0.0),
        share=step.share,
        window=times.get("window", 0.0),
        clear_for=times.get("clear_for", 0.0),
        latched=until is not None,
    )
    when, clears = bind(step.when, step.parameters), bind(step.when, {**step.parameters, **step.clear})
    parameters = {name: found.value for name, found in step.parameters.items()}
    return Step(
        severity=step.severity,
        when=when,
        clears=clears,
        timing=timing,
        parameters=parameters,
        units={name: found.unit for name, found in step.parameters.items() if found.unit},
        clear={name: level.value for name, level in step.clear.items()},
        fires=compiled(when),
        stays=compiled(clears),
    )


def finished(drafts: list[Draft], until: Metric | None) -> tuple[Step, ...]:
    """Finish all steps, the mildest first."""
    return tuple(sorted((finish(step, until) for step in drafts), key=lambda step: step.severity.rank))


def override(drafts: list[Draft], over: Mapping[str, Any], place: Place) -> tuple[list[Draft], bool]:
    """Apply one table of the configuration: plain keys are for the first step, tables are for the step they name."""
    enabled = boolean(over, "enabled", place)
    first = {key: value for key, value in over.items() if key not in (*SEVERITIES, "enabled")}
    changed = [change(drafts[0], first, place) if first else drafts[0], *drafts[1:]]
    for severity in SEVERITIES:
        if severity in over:
            where = place.at(severity)
            index = next((index for index, step in enumerate(drafts) if step.severity.value == severity), None)
            if index is None:
                raise where.error(f"this rule has no such step; it has {', '.join(step.severity.value for step in drafts)}")
            changed[index] = change(changed[index], as_table(over[severity], where), where)
    return changed, enabled


def onlys(drafts: list[Draft], tables: object, until: Metric | None, place: Place) -> list[Only]:
    """Read the `[[only]]` tables: other numbers for a model or a UUID."""
    if not isinstance(tables, list):
        raise place.error("expected tables, as in [[rules.NAME.only]]")
    found = []
    for index, item in enumerate(tables):
        where = Place(place.file, f"{place.key}[{index}]")
        table = as_table(item, where)
        known_keys(table, (*drafts[0].parameters, *ONLY_KEYS), where)
        if not {"model", "uuid"} & set(table):
            raise where.error('expected `model = "*3090*"` or `uuid = "GPU-..."` to say which targets are meant')
        settings = {key: value for key, value in table.items() if key not in ("model", "uuid")}
        if not any(value != {} for value in settings.values()):
            raise where.error("changes nothing: expected another number for these targets, or `enabled = false`")
        changed, enabled = override(drafts, settings, where)
        found.append(
            Only(
                model=text(table, "model", where, "*"),
                uuid=text(table, "uuid", where, "*"),
                steps=finished(changed, until) if enabled else (),
            )
        )
    return found


def known_fields(drafts: list[Draft]) -> frozenset[str]:
    """Return the names that the texts of a rule may use."""
    looked_at = [metric for step in drafts for metric in metrics(step.when)]
    subject = {metric.id for metric in catalogue.of(looked_at[0].subject)} if looked_at else set()
    words = {word for metric in looked_at for word in derived.WORDS.get(metric, ())}
    return frozenset({"where", "value", "threshold"} | subject | words | {name for step in drafts for name in step.parameters})


def latch(table: Mapping[str, Any], subject: Subject, place: Place) -> Metric | None:
    """Read `latch = "until METRIC"`."""
    if "latch" not in table:
        return None
    before, _, metric = text(table, "latch", place).partition("until ")
    if before or not metric:
        raise place.at("latch").error(f'expected "until METRIC", found {shown(table["latch"])}')
    return named_metric(metric.strip(), subject, place.at("latch"))


def named_metric(name: str, subject: Subject, place: Place) -> Metric:
    """Return the metric of this id; `host.ID` and the like name one of another subject that has a single target."""
    head, _, identifier = name.rpartition(".")
    owner = catalogue.SUBJECTS.get(head) if head else subject
    if owner is None or (owner is not subject and owner.labels):
        raise place.error(f'"{head}" is not a subject with a single target')
    ids = {metric.id: metric for metric in catalogue.of(owner)}
    if identifier not in ids:
        raise place.error(f'"{identifier}" is not a metric of {owner.name}{hint(identifier, ids)}')
    return ids[identifier]


def a_template(found: str, fields: frozenset[str], place: Place) -> Template:
    """Check a text."""
    try:
        return template(found, fields)
    except ValueError as error:
        raise place.error(str(error)) from None


def a_number(value: object, place: Place) -> Number:
    """Convert a number."""
    try:
        return number(value)
    except ValueError as error:
        raise place.error(f"{error}, found {shown(value)}") from None


def as_table(value: object, place: Place) -> dict[str, Any]:
    """Return a table; raises ConfigError for anything else."""
    if not isinstance(value, dict):
        raise place.error(f"expected a table, found {shown(value)}")
    return cast("dict[str, Any]", value)


def known_keys(table: Mapping[str, Any], known: tuple[str, ...], place: Place) -> None:
    """Refuse keys that mean nothing."""
    for key in table:
        if key not in known:
            raise place.at(key).error(f"is not a known key{advice(key, known)}")


def text(table: Mapping[str, Any], key: str, place: Place, default: str | None = None) -> str:
    """Return a text; raises ConfigError where it is missing without a default, or no text."""
    value = table.get(key, default)
    if value is None:
        raise place.at(key).error("is missing, and it is required")
    if not isinstance(value, str):
        raise place.at(key).error(f"expected text, found {shown(value)}")
    return value


def boolean(table: Mapping[str, Any], key: str, place: Place) -> bool:
    """Return a switch that is on unless said."""
    value = table.get(key, True)
    if not isinstance(value, bool):
        raise place.at(key).error(f"expected true or false, found {shown(value)}")
    return value


def names(table: Mapping[str, Any], key: str, place: Place) -> list[str]:
    """Return a list of texts, empty unless said."""
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise place.at(key).error(f"expected a list of texts, found {shown(value)}")
    return value
