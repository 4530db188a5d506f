"""What Prometheus' page leaves out unless the configuration asks for it. The JSON has all that is read."""

from collections.abc import Mapping
from types import MappingProxyType

from gpuwatch.catalogue.details import DETAILS
from gpuwatch.catalogue.interconnect import LINK_ERRORS, LINK_RECEIVE, LINK_TRANSMIT, NVLINK
from gpuwatch.catalogue.process import PROCESS, PROCESS_GPU
from gpuwatch.config import Config
from gpuwatch.model.metric import Metric, Subject

ALL_DETAILS, PER_LINK = "[http] details", "[sources.nvml] per_link"
SWITCHES: Mapping[Subject, str] = MappingProxyType(
    {NVLINK: PER_LINK, PROCESS: "[processes] series", PROCESS_GPU: "[processes] series"}
)
READ_WITH: Mapping[Metric, str] = MappingProxyType(dict.fromkeys((LINK_TRANSMIT, LINK_RECEIVE, *LINK_ERRORS.values()), PER_LINK))


def left_out(config: Config) -> frozenset[Subject | Metric]:
    """Return the subjects and metrics that are not on the page."""
    on = {
        PER_LINK: config.sources.nvml.per_link,
        "[processes] series": config.processes.series,
    }
    subjects = [subject for subject, switch in SWITCHES.items() if not on[switch]]
    return frozenset((*subjects, *(() if config.http.details else DETAILS)))


def switch(metric: Metric) -> str:
    """Return the option that puts a metric on the page, "" for one that is always there."""
    return SWITCHES.get(metric.subject) or (ALL_DETAILS if metric in DETAILS else "")


def read_with(metric: Metric) -> str:
    """Return the option without which a metric is not even read, "" for one that needs none."""
    return READ_WITH.get(metric, "")
