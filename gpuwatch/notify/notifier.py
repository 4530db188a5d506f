"""The notifier: one thread with one loop, in which news is decided, committed and sent, one task a channel."""

import asyncio
import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from gpuwatch.catalogue import own
from gpuwatch.model.alert import AlertState, Incident
from gpuwatch.model.clock import Clock
from gpuwatch.model.delivery import Delivery, Outcome, Told
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.silence import Silence
from gpuwatch.model.target import Target
from gpuwatch.notify import dispatch
from gpuwatch.notify.channel import Channels
from gpuwatch.notify.dispatch import Group, Mark
from gpuwatch.notify.line import DEADLINE, Line, hush, prepare
from gpuwatch.notify.outbox import Ticket
from gpuwatch.notify.resolver import Resolver
from gpuwatch.notify.sender import Sender, Status
from gpuwatch.notify.silences import Silences

AGAIN = 5.0  # seconds before what the loop could not get is asked for again

log = logging.getLogger(__name__)


class Store(Protocol):
    """What the notifier needs of the store. Nothing here raises or waits for a disk."""

    def commit(
        self, incidents: Sequence[Incident] = (), told: Sequence[Told] = (), deliveries: Sequence[Delivery] = ()
    ) -> Ticket:
        """Write these in one transaction."""
        ...

    def attempted(self, delivery: Delivery, outcome: Outcome, retry_at: float | None) -> object:
        """Count an attempt of a delivery (given as it was before); `retry_at` None ends it."""
        ...


class Memory(Protocol):
    """What the store knew at the last stop."""

    @property
    def incidents(self) -> Iterable[Incident]:
        """Incidents that are open, or whose end is not told."""
        ...

    @property
    def told(self) -> Iterable[Told]:
        """What was told of them."""
        ...

    @property
    def deliveries(self) -> Iterable[Delivery]:
        """Messages that were decided and not sent, in their order."""
        ...

    @property
    def silences(self) -> Sequence[Silence]:
        """Silences, those that are over included."""
        ...


