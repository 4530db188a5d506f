"""Who is told: incidents become messages, messages become requests, and what could not be sent is tried again.

`channel` checks receivers and routes; `coverage` says which alerts they lead to nobody (pure); `dispatch` decides who must hear
what (pure); `outbox` says which message comes next (pure); `silences` knows of what nobody is told; `sender` is one channel's
task, `line` its wire; `notifier` is the thread around them. A new kind of receiver is one file in `receivers/` and its line in
RECEIVERS.
"""

from gpuwatch.notify.channel import Channel, Channels, build
from gpuwatch.notify.coverage import unheard
from gpuwatch.notify.notifier import Memory, Notifier, Store
from gpuwatch.notify.silences import Silences

__all__ = ["Channel", "Channels", "Memory", "Notifier", "Silences", "Store", "build", "unheard"]
