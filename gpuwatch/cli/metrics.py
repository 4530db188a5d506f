"""List every metric that gpuwatch knows: its name for Prometheus and its id for rules and history.

example: gpuwatch metrics --subject gpu
"""

import argparse
import json

from gpuwatch import catalogue
from gpuwatch.model.metric import Metric


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--subject", choices=sorted(catalogue.SUBJECTS), help="only metrics of this subject")


def run(args: argparse.Namespace) -> int:
    """Print the catalogue."""
    chosen = [metric for metric in catalogue.METRICS if not metric.internal and args.subject in (None, metric.subject.name)]
    if args.json:
        print(json.dumps([facts(metric) for metric in chosen], indent=1))
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
