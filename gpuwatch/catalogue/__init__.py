"""The numbers: one declaration a metric, in the file of its subject. Add a metric here and its reader in each source.

Families, history columns, headings, docs and the names that rules may use all come from these declarations.
"""

from collections.abc import Iterator
from types import MappingProxyType, ModuleType

from gpuwatch.catalogue import derived, disk, events, gpu, host, interconnect, memory, mig, own, process
from gpuwatch.model.metric import Members, Metric, Subject

MODULES = (gpu, interconnect, memory, mig, disk, host, derived, events, own, process)


def declared(module: ModuleType) -> Iterator[Metric]:
    """Yield the metrics of one file, in their order."""
    for value in vars(module).values():
        if isinstance(value, Metric):
            yield value
        elif isinstance(value, Members):
            yield from value.values()


METRICS: tuple[Metric, ...] = tuple(dict.fromkeys(metric for module in MODULES for metric in declared(module)))
SUBJECTS: MappingProxyType[str, Subject] = MappingProxyType(
    {value.name: value for module in MODULES for value in vars(module).values() if isinstance(value, Subject)}
)
BY_ID: MappingProxyType[tuple[str, str], Metric] = MappingProxyType(
    {(metric.subject.name, metric.id): metric for metric in METRICS}
)


def of(subject: Subject) -> tuple[Metric, ...]:
    """Return the metrics of one subject, in their order."""
    return tuple(metric for metric in METRICS if metric.subject is subject)


def find(subject: Subject, identifier: str) -> Metric:
    """Return the metric with this id; raises KeyError naming both where there is none."""
    try:
        return BY_ID[subject.name, identifier]
    except KeyError:
        raise KeyError(f"{subject.name} has no metric {identifier!r}") from None
