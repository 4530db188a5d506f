"""Read one source once and print what it gave as JSON; what happened (kernel log) follows behind the readings.

It needs no daemon and no rights: what you may not see is left out, with the reason. `kernel` is the kernel log since the boot,
`jobs` whose processes are on the GPUs; with `network` go the counters of its interfaces, which `host` reads.

Exit code 1: the source gave nothing, or something it looked at is in trouble; the reason is in the output. An empty kernel log is
no trouble.

example: gpuwatch read nvml
"""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from gpuwatch.catalogue.host import NETWORK
from gpuwatch.cli import config as configuration
from gpuwatch.cli import usage
from gpuwatch.cli.read_local import EVENTS, LOCAL, Local, read
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Subject
from gpuwatch.model.order import Words, place_of
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.sampling.once import Once, once
from gpuwatch.sources.worker import SOURCES

TIERS = tuple(Tier)
HOST = "host"
COUNTED: Mapping[str, Subject] = {"network": NETWORK}  # a source that is called as its things, whose counters HOST reads


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    names = sorted((*SOURCES, *LOCAL))
    parser.add_argument("source", type=usage.one_of(names), metavar="SOURCE", help=f"one of {', '.join(names)}")
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="give up after this long (default: %(default)s)"
    )
    configuration.add_config(parser)


def run(args: argparse.Namespace) -> int:
    """Read and print it."""
    config = configuration.chosen(args).config
    found: Once | Local
    if args.source in LOCAL:
        found = read(args.source, config, args.timeout)
        happened = [told(event) for event in found.events]
        if found.left_out:
            print(f"gpuwatch read {args.source}: {found.left_out} events before the last {EVENTS} are left out", file=sys.stderr)
    else:
        subject, happened = COUNTED.get(args.source), []
        found = once([args.source, *([HOST] if subject else [])], config, args.timeout)
        mine = [one for one in found.readings if one.source == args.source or one.target.subject is subject]
        found = replace(found, readings=mine)
    print(json.dumps([*map(shown, sorted(found.readings, key=order)), *happened], indent=1))
    if found.problem:
        print(f"gpuwatch read {args.source}: {found.problem}", file=sys.stderr)
    is_empty_log = args.source == "kernel" and not found.readings
    if not found.readings and not found.problem:
        words = "the kernel log is empty" if is_empty_log else "this host has nothing that this source reads"
        print(f"gpuwatch read {args.source}: {words}", file=sys.stderr)
    faults = any(reading.fault for reading in found.readings)
    return int(bool(found.problem) or faults or not (found.readings or is_empty_log))


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


def order(reading: Reading) -> tuple[str, tuple[Words, ...], int]:
    """Return what to sort by: things as people count them, whichever of them has answered first."""
    return reading.target.subject.name, place_of(reading.target.labels), TIERS.index(reading.tier)


def told(event: Event) -> dict[str, Any]:
    """Return one event as plain data."""
    return {
        "source": event.source,
        "event": event.kind,
        "severity": event.severity.value,
        "subject": event.subject,
        "key": event.key,
        "at": event.at,
        "code": event.code,
        "count": event.count,
        "facts": dict(event.facts),
        "words": event.words,
    }
