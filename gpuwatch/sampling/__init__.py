"""Readings on time: workers under supervision, the board, the schedule.

A collector gets sources read: `Supervisor` (a worker process that stays), `Probe` (one that lives for a round), `Local` (a
thread of the daemon). What a collector does next is decided by a pure function (`persistent.py`, `rounds.py`); `crew.py` does
it. A new kind of collector is a new pair of these; a new source needs nothing here.
"""
