"""One channel's task: takes its messages in order, sends, judges, and tries again. Lives in the notifier's loop."""

import asyncio
import logging
import random
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gpuwatch.model.clock import Clock
from gpuwatch.model.delivery import Delivery, Outcome, Result
from gpuwatch.notify import outbox, retry
from gpuwatch.notify.channel import Channel
from gpuwatch.notify.line import Line, UnreachableError
from gpuwatch.notify.outbox import Entry, Ticket
from gpuwatch.notify.receivers.receiver import Answer, Attempt

LATE = 60.0  # seconds after which a message says how late it is
STORED_WITHIN = 3.0  # seconds that a message waits for the disk (rulings 7)
RESULTS = ("sent", "retried", "failed", "dropped", "suppressed")
FAILING = (Result.REFUSED, Result.AUTH)

log = logging.getLogger(__name__)


class Marks(Protocol):
    """The part of the store that a sender needs; it neither raises nor blocks."""

    def attempted(self, delivery: Delivery, outcome: Outcome, retry_at: float | None) -> object:
        """Count an attempt of a delivery (given as it was before); `retry_at` None ends it."""
        ...


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a channel stands, for other threads: replaced whole, never changed. Times are wall clock but `since`."""

    waiting: int = 0
    oldest: float | None = None
    last_success: float | None = None
    counts: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(RESULTS, 0))
    trouble: str = ""  # the last failure in words, "" while messages go through
    since: float | None = None  # monotonic, when the trouble began
    given_up: int = 0  # messages that will never arrive, since the last one that did
    unstored: tuple[Ticket, ...] = ()  # of the messages that were not on the disk when the queue last changed
    is_off: bool = False  # the receiver said that it wants no more messages
    is_open: bool = False  # the breaker: only a probe now and then

    def not_stored(self) -> int:
        """Count the messages that are not on the disk now; they get there without the sender hearing of it."""
        return sum(not ticket.wait(0) for ticket in self.unstored)


class Sender:
    """Sends one channel's messages. `run` is its task; everything else is called in the same loop, but for `status`."""

    def __init__(
        self,
        channel: Channel,
        marks: Marks,
        clock: Clock,
        host: str,
        *,
        host_labels: Mapping[str, str],
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.channel = channel
        self.status = Status()
        self._marks, self._clock, self._host, self._dice = marks, clock, host, dice
        self._entries: list[Entry] = []
        self._host_labels = host_labels
        self._sending = ""  # id of the delivery that is under way
        self._hold = 0.0  # monotonic: nothing is sent before (pace, breaker, the receiver's own wish)
        self._failures = 0  # permanent or auth failures in a row
        self._closing = False
        self._bugs: set[tuple[str, str, int | None]] = (
            set()
        )  # faults of ours that were said, since the last message that went out
        self._said_open = False
        self._wake = asyncio.Event()

    def put(self, deliveries: Iterable[Delivery], ticket: Ticket | None) -> None:
        """Queue deliveries: new ones with the ticket of their transaction, those of the outbox without."""
        mono, wall = self._clock.mono(), self._clock.wall()
        self._entries += [outbox.entry(delivery, ticket, mono=mono, wall=wall) for delivery in deliveries]
        self._collapse()
        while len(self._entries) > outbox.LIMIT:
            self._drop(next(entry for entry in self._entries if entry.delivery.id != self._sending))
        self._publish()
        self.wake()

    def wake(self) -> None:
        """Look at the clock and the queue again."""
        self._wake.set()

    def close(self) -> None:
        """End the task once nothing is due any more."""
        self._closing = True
        self.wake()

    async def run(self, line: Line) -> None:
        """Send until closed. It may be begun anew in another loop, and an event belongs to the one in which it was waited for."""
        self._wake = asyncio.Event()
        while True:
            self._wake.clear()
            self._expire()
            mono = self._clock.mono()
            entry, look = outbox.pick(self._entries, mono)
            hold = self._hold if self._entries else mono
            if entry is not None and hold <= mono and not self.status.is_off:
                await self._send(entry, line)
            elif self._closing:
                return
            else:
                await self._sleep(mono, look, hold)

    async def _sleep(self, mono: float, look: float | None, hold: float) -> None:
        """Wait for news, or until something is due."""
        times = [entry.until for entry in self._entries]
        if not self.status.is_off and self._entries:
            times.append(max(hold, mono if look is None else look))
        try:
            await asyncio.wait_for(self._wake.wait(), max(0.0, min(times) - mono) if times else None)
        except asyncio.TimeoutError:
            return

    async def _send(self, entry: Entry, line: Line) -> None:
        self._sending = entry.delivery.id
        try:
            outcome = await self._attempt(entry, line)
        except UnreachableError as error:
            outcome = Outcome.retry(str(error))
        except Exception as error:  # noqa: BLE001 - the root of this channel's task: a fault of ours costs a retry, not the channel
            where = traceback.extract_tb(error.__traceback__)[-1]  # not the exception's text: it may hold an address
            bug = (type(error).__name__, where.filename, where.lineno)
            if bug not in self._bugs:
                self._bugs.add(bug)
                log.error(  # noqa: TRY400 - for the same reason
                    "receiver %s: a message could not be built or judged: %s at %s:%s", self.channel.name, *bug
                )
            outcome = Outcome.retry(f"a fault of gpuwatch itself ({type(error).__name__})")
        finally:
            self._sending = ""
        self._settle(entry, outcome)

    async def _attempt(self, entry: Entry, line: Line) -> Outcome:
        stored = entry.ticket is None or await on_disk(entry.ticket, STORED_WITHIN)
        late = self._clock.mono() - entry.owed
        attempt = Attempt(
            at=self._clock.wall(),
            number=entry.delivery.attempt + 1,
            host=self._host,
            host_labels=self._host_labels,
            late=late if late > LATE else None,
            stored=stored,
        )
        receiver = self.channel.receiver
        reply = await line.post(receiver.request(entry.delivery, self.channel.options, attempt))
        assert reply.status is not None  # `post` raises where there is none
        return receiver.judge(Answer(status=reply.status, headers=reply.headers, body=bytes(reply.body), at=self._clock.wall()))

    def _settle(self, entry: Entry, outcome: Outcome) -> None:
        """Take note of what came of an attempt: memory first, so that nothing is sent twice whatever the store does."""
        mono, wall = self._clock.mono(), self._clock.wall()
        delivery = replace(entry.delivery, attempt=entry.delivery.attempt + 1)
        self._hold = mono + self.channel.pace
        position = self._position(entry)
        if outcome.result in (Result.RETRY, Result.AUTH):
            wait = retry.pause(delivery.attempt, outcome.after, self._dice())
            if outcome.after is not None:
                self._hold = max(self._hold, mono + wait)  # it is the receiver that wants peace, not this message
            delivery = replace(delivery, not_before=wall + wait)
            self._entries[position] = replace(entry, delivery=delivery, ready=mono + wait, owed=self._entries[position].owed)
            self._count("retried")
        else:
            del self._entries[position]
            self._count("sent" if outcome.result is Result.SENT else "failed")
        self._note(outcome, mono, wall)
        ended = outcome.result not in (Result.RETRY, Result.AUTH)
        self._marks.attempted(entry.delivery, outcome, None if ended else delivery.not_before)  # the store counts by itself
        self._collapse()
        self._publish()

    def _note(self, outcome: Outcome, mono: float, wall: float) -> None:
        """Keep the health of the channel, and log when it changes; how it fails may change with each attempt: see status."""
        before, name = self.status, self.channel.name
        if outcome.result is Result.SENT:
            self._failures, self._said_open = 0, False
            self._bugs.clear()
            if before.trouble:
                log.info("receiver %s takes messages again after %.0f s", name, mono - (before.since or mono))
            self.status = replace(before, last_success=wall, trouble="", since=None, given_up=0, is_open=False)
            return
        self._failures = self._failures + 1 if outcome.result in FAILING else 0
        is_open = self._failures >= retry.BREAKER_FAILURES
        if is_open:
            self._hold = max(self._hold, mono + retry.PROBE)
        if outcome.result in (Result.REFUSED, Result.GONE):
            log.error("receiver %s: a message is given up: %s", name, outcome.words)
        elif not before.trouble:
            log.warning("receiver %s: messages wait: %s", name, outcome.words)
        if is_open and not self._said_open:
            self._said_open = True
            log.error("receiver %s: refused %d times in a row; tried every %.0f s only", name, self._failures, retry.PROBE)
        if outcome.result is Result.GONE:
            log.error("receiver %s is switched off until gpuwatch starts again: %s", name, outcome.words)
        self.status = replace(
            before,
            trouble=outcome.words,
            since=mono if before.since is None else before.since,
            given_up=before.given_up + (outcome.result in (Result.REFUSED, Result.GONE)),
            is_open=is_open,
            is_off=before.is_off or outcome.result is Result.GONE,
        )

    def _expire(self) -> None:
        """Give up what is too old."""
        mono = self._clock.mono()
        for entry in [entry for entry in self._entries if entry.until <= mono]:
            self._entries.remove(entry)
            hours = (mono - entry.owed) / 3600
            words = f"given up after {hours:.0f} h: {self.status.trouble or 'never tried'}"
            log.error("receiver %s: a message is %s", self.channel.name, words)
            self._count("failed")
            self.status = replace(self.status, given_up=self.status.given_up + 1)
            self._marks.attempted(entry.delivery, Outcome.retry(words), None)
            self._publish()

    def _drop(self, entry: Entry) -> None:
        """Make room: the oldest goes, and is counted."""
        self._entries.remove(entry)
        self._count("dropped")
        self.status = replace(self.status, given_up=self.status.given_up + 1)
        self._marks.attempted(entry.delivery, Outcome.refused("the queue was full"), None)

    def _collapse(self) -> None:
        """Take out what later messages say as well; what is under way stays."""
        self._entries, superseded = outbox.collapse(self._entries, self._sending)
        for entry in superseded:
            self._count("suppressed")
            self._marks.attempted(entry.delivery, Outcome(Result.SUPERSEDED, "a newer message says it all"), None)

    def _position(self, entry: Entry) -> int:
        return next(index for index, found in enumerate(self._entries) if found.delivery.id == entry.delivery.id)

    def _count(self, result: str) -> None:
        self.status = replace(self.status, counts={**self.status.counts, result: self.status.counts[result] + 1})

    def _publish(self) -> None:
        """Show other threads how long the queue is."""
        oldest = min((entry.delivery.created for entry in self._entries), default=None)
        tickets = (entry.ticket for entry in self._entries if entry.ticket is not None)
        unstored = tuple(ticket for ticket in tickets if not ticket.wait(0))
        self.status = replace(self.status, waiting=len(self._entries), oldest=oldest, unstored=unstored)


async def on_disk(ticket: Ticket, seconds: float) -> bool:
    """Wait for a transaction without blocking the loop; False where it failed or takes too long."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + seconds, 0.002
    while not ticket.wait(0):
        if loop.time() >= until:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)
    return True
