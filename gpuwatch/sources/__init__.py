"""The hardware: one file (or folder) per library or tool, each a Source (`source.py`).

A new source is a module with `source(config, clock)`, its line in `SOURCES` (`worker.py`) and its section in `config/sources.py`.
Sources that touch a device or a mount run in a worker process; `host` reads only /proc and runs in the daemon.
A source classifies every error, never raises for a missing value, and knows nothing of schedules, alerts or Prometheus.
"""
