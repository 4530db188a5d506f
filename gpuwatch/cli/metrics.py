"""List every metric that gpuwatch knows: its name for Prometheus and its id for rules and history; and what things are (`_info`).

example: gpuwatch metrics --subject gpu
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from gpuwatch import catalogue
from gpuwatch.cli import usage
from gpuwatch.export.chosen import read_with, switch
from gpuwatch.model.metric import Metric, Subject


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print the page docs/metrics.md")
    names = sorted(catalogue.SUBJECTS)
    subject = usage.one_of(names)
    parser.add_argument("--subject", type=subject, metavar="SUBJECT", help=f"only metrics of this one: {', '.join(names)}")


def run(args: argparse.Namespace) -> int:
    """Print the catalogue."""
    chosen = [metric for metric in catalogue.METRICS if not metric.internal and args.subject in (None, metric.subject.name)]
    known = [subject for subject in catalogue.SUBJECTS.values() if subject.info and args.subject in (None, subject.name)]
    if args.json:
        print(json.dumps([*map(facts_of_info, known), *map(facts, chosen)], indent=1))
        return 0
    if args.markdown:
        print("\n".join(page(chosen, known)))
        return 0
    for subject in known:
        labels = written([f"{name}=..." for name in (*subject.labels, *subject.info)])
        print(f"{subject.head}_info{labels}\n    info. {subject.help}")
    for metric in chosen:
        print(f"{series(metric)}\n    {metric.subject.name}.{metric.id}, {metric.kind.value}. {metric.help}")
    return 0


def series(metric: Metric) -> str:
    """Return the family with its labels, as a query would name it."""
    labels = [*(f"{name}=..." for name in metric.subject.labels), *(f'{name}="{value}"' for name, value in metric.labels)]
    return metric.family + written(labels)


def written(labels: Sequence[str]) -> str:
    """Return labels in their brackets, "" for none."""
    return f"{{{', '.join(labels)}}}" if labels else ""


def facts_of_info(subject: Subject) -> dict[str, object]:
    """Return the `_info` family of a subject as plain data: it has no id, since its value is always 1."""
    return {
        "family": f"{subject.head}_info",
        "labels": {},
        "target_labels": [*subject.labels, *subject.info],
        "subject": subject.name,
        "id": None,
        "unit": "",
        "kind": "info",
        "keep": None,
        "help": subject.help,
        "needs": "",
    }


def facts(metric: Metric) -> dict[str, object]:
    """Return one metric as plain data."""
    return {
        "family": metric.family,
        "labels": dict(metric.labels),
        "target_labels": list(metric.subject.labels),
        "subject": metric.subject.name,
        "id": metric.id,
        "unit": metric.unit,
        "kind": metric.kind.value,
        "keep": metric.keep.value,
        "help": metric.help,
        "needs": switch(metric),
    }


def page(metrics: Sequence[Metric], known: Sequence[Subject]) -> Iterator[str]:
    """Yield the lines of docs/metrics.md: one table a subject, one row a family."""
    yield "# Metrics"
    yield ""
    yield "Made by `gpuwatch metrics --markdown`. A series is absent where its number is not known: never 0, never the last one."
    yield "The id of a metric, which rules and history use, is its name without `gpuwatch_` and subject, followed by its label"
    yield 'values: `gpuwatch_gpu_temperature_celsius{sensor="core"}` is `temperature_celsius_core` of the subject `gpu`.'
    yield "An info family is always 1, and its labels say what a thing is. Beside these the page has what the library"
    yield "prometheus_client says of the daemon's process: `python_info`, and `process_*` (CPU, memory, open files, start)."
    yield ""
    yield "What needs an option to be on the page is in the JSON, in the history and for rules without it. It is left out so"
    yield "that a server of 8 GPUs has under 1,600 series: another series says it, or it is a fact of the model, or nobody acts"
    yield "on it. What is read only with an option is nowhere without it."
    for subject in dict.fromkeys([*(metric.subject for metric in metrics), *known]):
        yield from ("", f"## {subject.name}", "")
        if subject.labels:
            yield from (f"Labels: {', '.join(f'`{label}`' for label in subject.labels)}.", "")
        yield from ("| name | type | labels | |", "|---|---|---|---|")
        if subject.info:
            yield f"| `{subject.head}_info` | info | {', '.join(f'`{name}`' for name in subject.info)} | {subject.help} |"
        for family, alike in groupby(
            (metric for metric in metrics if metric.subject is subject), key=lambda metric: metric.family
        ):
            yield row(family, list(alike))


def row(family: str, alike: Sequence[Metric]) -> str:
    """Return one row: a family with the values that its labels have."""
    values: dict[str, dict[str, None]] = {}
    for metric in alike:
        for name, value in metric.labels:
            values.setdefault(name, {})[value] = None
    labels = "; ".join(f"`{name}`: {', '.join(found)}" for name, found in values.items())
    return f"| `{family}` | {alike[0].kind.value} | {labels} | {alike[0].help}{needed(alike)} |"


def needed(alike: Sequence[Metric]) -> str:
    """Return the sentence that says which of a family's members need an option to be on the page, "" for none."""
    found: dict[str, list[Metric]] = {}
    for metric in alike:
        if option := switch(metric):
            found.setdefault(option, []).append(metric)
    sentences = []
    for option, some in found.items():
        which = "" if len(some) == len(alike) else f", {', '.join('+'.join(value for _, value in one.labels) for one in some)}"
        what = "Read only with" if all(read_with(one) for one in some) else "Needs"
        sentences.append(f" {what} `{option}`{which}.")
    return "".join(sentences)
