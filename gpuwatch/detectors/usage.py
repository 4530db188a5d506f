"""What each user and each job has had of each GPU: time held, time busy, time held for nothing, energy.

Counted from the GPU's own fast readings, so that no time counts twice, and while we were down nothing is counted. A few users
and jobs of each GPU have series of their own, the others are "other" together. Who has a series keeps it while he is there, and
what was counted as "other" stays there, so that no counter ever falls. Who holds a part of a divided GPU (MIG) has that part of
its seconds.

A sum that has been told never falls, however we end: Prometheus takes a fall for a reset and adds the whole total once more. So
only what is on disk is told, and the sums go on in steps of one save, a minute: what a kill takes is at most that minute, and
nobody has been told of it. (To go on from 0 would lose the total, and to add in advance what may come would charge people for
what never did.) Until it is known what is on disk, no sum is told, so that sums from before may come late and be added.

A GPU that gives no numbers any more leaves its books as they are: they know whose work was on it when it was last seen, for the
text of the alert that it is gone.

What was never known of an account, such as the use of processes on a divided GPU without GPM, or the energy of a card that
tells no power, is absent, not 0. So is the memory while nobody has looked who is on the GPU: after a start or a release, or where
the processes are not read at all.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from gpuwatch.catalogue.derived import STATE
from gpuwatch.catalogue.gpu import GPU, POWER, UTILIZATION
from gpuwatch.catalogue.process import (
    GPU_IDLE_ALLOCATED,
    JOB_GPU,
    JOB_GPU_BUSY,
    JOB_GPU_ENERGY,
    JOB_GPU_HELD,
    JOB_GPU_IDLE,
    JOB_GPU_MEMORY,
    USER_GPU,
    USER_GPU_BUSY,
    USER_GPU_ENERGY,
    USER_GPU_HELD,
    USER_GPU_IDLE,
    USER_GPU_MEMORY,
)
from gpuwatch.detectors.detector import Clockwork, derived, measured
from gpuwatch.detectors.parts import Part, Present, called, known, weights, who
from gpuwatch.model.finding import Evidence, Findings
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import View

GAP = 3  # periods
LINGER = 600.0  # seconds for which a job that is gone keeps its series: its last numbers are scraped and stored
KEPT = 64  # users, and jobs, that are remembered of a GPU
GPUS = 256  # GPUs that are remembered
OTHER = "other"
GONE = (STATE["lost"], STATE["missing"], STATE["reset_required"])
RECENT = 30.0  # seconds before a GPU was last seen: its fall may end processes before NVML says that it is lost
NAMED = 2  # jobs that had it which a text names


class Kind(NamedTuple):
    """Users or jobs, and what is told of each: memory first, then the sums in the order of Account."""

    subject: Subject
    metrics: tuple[Metric, ...]


USERS = Kind(USER_GPU, (USER_GPU_MEMORY, USER_GPU_BUSY, USER_GPU_HELD, USER_GPU_IDLE, USER_GPU_ENERGY))
JOBS = Kind(JOB_GPU, (JOB_GPU_MEMORY, JOB_GPU_BUSY, JOB_GPU_HELD, JOB_GPU_IDLE, JOB_GPU_ENERGY))


class Account(msgspec.Struct):
    """The sums of one user or job on one GPU. `shown`: it has series of its own."""

    labels: dict[str, str]
    info: dict[str, str] = {}
    busy: float | None = None
    held: float = 0.0
    idle: float | None = None
    energy: float | None = None
    seen: float = 0.0  # own clock
    shown: bool = False

    def take(self, other: "Account") -> None:
        """Add the sums of another account."""
        self.busy, self.idle = added(self.busy, other.busy), added(self.idle, other.idle)
        self.held, self.energy = self.held + other.held, added(self.energy, other.energy)
        self.shown = self.shown or other.shown


class Book(msgspec.Struct):
    """The accounts of one GPU."""

    at: float | None = None  # wall clock of the reading that was counted last, so that it is known again
    seen: float = 0.0  # own clock
    idle: float | None = None
    users: dict[str, Account] = {}
    jobs: dict[str, Account] = {}


class State(msgspec.Struct):
    """A book a GPU."""

    gpus: dict[str, Book] = {}
    clock: Clockwork = msgspec.field(default_factory=Clockwork)


class Usage:
    """The detector. `period` is that of the fast tier, `users` and `jobs` how many of a GPU have series of their own.

    `written` are the books as they are on disk, None where that is not known.
    """

    name = "usage"
    version = 2  # in 1, `seen` was of the wall clock

    def __init__(self, period: float, users: int, jobs: int) -> None:
        self.period, self.users, self.jobs = period, users, jobs
        self.written: State | None = None

    def initial(self) -> State:
        """Return empty books."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Count what is new on each GPU, and say the sums."""
        present = who(view)
        state.clock.tick(wall, view.mono)
        readings: list[Reading] = []
        evidence: dict[tuple[Target, Metric], Evidence] = {}
        for entry in view.of(GPU):
            key = entry.target.key
            now = present.get(key)
            fast = next((one for one in measured(entry) if one.tier is Tier.FAST and one.values), None)
            book = state.gpus.pop(key, None) or Book()
            if fast is not None:
                self.count(book, now, fast, state.clock)
            if book.at is None:
                continue
            state.gpus[key] = book  # at the end: the first are those not seen for longest
            readings += self.said(book, None if fast is None else now, entry.target, state.clock, wall)
            if fast is None and (found := held_by(book)):
                evidence |= dict.fromkeys(((entry.target, metric) for metric in GONE), Evidence(words={"held_by": found}))
        while len(state.gpus) > GPUS:
            del state.gpus[next(iter(state.gpus))]
        return state, Findings(tuple(readings), evidence)

    def count(self, book: Book, now: Present | None, fast: Reading, clock: Clockwork) -> None:
        """Add the time since the last reading to all who hold the GPU now, to nobody where that is not known (None)."""
        is_new = book.at != fast.at
        passed = (clock.since(None if book.at is None else book.seen, GAP * self.period) or 0.0) if is_new else 0.0
        if is_new:
            book.at, book.seen = fast.at, clock.now
        if now is None:
            return
        is_idle = now.judge(fast.values.get(UTILIZATION))
        book.idle = added(book.idle, None if is_idle is None else passed * is_idle)
        power = fast.values.get(POWER)
        for accounts, parts, most in ((book.users, now.users, self.users), (book.jobs, now.jobs, self.jobs)):
            for key, share in weights(parts).items():
                part = parts[key]
                account = self.account(accounts, key, parts, most, clock.now)
                account.held += passed * part.size
                account.idle = added(account.idle, None if part.idle is None else passed * part.idle)
                account.energy = added(account.energy, None if power is None else max(0.0, power) * passed * share)
                account.busy = added(account.busy, None if part.share is None else passed * part.share)

    def account(self, accounts: dict[str, Account], key: str, parts: Mapping[str, Part], most: int, clock: float) -> Account:
        """Return where a part is booked: its own account where there is room for one, else that of the others."""
        part = parts[key]
        account = accounts.pop(key, None)
        if account is None or account.labels != part.labels:
            account = account or Account(part.labels)
            # Another's series under the same labels, such as that of a container before it was made anew, goes on as this one.
            for name in [name for name, one in accounts.items() if one.labels == part.labels and name not in (*parts, OTHER)]:
                account.take(accounts.pop(name))
        account.labels, account.info, account.seen = part.labels, part.info, clock
        accounts[key] = account
        if not account.shown:
            shown = [one for name, one in accounts.items() if one.shown and name != OTHER]
            gone = min((one for one in shown if one.seen < clock), key=lambda one: one.seen, default=None)
            if len(shown) >= most and gone is not None:
                gone.shown = False
            account.shown = len(shown) < most or gone is not None
        while len(accounts) > KEPT:
            del accounts[next(name for name in accounts if name != OTHER)]
        if account.shown:
            return account
        others = accounts.setdefault(OTHER, Account(dict.fromkeys(part.labels, OTHER), shown=True))
        others.seen = clock
        return others

    def said(self, book: Book, now: Present | None, gpu: Target, clock: Clockwork, wall: float) -> list[Reading]:
        """Return the sums of one GPU; None: nobody knows who is on it, as on one that does not answer."""
        users, jobs = (None, None) if now is None else (now.users, now.jobs)
        written = None if self.written is None else self.written.gpus.get(gpu.key, Book())
        idle = None if written is None or book.idle is None else written.idle or 0.0
        found = [] if idle is None else [derived(gpu, {GPU_IDLE_ALLOCATED: idle}, {}, wall)]
        for kind, accounts, parts in ((USERS, book.users, users), (JOBS, book.jobs, jobs)):
            told = None if written is None else written.users if kind is USERS else written.jobs
            hidden = [part for key, part in (parts or {}).items() if key not in accounts or not accounts[key].shown]
            for key, account in accounts.items():
                if not account.shown or (kind is JOBS and clock.now - account.seen > LINGER):
                    continue
                mine = None if parts is None else hidden if key == OTHER else [parts[key]] if key in parts else []
                sums = (None,) * 4 if told is None else counted(told, key, account)
                found.append(of(account, key, kind, mine, sums, gpu=gpu, wall=wall))
        return found