class Notifier:
    """Tells people. `restore`, `changed` and `tick` may be called from any thread, and none of them blocks."""

    def __init__(
        self,
        channels: Channels,
        store: Store,
        clock: Clock,
        host: str,
        new_id: Callable[[], str],
        *,
        silences: Silences,
        deadline: float = DEADLINE,
        resolver: Resolver | None = None,
    ) -> None:
        self._channels, self._store, self._clock, self._new_id = channels, store, clock, new_id
        self._silences = silences
        self._deadline, self._resolver = deadline, resolver or Resolver()
        self._senders = {
            name: Sender(channel, store, clock, host, host_labels=channels.host_labels)
            for name, channel in channels.by_name.items()
        }
        self._lock = threading.Lock()
        self._inbox: dict[str, Incident] = {}  # by id, the last word wins: bounded by the number of incidents, none is lost
        self._memory: Memory | None = None  # what earlier runs left, until the loop has taken it over
        self._mine: set[str] | None = set()  # ids of the messages of this run; None once there is no need to know them
        self._incidents: dict[str, Incident] = {}
        self._marks: dict[tuple[str, str], Mark] = {}
        self._groups: dict[tuple[str, str], Group] = {}
        self._look: float | None = None
        self._active: set[str] = set()  # ids of the silences that held at the last look
        self._failed = ""  # why the loop's last round failed, or there is no loop
        self._lacked: float | None = None  # monotonic: since when there is none
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._stop_after: float | None = None
        self._stopping = threading.Event()
        if channels.by_name:
            prepare()

    @property
    def nobody(self) -> bool:
        """No receiver is configured: nobody will be told."""
        return not self._channels.by_name

    def restore(self, memory: Memory) -> None:
        """Take over what earlier runs left, once: before `start`, or later where it could be read only then. Any thread.

        Queued messages go out first, then what nobody was told of is found.
        """
        self._silences.restore(memory.silences)
        if self.nobody:
            self._recall(memory)
            return
        with self._lock:
            self._memory = memory
            self._inbox.update((incident.id, incident) for incident in memory.incidents)
        self._poke()

    def start(self) -> None:
        """Start the thread; without receivers there is none."""
        if self.nobody:
            return
        hush()
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._thread.start()

    def changed(self, incidents: Iterable[Incident]) -> None:
        """Hand in incidents that changed."""
        if self.nobody:
            return
        with self._lock:
            self._inbox.update((incident.id, incident) for incident in incidents)
        self._poke()

    def tick(self) -> None:
        """Look at the clock: to be called every second or so. Where nothing is open or queued, no time can come."""
        with self._lock:
            waits = bool(self._inbox) or self._memory is not None
        if waits or self._incidents or self._look is not None or any(one.status.waiting for one in self._senders.values()):
            self._poke()

    def stop(self, seconds: float) -> None:
        """Give the senders so long to end what is due; what is not sent stays in the outbox."""
        if self._thread is None:
            return
        self._stop_after = seconds
        self._stopping.set()
        self._poke()
        self._thread.join(seconds + 1.0)
        if self._thread.is_alive():
            log.error("the notifier did not stop within %.1f s and is left behind", seconds + 1.0)

    def readings(self, wall: float) -> list[Reading]:
        """Return the numbers of every channel."""
        return [reading(name, sender.status, wall) for name, sender in self._senders.items()]

    def problems(self) -> list[str]:
        """Say in words what keeps messages from arriving; empty when all is well. No secrets in it."""
        mono = self._clock.mono()
        found = [words for name, sender in self._senders.items() for words in troubles(name, sender.status, mono)]
        return [*found, f"notifier: {self._failed}"] if self._failed else found

    def _poke(self) -> None:
        """Wake the loop; before it runs there is no need, since it begins by looking."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._awake)
            except RuntimeError:  # the loop has ended
                return

    def _awake(self) -> None:
        assert self._wake is not None  # set before the loop is known to others
        self._wake.set()
        for sender in self._senders.values():
            sender.wake()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            try:
                spare()
                asyncio.run(self._main())
                is_over = True
            except OSError as error:  # no descriptor is left, of this process or of the host
                is_over = self._lack(error.strerror or str(error))
            except BaseException as error:  # the root of the thread: without it nobody would be told, and nobody would know
                log.exception("nobody is told until gpuwatch starts again: a fault of gpuwatch itself")
                self._failed = f"nobody is told until gpuwatch starts again: a fault of gpuwatch itself ({type(error).__name__})"
                is_over = True

    def _lack(self, what: str) -> bool:
        """Say once what the loop lacks, and wait until it is to be tried again; True where we are stopped instead."""
        if self._lacked is None:
            self._lacked = self._clock.mono()
            log.error("nobody is told for now: %s; tried again every %.0f s", what, AGAIN)
        self._failed = f"nobody is told for now: {what}"
        return self._stopping.wait(AGAIN)

    def _has_begun(self) -> None:
        """Say that the loop has what it lacked before."""
        if self._lacked is not None:
            log.info("messages can be sent again after %.0f s", self._clock.mono() - self._lacked)
        self._failed, self._lacked = "", None

    async def _main(self) -> None:
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        system = ssl.create_default_context()
        lines = {
            name: Line(sender.channel.tls or system, self._resolver, self._deadline) for name, sender in self._senders.items()
        }
        tasks = {name: asyncio.create_task(sender.run(lines[name]), name=name) for name, sender in self._senders.items()}
        self._has_begun()
        while self._stop_after is None:
            self._wake.clear()
            self._guarded()
            for name in [name for name, task in tasks.items() if task.done()]:  # it never should be
                log.error("receiver %s: its task ended and is begun anew", name, exc_info=tasks[name].exception())
                tasks[name] = asyncio.create_task(self._senders[name].run(lines[name]), name=name)
            await self._sleep(self._wake)
        until = self._loop.time() + self._stop_after
        for sender in self._senders.values():
            sender.close()
        _, late = await asyncio.wait(tasks.values(), timeout=max(0.0, until - self._loop.time()))
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for line in lines.values():
            await line.close()

    async def _sleep(self, wake: asyncio.Event) -> None:
        seconds = None if self._look is None else max(0.0, self._look - self._clock.mono())
        try:
            await asyncio.wait_for(wake.wait(), seconds)
        except asyncio.TimeoutError:
            return

    def _guarded(self) -> None:
        """Do a round; one that fails by a fault of ours is tried again, and said."""
        try:
            self._round()
        except Exception as error:
            if not self._failed:
                log.exception("messages cannot be decided: a fault of gpuwatch itself")
            self._failed = f"messages cannot be decided: a fault of gpuwatch itself ({type(error).__name__})"
            self._look = self._clock.mono() + 1.0
        else:
            self._failed = ""

    def _round(self) -> None:
        """Take what came, decide, commit, and hand the messages to their senders."""
        mono, wall = self._clock.mono(), self._clock.wall()
        with self._lock:
            news, self._inbox = self._inbox, {}
            memory, self._memory = self._memory, None
        silences = self._silences.lasting(wall)
        active = {silence.id for silence in silences}
        # A silence that was made or ended, or that a step of the wall clock ended, is no news of an incident.
        if not news and memory is None and active == self._active and (self._look is None or mono < self._look):
            return
        self._active = active
        self._incidents.update(news)
        if memory is not None:
            self._recall(memory)
        plan = dispatch.decide(
            self._incidents.values(),
            self._marks,
            self._channels,
            self._groups,
            mono=mono,
            wall=wall,
            new_id=self._new_id,
            silent=frozenset(name for name, sender in self._senders.items() if sender.status.is_off),
            silences=silences,
        )
        self._groups, self._look = dict(plan.groups), plan.look
        told = [*plan.settled, *(mark for message in plan.messages for mark in message.told)]
        for mark in told:
            self._marks[mark.incident, mark.channel] = Mark(mark, mono)
        told += self._forget(wall)
        deliveries = [message.delivery for message in plan.messages]
        if self._mine is not None:
            self._mine.update(delivery.id for delivery in deliveries)
        if told or deliveries:
            ticket = self._store.commit(told=told, deliveries=deliveries)
            for delivery in deliveries:
                self._senders[delivery.channel].put([delivery], ticket)

    def _recall(self, memory: Memory) -> None:
        """Take over marks and unsent messages of earlier runs; what this run has said meanwhile stands."""
        mono, wall = self._clock.mono(), self._clock.wall()
        self._unite(memory.incidents)
        heard = {told.incident for told in memory.told}
        for incident in memory.incidents:
            if incident.id not in heard:  # it has waited for its group; a crash loop must not begin the wait anew each time
                for name in self._senders:
                    self._groups.setdefault((name, dispatch.family(incident)), dispatch.overdue(mono))
        for told in memory.told:
            self._marks.setdefault((told.incident, told.channel), dispatch.remembered(told, mono=mono, wall=wall))
        mine = self._mine or set()
        waiting: dict[str, list[Delivery]] = {}
        for delivery in memory.deliveries:
            if delivery.id not in mine:
                waiting.setdefault(delivery.channel, []).append(delivery)
        for name, deliveries in waiting.items():
            if name in self._senders:
                self._senders[name].put(deliveries, None)
                continue
            log.warning("receiver %s is not configured any more: %d of its messages are given up", name, len(deliveries))
            for delivery in deliveries:
                self._store.attempted(delivery, Outcome.refused("the receiver is not configured any more"), None)
        self._mine = None

    def _unite(self, incidents: Iterable[Incident]) -> None:
        """Let incidents of this run go on as those of an earlier one where the store has found that they are the same."""
        older = {(one.rule, one.subject, one.key): one.id for one in incidents if one.ended_at is None}
        for mine in list(self._incidents.values()):
            identity = older.get((mine.rule, mine.subject, mine.key), mine.id)
            if identity == mine.id or mine.ended_at is not None:
                continue
            del self._incidents[mine.id]
            for key in [key for key in self._marks if key[0] == mine.id]:
                mark = self._marks.pop(key)
                self._marks[identity, key[1]] = replace(mark, told=replace(mark.told, incident=identity))

    def _forget(self, wall: float) -> list[Told]:
        """Let ended incidents go that nobody waits to hear of; returns the marks that close those of removed receivers."""
        unsettled = [key for key, mark in self._marks.items() if mark.told.state is not AlertState.INACTIVE]
        owed = {incident for incident, channel in unsettled if channel in self._senders}
        over = {found.id for found in self._incidents.values() if found.state is AlertState.INACTIVE} - owed
        closed: list[Told] = []
        for key in [key for key in self._marks if key[0] in over]:
            told = self._marks.pop(key).told
            if told.state is not AlertState.INACTIVE:
                closed.append(Told(told.incident, told.channel, AlertState.INACTIVE, told.severity, wall))
        for identifier in over:
            del self._incidents[identifier]
        return closed


def spare() -> None:
    """Raise OSError where the descriptors of a loop cannot be had: one that was made by half ends with a traceback."""
    held: list[int] = []
    try:
        for _ in range(2):  # its selector and its pair of sockets, and one more
            held += os.pipe()
    finally:
        for descriptor in held:
            os.close(descriptor)


def reading(name: str, status: Status, wall: float) -> Reading:
    """Write a channel's status as numbers; a time that never was is absent."""
    values: dict[Metric, float] = {own.NOTIFICATIONS[result]: float(count) for result, count in status.counts.items()}
    values[own.NOTIFICATION_QUEUE_LENGTH] = float(status.waiting)
    if status.oldest is not None:
        values[own.NOTIFICATION_QUEUE_OLDEST] = status.oldest
    if status.last_success is not None:
        values[own.NOTIFICATION_LAST_SUCCESS] = status.last_success
    target = Target(subject=own.CHANNEL, key=name, labels={"channel": name})
    return Reading(source="own", tier=Tier.NORMAL, target=target, at=wall, took=0.0, values=values)


def troubles(name: str, status: Status, mono: float) -> list[str]:
    """Say what is wrong with one channel."""
    found: list[str] = []
    if status.is_off:
        found.append(f"receiver {name}: switched off until gpuwatch starts again: {status.trouble}")
    elif status.trouble and status.waiting:
        seconds = 0.0 if status.since is None else mono - status.since
        waiting = f"{status.waiting} message{'s' if status.waiting > 1 else ''} not delivered for {seconds:.0f} s"
        rarely = "; tried every 5 min only" if status.is_open else ""
        found.append(f"receiver {name}: {waiting}: {status.trouble}{rarely}")
    if status.given_up:
        found.append(f"receiver {name}: {status.given_up} message{'s' if status.given_up > 1 else ''} given up: {status.trouble}")
    unstored = status.not_stored()
    if unstored:
        found.append(f"receiver {name}: {unstored} message{'s' if unstored > 1 else ''} not yet stored")
    return found
