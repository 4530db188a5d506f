"""[sources]: where numbers come from; every option, its default and its limits."""

from typing import Literal

from gpuwatch.config.section import Period, Section
from gpuwatch.model.quantity import Duration


class Source(Section, frozen=True):
    """What every source has: whether it is on, its three periods, and how long it may take."""

    enabled: bool = True
    every: Period = Duration(1)
    every_normal: Period = Duration(10)
    every_slow: Period = Duration(60)
    deadline: Period = Duration(5)


class Nvml(Source, frozen=True):
    """How GPUs are read. `backoff` is the longest pause before a worker that keeps dying is started again.

    A worker that answers for as long counts as well again.
    """

    backoff: Period = Duration(60)
    per_link: bool = False  # each NVLink by itself on the page, with its bytes and errors: up to 162 series a GPU


class Jobs(Source, frozen=True):
    """How the processes on the GPUs and their jobs are looked at; the fast tier is the CPU of those that are known."""

    every: Period = Duration(2)


class Smart(Section, frozen=True):
    """How SMART is read: by smartctl, which needs root or capabilities."""

    enabled: bool = True
    every: Period = Duration(600)
    deadline: Period = Duration(30)  # for one disk
    smartctl: str = "smartctl"  # program name or path
    standby: bool = True  # leave sleeping rotational disks asleep


class Probe(Section, frozen=True):
    """The short-lived worker that touches devices and mounts: PCI, file systems, sensors."""

    enabled: bool = True
    every: Period = Duration(60)
    deadline: Period = Duration(10)  # for one thing it looks at


class Dcgm(Section, frozen=True):
    """How DCGM is read: the page of a dcgm-exporter, or `dcgmi dmon` where only a host engine runs. None is ever started."""

    enabled: bool = False
    mode: Literal["exporter", "dmon"] = "exporter"
    url: str = "http://127.0.0.1:9400/metrics"
    dcgmi: str = "dcgmi"  # program name or path
    every: Period = Duration(30)  # as a dcgm-exporter collects; values that it repeats keep the time of the first
    deadline: Period = Duration(10)  # for the whole page, or for one call of dcgmi


class Kernel(Section, frozen=True):
    """How often the kernel log is looked at."""

    enabled: bool = True
    every: Period = Duration(1)
    deadline: Period = Duration(5)


class Simulated(Section, frozen=True):
    """A simulated host in place of the real one, driven by a scenario file (`gpuwatch demo`)."""

    enabled: bool = False
    scenario: str = ""  # default: the shipped demo
    every: Period = Duration(1)
    every_normal: Period = Duration(10)
    every_slow: Period = Duration(60)
    deadline: Period = Duration(5)


class Sources(Section, frozen=True):
    """Where numbers come from."""

    nvml: Nvml = Nvml()
    host: Source = Source()
    jobs: Jobs = Jobs()
    kernel: Kernel = Kernel()
    probe: Probe = Probe()
    smart: Smart = Smart()
    dcgm: Dcgm = Dcgm()
    simulated: Simulated = Simulated()