def held_by(book: Book) -> str:
    """Say whose jobs a GPU had when it was last seen, those that had it for longest first; "" where none is known."""
    last = [one for key, one in book.jobs.items() if key != OTHER and one.seen >= book.seen - RECENT]
    last.sort(key=lambda one: -one.held)
    names = [called(one.labels, one.info) for one in last[:NAMED]] + ([f"+{len(last) - NAMED}"] if len(last) > NAMED else [])
    return f"; it had: {', '.join(names)}" if names else ""


def counted(written: Mapping[str, Account], key: str, account: Account) -> tuple[float | None, ...]:
    """Return the sums of an account that are on disk; what is not known of it now is not told from then either."""
    found = written.get(key)
    if found is None or found.labels != account.labels:  # the series comes before the account
        found = next((one for one in written.values() if one.labels == account.labels), found)
    found = found or Account(account.labels)
    both = ((account.busy, found.busy), (account.idle, found.idle), (account.energy, found.energy))
    busy, idle, energy = (None if now is None else then or 0.0 for now, then in both)
    return busy, found.held, idle, energy


def joined(old: State, new: State) -> State:
    """Return the books of two runs as one, where `new` was begun before `old` could be read; its clock goes on."""
    shift = new.clock.now - old.clock.now
    new.clock.whole = new.clock.now  # what `old` has seen last is no part of this run
    for key, book in old.gpus.items():
        book.seen += shift
        for account in (*book.users.values(), *book.jobs.values()):
            account.seen += shift
        mine = new.gpus.get(key)
        if mine is None:
            continue
        book.at, book.seen, book.idle = mine.at, mine.seen, added(book.idle, mine.idle)
        for before, begun in ((book.users, mine.users), (book.jobs, mine.jobs)):
            for name, account in begun.items():
                same = [each for each, one in before.items() if each == name or one.labels == account.labels]
                for each in same:
                    account.take(before.pop(each))
                before[name] = account
    return State({**{key: book for key, book in new.gpus.items() if key not in old.gpus}, **old.gpus}, new.clock)


def of(
    account: Account, key: str, kind: Kind, parts: list[Part] | None, sums: tuple[float | None, ...], *, gpu: Target, wall: float
) -> Reading:
    """Return what one user or job has of one GPU, and has had of it as far as that is on disk."""
    memory, *counters = kind.metrics
    amounts = None if parts is None else [part.memory for part in parts]
    total = None if amounts is None or None in amounts else sum(known(amounts))
    numbers = dict(zip((memory, *counters), (total, *sums), strict=True))
    values = {metric: number for metric, number in numbers.items() if number is not None}
    absent = {metric: Absence.UNSUPPORTED for metric, number in numbers.items() if number is None}
    if parts is None:
        absent[memory] = Absence.FAILED
    target = Target(subject=kind.subject, key=f"{key}/{gpu.key}", labels=account.labels | dict(gpu.labels), info=account.info)
    return derived(target, values, absent, wall)


def added(total: float | None, amount: float | None) -> float | None:
    """Return a sum that is not known until something is counted."""
    return total if amount is None else (total or 0.0) + amount
