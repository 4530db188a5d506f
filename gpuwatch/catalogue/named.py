"""Which metrics of the history a person means by a name."""

from difflib import get_close_matches

from gpuwatch.catalogue import METRICS, SUBJECTS
from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.metric import Metric, Subject

SPELLINGS = 5  # of one metric
LONGEST = 100  # characters of a name that are compared with ours: the time grows with their square

FACTS = frozenset(  # the names of families that hold no number
    name
    for one in SUBJECTS.values()
    if one.info
    for name in (f"{one.head}_info", f"{one.head}_info".removeprefix("gpuwatch_"), f"{one.name}.info")
)


class UnknownMetricError(Exception):
    """No metric that is kept is called so; the words say what comes nearest, to a person."""


def named(name: str) -> tuple[Metric, ...]:
    """Return the metrics of one subject that a name means; raises UnknownMetricError.

    A name is an id (`temperature_celsius_core`), or a family, which means all of its members (`gpuwatch_gpu_temperature_celsius`,
    `gpu_temperature_celsius`, `temperature_celsius`). Where several subjects have it, the GPU's are meant, or those of the
    subject before it (`mig.memory_used_bytes`).
    """
    subject, _, rest = name.rpartition(".")
    meant: dict[Subject, list[Metric]] = {}
    for metric in METRICS:
        if metric.family in {name, f"gpuwatch_{name}"} or (
            subject in {"", metric.subject.name} and rest in {metric.id, stem(metric)}
        ):
            meant.setdefault(metric.subject, []).append(metric)
    kept = {
        one: tuple(metric for metric in metrics if not metric.internal)
        for one, metrics in meant.items()
        if not all(metric.internal for metric in metrics)
    }
    if not kept and name in FACTS:
        raise UnknownMetricError(f"{name!r} is text and has no history: what it is now is on /metrics and in /api/v1/view")
    if not kept:
        raise UnknownMetricError(f"{name[:LONGEST]!r} feeds detectors and is not kept" if meant else strange(name))
    if GPU not in kept and len(kept) > 1:
        choice = ", ".join(f"{one.name}.{rest}" for one in kept)
        raise UnknownMetricError(f"{name[:LONGEST]!r} is of several things: say which, {choice}")
    metrics = kept.get(GPU) or next(iter(kept.values()))
    return tuple(metric for metric in metrics if metric.id == rest) or metrics


def stem(metric: Metric) -> str:
    """Return a family without the head of its subject."""
    return metric.family.removeprefix(f"{metric.subject.head}_")


def strange(name: str) -> str:
    """Say that nothing is called so, and what comes nearest."""
    found: dict[str, Metric] = {}  # by each way to write it, the first of those that share one
    for metric in METRICS:
        if not metric.internal:
            qualified = [f"{metric.subject.name}.{metric.id}"] if "." in name else []
            for word in (metric.id, stem(metric), metric.family, metric.family.removeprefix("gpuwatch_"), *qualified):
                found.setdefault(word, metric)
    nearest: dict[str, str] = {}  # by family, since many spellings of one metric are no choice
    for word in get_close_matches(name[:LONGEST], sorted(found), n=3 * SPELLINGS, cutoff=0.6):
        nearest.setdefault(found[word].family, word)
    near = list(nearest.values())[:3]
    advice = f"did you mean {' or '.join(near)}?" if near else "`gpuwatch metrics` lists all"
    return f"no metric is called {name[:LONGEST]!r}; {advice}"
