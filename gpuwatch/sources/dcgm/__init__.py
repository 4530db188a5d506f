"""DCGM: the profiling numbers of GPUs from Volta on, and a second hand for what NVML gives.

Two ways, by `[sources.dcgm] mode`: `exporter` reads the page of a dcgm-exporter (a thread of the daemon: one bounded GET, no
device is touched), `dmon` runs `dcgmi` as a child (in a short-lived worker: it talks to a host engine that may hang). Neither
starts a host engine. `fields` says what DCGM's fields mean, `page` and `table` understand what the two print, `told` makes
Readings of it. The sticky Xid gauge of DCGM (field 230) is the last code for ever, and so never an event.
"""

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.sources.dcgm.dmon import Dmon
from gpuwatch.sources.dcgm.exporter import Exporter
from gpuwatch.sources.source import Source


def source(config: Config, clock: Clock) -> Source:
    """Return DCGM as a source, in the way that is configured."""
    return Dmon(config, clock) if config.sources.dcgm.mode == "dmon" else Exporter(config, clock)
