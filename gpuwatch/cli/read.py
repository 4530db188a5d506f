"""Read one source once, in a worker of its own, and print what it gave as JSON.

Exit code 1: the source gave nothing, or something it looked at is in trouble; the reason is in the output.

example: gpuwatch read nvml
"""

import argparse
import json
import sys
from typing import Any

from gpuwatch.cli import config as configuration
from gpuwatch.model.reading import Absence, Reading
from gpuwatch.sampling.once import once
from gpuwatch.sources.worker import SOURCES


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("source", choices=sorted(SOURCES))
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="give up after this long (default: %(default)s)"
    )
    configuration.add_config(parser)


def run(args: argparse.Namespace) -> int:
    """Read and print it."""
    found = once([args.source], configuration.chosen(args).config, args.timeout)
    print(json.dumps([shown(reading) for reading in found.readings], indent=1))
    if found.problem:
        print(f"gpuwatch read {args.source}: {found.problem}", file=sys.stderr)
    if not found.readings and not found.problem:
        print(f"gpuwatch read {args.source}: this host has nothing that this source reads", file=sys.stderr)
    faults = any(reading.fault for reading in found.readings)
    return int(bool(found.problem) or faults or not found.readings)


def shown(reading: Reading) -> dict[str, Any]:
    """Return one reading as plain data; absent metrics are grouped by why they are."""
    absent: dict[Absence, list[str]] = {}
    for metric, why in reading.absent.items():
        absent.setdefault(why, []).append(metric.id)
    return {
        "source": reading.source,
        "tier": reading.tier.value,
        "subject": reading.target.subject.name,
        "key": reading.target.key,
        "labels": dict(reading.target.labels),
        "info": dict(reading.target.info),
        "at": reading.at,
        "took": round(reading.took, 6),
        "fault": {"kind": reading.fault.kind, "words": reading.fault.words, "code": reading.fault.code}
        if reading.fault
        else None,
        "values": {metric.id: value for metric, value in reading.values.items()},
        "absent": {why.value: names for why, names in absent.items()},
    }
