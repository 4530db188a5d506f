"""What each user and each job has had of each GPU: time held, time busy, time held for nothing, energy.

Counted from the GPU's own fast readings, so that no time counts twice, and while we were down nothing is counted. A few users
and jobs of each GPU have series of their own, the others are "other" together. Who has a series keeps it while he is there, and
what was counted as "other" stays there, so that no counter ever falls.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gpuwatch.catalogue.gpu import GPU, POWER, UTILIZATION
from gpuwatch.catalogue.process import (
    GPU_IDLE_ALLOCATED,
    JOB_GPU,
    JOB_GPU_BUSY,
    JOB_GPU_ENERGY,
    JOB_GPU_HELD,
    JOB_GPU_IDLE,
    JOB_GPU_MEMORY,
    PROCESS_GPU,
    PROCESS_GPU_MEMORY,
    PROCESS_GPU_UTILIZATION,
    USER_GPU,
    USER_GPU_BUSY,
    USER_GPU_ENERGY,
    USER_GPU_HELD,
    USER_GPU_IDLE,
    USER_GPU_MEMORY,
)
from gpuwatch.detectors.detector import derived, measured
from gpuwatch.model.finding import Findings
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

GAP = 3  # periods
IDLE = 0.02  # utilisation up to which a GPU does nothing
LINGER = 600.0  # seconds for which a job that is gone keeps its series: its last numbers are scraped and stored
KEPT = 64  # users, and jobs, that are remembered of a GPU
GPUS = 256  # GPUs that are remembered
OTHER = "other"


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
    busy: float = 0.0
    held: float = 0.0
    idle: float = 0.0
    energy: float = 0.0
    seen: float = 0.0  # wall clock
    shown: bool = False

    def take(self, other: "Account") -> None:
        """Add the sums of another account."""
        self.busy, self.held = self.busy + other.busy, self.held + other.held
        self.idle, self.energy = self.idle + other.idle, self.energy + other.energy
        self.shown = self.shown or other.shown


class Book(msgspec.Struct):
    """The accounts of one GPU."""

    at: float | None = None  # of the reading that was counted last
    idle: float = 0.0
    users: dict[str, Account] = {}
    jobs: dict[str, Account] = {}


class State(msgspec.Struct):
    """A book a GPU."""

    gpus: dict[str, Book] = {}


@dataclass(slots=True)
class Part:
    """What one user or job has of a GPU now. `memory` and `share` are None where they are not known of each process."""

    labels: dict[str, str]
    info: dict[str, str]
    memory: float | None = 0.0
    share: float | None = 0.0

    def add(self, entry: Entry) -> None:
        """Add one process."""
        memory, share = entry.values.get(PROCESS_GPU_MEMORY), entry.values.get(PROCESS_GPU_UTILIZATION)
        self.memory = None if self.memory is None or memory is None else self.memory + memory
        self.share = None if self.share is None or share is None else min(1.0, self.share + share)


@dataclass(slots=True)
class Present:
    """Who holds one GPU for computing."""

    users: dict[str, Part] = field(default_factory=dict)
    jobs: dict[str, Part] = field(default_factory=dict)
    count: int = 0


class Usage:
    """The detector. `period` is that of the fast tier, `users` and `jobs` how many of a GPU have series of their own."""

    name = "usage"
    version = 1

    def __init__(self, period: float, users: int, jobs: int) -> None:
        self.period, self.users, self.jobs = period, users, jobs

    def initial(self) -> State:
        """Return empty books."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Count what is new on each GPU, and say the sums."""
        present = who(view)
        readings: list[Reading] = []
        for entry in view.of(GPU):
            key = entry.target.key
            now = present.get(key, Present())
            fast = next((one for one in measured(entry) if one.tier is Tier.FAST and one.values), None)
            book = state.gpus.pop(key, None) or Book()
            if fast is not None:
                self.count(book, now, fast)
            if book.at is None:
                continue
            state.gpus[key] = book  # at the end: the first are those not seen for longest
            readings += self.said(book, now, entry.target, wall)
        while len(state.gpus) > GPUS:
            del state.gpus[next(iter(state.gpus))]
        return state, Findings(tuple(readings))

    def count(self, book: Book, now: Present, fast: Reading) -> None:
        """Add the time since the last reading to all who hold the GPU now."""
        before, book.at = book.at, fast.at
        passed = 0.0 if before is None or not 0 < fast.at - before <= GAP * self.period else fast.at - before
        used = fast.values.get(UTILIZATION)
        is_idle = used is not None and used <= IDLE
        if now.count and is_idle:
            book.idle += passed
        energy = max(0.0, fast.values.get(POWER, 0.0)) * passed
        for accounts, parts, most in ((book.users, now.users, self.users), (book.jobs, now.jobs, self.jobs)):
            for key, share in weights(parts).items():
                part = parts[key]
                account = self.account(accounts, key, parts, most, fast.at)
                account.held += passed
                account.idle += passed if is_idle else 0.0
                account.energy += energy * share
                busy = part.share if part.share is not None else used if len(parts) == 1 else None
                account.busy += passed * (busy or 0.0)

    def account(self, accounts: dict[str, Account], key: str, parts: Mapping[str, Part], most: int, at: float) -> Account:
        """Return where a part is booked: its own account where there is room for one, else that of the others."""
        part = parts[key]
        account = accounts.pop(key, None)
        if account is None or account.labels != part.labels:
            account = account or Account(part.labels)
            # Another's series under the same labels, such as that of a container before it was made anew, goes on as this one.
            for name in [name for name, one in accounts.items() if one.labels == part.labels and name not in (*parts, OTHER)]:
                account.take(accounts.pop(name))
        account.labels, account.info, account.seen = part.labels, part.info, at
        accounts[key] = account
        if not account.shown:
            shown = [one for name, one in accounts.items() if one.shown and name != OTHER]
            gone = min((one for one in shown if one.seen < at), key=lambda one: one.seen, default=None)
            if len(shown) >= most and gone is not None:
                gone.shown = False
            account.shown = len(shown) < most or gone is not None
        while len(accounts) > KEPT:
            del accounts[next(name for name in accounts if name != OTHER)]
        if account.shown:
            return account
        others = accounts.setdefault(OTHER, Account(dict.fromkeys(part.labels, OTHER), shown=True))
        others.seen = at
        return others

    def said(self, book: Book, now: Present, gpu: Target, wall: float) -> list[Reading]:
        """Return the sums of one GPU."""
        found = [derived(gpu, {GPU_IDLE_ALLOCATED: book.idle}, {}, wall)]
        for kind, accounts, parts in ((USERS, book.users, now.users), (JOBS, book.jobs, now.jobs)):
            hidden = [part for key, part in parts.items() if key not in accounts or not accounts[key].shown]
            for key, account in accounts.items():
                if not account.shown or (kind is JOBS and wall - account.seen > LINGER):
                    continue
                mine = hidden if key == OTHER else [parts[key]] if key in parts else []
                found.append(of(account, key, kind, mine, gpu=gpu, wall=wall))
        return found


