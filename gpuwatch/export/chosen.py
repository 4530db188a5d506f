"""What Prometheus' page leaves out unless the configuration asks for it. The JSON always has all."""

from collections.abc import Mapping
from types import MappingProxyType

from gpuwatch.catalogue.details import DETAILS
from gpuwatch.catalogue.interconnect import NVLINK
from gpuwatch.catalogue.process import PROCESS, PROCESS_GPU
from gpuwatch.config import Config
from gpuwatch.model.metric import Metric, Subject

ALL_DETAILS = "[http] details"
SWITCHES: Mapping[Subject, str] = MappingProxyType(
    {NVLINK: "[sources.nvml] per_link", PROCESS: "[processes] series", PROCESS_GPU: "[processes] series"}
)


def left_out(config: Config) -> frozenset[Subject | Metric]:
    """Return the subjects and metrics that are not on the page."""
    on = {
        "[sources.nvml] per_link": config.sources.nvml.per_link,
        "[processes] series": config.processes.series,
    }
    subjects = [subject for subject, switch in SWITCHES.items() if not on[switch]]
    return frozenset((*subjects, *(() if config.http.details else DETAILS)))


def switch(metric: Metric) -> str:
    """Return the option that puts a metric on the page, "" for one that is always there."""
    return SWITCHES.get(metric.subject) or (ALL_DETAILS if metric in DETAILS else "")
