"""gpuwatch: the monitor for Linux GPU servers."""

__version__ = "0.1.0"