def of(account: Account, key: str, kind: Kind, parts: list[Part], *, gpu: Target, wall: float) -> Reading:
    """Return what one user or job has had of one GPU."""
    memory, *counters = kind.metrics
    sums = (account.busy, account.held, account.idle, account.energy)
    values: dict[Metric, float] = dict(zip(counters, sums, strict=True))
    amounts = [part.memory for part in parts]
    known = [amount for amount in amounts if amount is not None]
    absent: dict[Metric, Absence] = {}
    if len(known) == len(amounts):
        values[memory] = sum(known)
    else:
        absent[memory] = Absence.UNSUPPORTED
    target = Target(subject=kind.subject, key=f"{key}/{gpu.key}", labels=account.labels | dict(gpu.labels), info=account.info)
    return derived(target, values, absent, wall)


def who(view: View) -> dict[str, Present]:
    """Return who holds each GPU for computing. Who cannot be seen from here is nobody's, and graphics alone hold nothing."""
    found: dict[str, Present] = {}
    for entry in view.of(PROCESS_GPU):
        info, labels = entry.target.info, entry.target.labels
        if not entry.readings or info.get("kinds") == "graphics":
            continue
        now = found.setdefault(labels["uuid"], Present())
        now.count += 1
        if info.get("user"):
            part = now.users.setdefault(info["uid"], Part({"user": info["user"]}, {}))
            part.add(entry)
        if labels["job"]:
            job = {"scheduler": info["scheduler"], "job": labels["job"]}
            whose = {**info, "user": info.get("users", "")}  # all of the job's, not only that of this process
            facts = {name: whose[name] for name in JOB_GPU.info if whose.get(name)}
            now.jobs.setdefault(info["key"], Part(job, facts)).add(entry)
    return found


def weights(parts: Mapping[str, Part]) -> dict[str, float]:
    """Return how the energy is shared: by use where that is known of all and anybody uses it, else equally."""
    shares = [part.share for part in parts.values()]
    total = sum(known(shares)) if None not in shares else 0.0
    if total <= 0:
        return {key: 1 / len(parts) for key in parts}
    return {key: (part.share or 0.0) / total for key, part in parts.items()}


def known(numbers: Iterable[float | None]) -> list[float]:
    """Return the numbers that are known."""
    return [number for number in numbers if number is not None]
