"""The page of every option, from its declaration: key, kind, default and one sentence. A new option needs its sentence here."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from gpuwatch.config.options import Config
from gpuwatch.config.section import Least, Section
from gpuwatch.model.quantity import BYTES, SECONDS, Duration, Size, in_units

ELSEWHERE = ("rules", "receivers")  # their rooms convert them, and have pages of their own
NAMED = {"gpus": 'gpus."ADDRESS"'}  # tables whose name is the operator's

TABLES: Mapping[str, str] = MappingProxyType(
    {
        "http": "Who may ask, and where. More in [http.md](http.md).",
        "host": "What this host is called in messages and in the labels of alerts.",
        "gpus": 'What you call a GPU, by its PCI address in any spelling: `[gpus."0000:65:00.0"]`.',
        "inventory": "How many GPUs this host should have.",
        "store": "Where history and alert memory are kept, for how long, and up to which size.",
        "paths": "Where the host's trees are, for a daemon in a container (`/host/proc`, ...) as node_exporter has them.",
        "sources": "",
        "sources.nvml": "The GPUs, read by the process `gpuwatch-nvml` through the driver's NVML library.",
        "sources.host": "CPU, memory, pressure, network and RAID, from `/proc` and `/sys`.",
        "sources.jobs": "The processes on the GPUs, whose they are, and the loaders that feed them. It needs `[sources.nvml]`.",
        "sources.kernel": "The kernel log: Xids, falls from the bus, AER, memory kills, disks.",
        "sources.probe": "The short-lived process that touches devices and mounts: PCI, file systems, sensors, InfiniBand.",
        "sources.smart": "SMART of disks, read by smartctl, which needs root or the capabilities of the unit.",
        "sources.dcgm": "DCGM beside NVML: SM activity, occupancy, pipes, DRAM, PCIe and NVLink rates of GPUs from Volta on,"
        " and of MIG instances.\n"
        "gpuwatch starts no host engine: with `exporter` it reads the page of a dcgm-exporter that runs, with `dmon` it calls\n"
        "`dcgmi dmon`, where only `nv-hostengine` runs. Where NVML has a number, that one counts. GPUs that only DCGM tells of\n"
        "(the exporter may be another host's) are not counted as this host's.\n\n"
        '```toml\n[sources.dcgm]\nenabled = true\nmode = "exporter"                       # or "dmon"\n'
        'url = "http://127.0.0.1:9400/metrics"   # of the dcgm-exporter\n```',
        "sources.simulated": "A simulated host in place of the real one, as `gpuwatch demo` has it: nothing else is read then.",
        "processes": "Processes on GPUs: how many are looked at, and how much of them is on Prometheus' page.",
        "privacy": "What is told of people, in metrics, history and messages.",
        "routes": "Which receivers hear of which alerts, the first that matches; without any, every receiver hears of warning and"
        " above.\nEach is a `[[routes]]` table; more in [receivers.md](receivers.md).",
    }
)

TIERS = {
    "enabled": "Whether it is read.",
    "every": "How often what changes all the time is read.",
    "every_normal": "How often what changes now and then is read.",
    "every_slow": "How often what hardly changes is read.",
    "deadline": "How long one reading may take.",
}

# A sentence for each option; beside it, where the default is empty, what holds then.
SENTENCES: Mapping[str, str | tuple[str, str]] = MappingProxyType(
    {
        "http.listen": 'The TCP address, `HOST:PORT`; `""` switches TCP off.',
        "http.socket": ("The Unix socket.", "`gpuwatch.sock` in the runtime folder"),
        "http.web_config": ("A file in Prometheus' web-config format, for TLS and passwords.", "neither"),
        "http.details": "Puts what hardly anybody looks at on the page, too; [metrics.md](metrics.md) marks it.",
        "host.name": ("What this host is called.", "the host name"),
        "host.labels": ("Labels that every alert of this host has; names that alerts have of themselves are refused.", "none"),
        "gpus.label": "Stands in messages and in `status`, such as `slot 3`.",
        "inventory.gpus": ("How many GPUs there should be: fewer are an alert.", "learned"),
        "store.url": (
            "The history: `sqlite:////PATH`, with four slashes; or `postgresql://USER@HOST/DATABASE`, with the extra `postgres`.",
            "`gpuwatch.db` in the state folder",
        ),
        "store.state": ("The file of the alert memory.", "`state.db` beside the history"),
        "store.max_size": ("How large the history may become.", "the smaller of 2 GiB and 5 % of the file system"),
        "store.keep_raw": "How long the values of every 10 s are kept; the size wins.",
        "store.keep_incidents": "How long ended alerts and events are kept.",
        "paths.proc": "The host's `/proc`.",
        "paths.sys": "The host's `/sys`.",
        "paths.dev": "The host's `/dev`, with its NVIDIA nodes and `kmsg`.",
        "paths.root": "The host's `/`, for what lies in `/etc`, `/var` and `/boot`.",
        **{f"sources.{name}.{key}": words for name in ("nvml", "host", "jobs", "simulated") for key, words in TIERS.items()},
        "sources.nvml.deadline": "How long one reading of all GPUs may take; a GPU that takes longer is hung.",
        "sources.nvml.backoff": "The longest pause before a worker that keeps dying is started again.",
        "sources.nvml.per_link": "Puts each NVLink by itself on the page, with bytes and errors: up to 162 series a GPU.",
        "sources.jobs.every": "How often the CPU of processes that are known is read.",
        "sources.jobs.every_normal": "How often it is looked who is on the GPUs.",
        "sources.kernel.enabled": TIERS["enabled"],
        "sources.kernel.every": "How often the log is looked at.",
        "sources.kernel.deadline": TIERS["deadline"],
        "sources.probe.enabled": "Whether PCI, file systems and sensors are read.",
        "sources.probe.every": "How often they are read.",
        "sources.probe.deadline": "How long one thing may take; what takes longer is left out until its process is gone.",
        "sources.smart.enabled": TIERS["enabled"],
        "sources.smart.every": "How often every disk is read.",
        "sources.smart.deadline": "How long one disk may take.",
        "sources.smart.smartctl": "The program, by name or path.",
        "sources.smart.standby": "Leaves sleeping rotational disks asleep.",
        "sources.dcgm.enabled": TIERS["enabled"],
        "sources.dcgm.mode": "Where from: the page of a dcgm-exporter, or `dcgmi dmon`.",
        "sources.dcgm.url": "The page of the dcgm-exporter, without a password.",
        "sources.dcgm.dcgmi": "The program for `dmon`, by name or path.",
        "sources.dcgm.every": "How often it is read; a dcgm-exporter collects every 30 s.",
        "sources.dcgm.deadline": "How long the whole page, or one call of dcgmi, may take.",
        "sources.simulated.scenario": ("The file that says what happens: simulation.md.", "that of the demo"),
        "processes.series": "Gives each process series of its own on the page; history always has them.",
        "processes.limit": "How many processes are looked at each by itself: those with the most GPU memory, and four times as"
        " many loaders. Users and jobs are told with all of theirs.",
        "processes.users": "How many users have series of their own, for each GPU; the rest is `other`.",
        "processes.jobs": "How many jobs have series of their own, for each GPU; the rest is `other`.",
        "privacy.users": "Whose a process is: by name, by number, or not at all. With the last two"
        " a digest stands in place of a name that may say it, as in `jupyter@ann.service`; containers, pods and"
        " units of root and of system users keep the names that those who run them gave.",
        "routes.receivers": "Names of receivers.",
        "routes.match": (
            "Labels and values of the alert, all of which must hold; `rule` and `severity` count as labels.",
            "every alert",
        ),
        "routes.min_severity": 'The least severity: `"info"`, `"warning"` or `"critical"`.',
        "routes.continue": "Goes on with the next route where this one matches.",
    }
)


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from ("# Configuration", "")
    yield "Made by `gpuwatch config options`. Without any file everything works. As root it is `/etc/gpuwatch/gpuwatch.toml` (a"
    yield "user's: `~/.config/gpuwatch/gpuwatch.toml`), and `conf.d/*.toml` beside it is merged in name order. `gpuwatch config"
    yield "check` says what is wrong, `gpuwatch config show` what is in force. A changed file is taken up by a restart."
    yield ""
    yield f"A duration is a number with a unit ({', '.join(SECONDS)}), a size one with {', '.join(BYTES)}; both are strings:"
    yield '`every = "10s"`. Rules (`[rules.NAME]`) are in the README, `[[receivers]]` in [receivers.md](receivers.md).'
    for table, kind in tables(Config, ""):
        name = NAMED.get(table, table)
        yield from ("", f"## {'[[routes]]' if table == 'routes' else f'[{name}]'}", "", TABLES[table])
        yield from ("", "| option | kind | default | |", "|---|---|---|---|")
        yield from (row(f"{table}.{field.encode_name}", field, hint) for field, hint in options(kind))


def tables(kind: type[Section], head: str) -> Iterator[tuple[str, type[Section]]]:
    """Yield every table with options of its own, and what it is made of."""
    for field, hint in fields(kind):
        if field.encode_name in ELSEWHERE:
            continue
        section = section_of(hint)
        if section is None:
            continue
        name = f"{head}{field.encode_name}"
        if any(options(section)):
            yield name, section
        yield from tables(section, f"{name}.")


def options(kind: type[Section]) -> Iterator[tuple[msgspec.structs.FieldInfo, Any]]:
    """Yield the fields of a table that are no tables."""
    return ((field, hint) for field, hint in fields(kind) if section_of(hint) is None)


def fields(kind: type[Section]) -> Iterator[tuple[msgspec.structs.FieldInfo, Any]]:
    """Yield the fields of a table with what they may be."""
    hints = get_type_hints(kind, include_extras=True)
    return ((field, hints[field.name]) for field in msgspec.structs.fields(kind))


def section_of(hint: Any) -> type[Section] | None:
    """Return the table that a field is, or holds by name or in an array; None for an option."""
    if isinstance(hint, type) and issubclass(hint, Section):
        return hint
    return next((found for part in get_args(hint) if (found := section_of(part)) is not None), None)


def row(key: str, field: msgspec.structs.FieldInfo, hint: Any) -> str:
    """Return the line of one option."""
    words = SENTENCES[key]
    sentence, empty = (words, "") if isinstance(words, str) else words
    return f"| `{field.encode_name}` | {kind_of(hint)} | {empty or default_of(field)} | {sentence} |"


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """Return the default as TOML writes it; the option is required where it has none."""
    if field.required:
        return "required"
    value = field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{amount(value)}`" if isinstance(value, (Duration, int)) else f'`"{value}"`'


def amount(value: float) -> str:
    """Return a duration with the largest unit that it is a whole number of; a count as it is."""
    if not isinstance(value, Duration):
        return str(value)
    return f'"{in_units(value)}"'


def kind_of(hint: Any) -> str:
    """Say what an option may be."""
    limits = getattr(hint, "__metadata__", ())
    kind = get_args(hint)[0] if limits else hint
    if get_origin(kind) in (Union, UnionType):
        inner = next(part for part in get_args(kind) if part is not type(None))
        limits, kind = (
            (*limits, *getattr(inner, "__metadata__", ())),
            get_args(inner)[0] if hasattr(inner, "__metadata__") else inner,
        )
    if get_origin(kind) is Literal:
        return " or ".join(f'`"{word}"`' for word in get_args(kind))
    names = {bool: "true or false", str: "text", int: "number", Duration: "duration", Size: "size"}
    name = names.get(kind) or ("list of texts" if get_origin(kind) is list else "table of texts")
    for limit in limits:
        if isinstance(limit, Least):
            name += f", at least {limit.text}"
        elif isinstance(limit, msgspec.Meta):
            name += f" from {limit.ge} to {limit.le}"
    return name
