"""List every metric that gpuwatch knows: its name for Prometheus and its id for rules and history.

example: gpuwatch metrics --subject gpu
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from gpuwatch import catalogue
from gpuwatch.model.metric import Metric


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print the page docs/metrics.md")
    parser.add_argument("--subject", choices=sorted(catalogue.SUBJECTS), help="only metrics of this subject")


def run(args: argparse.Namespace) -> int:
    """Print the catalogue."""
    chosen = [metric for metric in catalogue.METRICS if not metric.internal and args.subject in (None, metric.subject.name)]
    if args.json:
        print(json.dumps([facts(metric) for metric in chosen], indent=1))
        return 0
    if args.markdown:
        print("\n".join(page(chosen)))
        return 0
    for metric in chosen:
        print(f"{series(metric)}\n    {metric.subject.name}.{metric.id}, {metric.kind.value}. {metric.help}")
    return 0


def series(metric: Metric) -> str:
    """Return the family with its labels, as a query would name it."""
    labels = [*(f"{name}=..." for name in metric.subject.labels), *(f'{name}="{value}"' for name, value in metric.labels)]
    return metric.family + (f"{{{', '.join(labels)}}}" if labels else "")


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
    }


def page(metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield the lines of docs/metrics.md: one table a subject, one row a family."""
    yield "# Metrics"
    yield ""
    yield "Made by `gpuwatch metrics --markdown`. A series is absent where its number is not known: never 0, never the last one."
    yield "The id of a metric, which rules and history use, is its name without `gpuwatch_` and subject, followed by its label"
    yield 'values: `gpuwatch_gpu_temperature_celsius{sensor="core"}` is `temperature_celsius_core` of the subject `gpu`.'
    for subject in dict.fromkeys(metric.subject for metric in metrics):
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
    return f"| `{family}` | {alike[0].kind.value} | {labels} | {alike[0].help} |"
