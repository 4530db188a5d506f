"""The kernel log: /dev/kmsg while it grows, and saved logs in every form that people have.

`forms` reads lines, `join` puts together what belongs together, `gpu`, `pcie`, `host` and `storage` know what it means, `fold`
makes one event of equal ones. `reader` polls the device, `replay` reads what was saved. A new kind of event is one pattern in
its family, and one line in `catalogue/events.py`.
"""

from gpuwatch.sources.kernel.forms import is_of_log
from gpuwatch.sources.kernel.reader import source
from gpuwatch.sources.kernel.record import Dating
from gpuwatch.sources.kernel.replay import Saved, lines, replay, saved_events

__all__ = ["Dating", "Saved", "is_of_log", "lines", "replay", "saved_events", "source"]
