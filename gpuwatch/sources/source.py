"""The shape of a source: what it is asked and how it answers."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier


class Answer(Protocol):
    """Where a source puts what it finds. Every method may be called from any thread, also after `done`."""

    def reading(self, reading: Reading) -> None:
        """One target is read. Given one by one, so that what comes later cannot lose what is there."""
        ...

    def event(self, event: Event) -> None:
        """Something happened. A source that waits for events keeps the last Answer for them."""
        ...

    def working(self, item: str) -> None:
        """The source is about to touch this item (a mount, a disk, a sensor): if it hangs, this one is to blame."""
        ...

    def restart(self, reason: str) -> None:
        """The source can only go on in a new process (`driver_change`); the supervisor replaces the worker."""
        ...

    def failed(self, words: str) -> None:
        """A bug has cost a part of this round, or all of it; said before `done`. The source has logged it."""
        ...

    def done(self, busy: Sequence[str] = ()) -> None:
        """The round is over; `busy` names the target keys whose earlier call has not returned and that got no new one."""
        ...


class Source(Protocol):
    """One library or tool. `ask` must not raise; it may block, except in a source with threads of its own (nvml)."""

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read everything of this tier but the items in `skip`, and call `answer.done` at the end.

        What is in `skip` did not return when it was last touched: the source leaves it alone, and says so in a Reading
        where there are words for that (FILESYSTEM_STUCK at 1, a disk's fault `timeout`); it alone knows the labels.
        """
        ...

    def close(self) -> None:
        """Let go of everything, as far as that can be done without waiting."""
        ...


@runtime_checkable
class Candid(Source, Protocol):
    """A source of one thing, which can say why it gives nothing of it."""

    def problem(self) -> str:
        """Return "" or what stands in the way; from any thread."""
        ...
