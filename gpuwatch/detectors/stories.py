"""Stories: what belongs together of all that driver and kernel tell, one a thing and cause (failure-modes.md 2.7). Pure.

A fall from the bus is Xid 79, a message over three lines, a 154 and tens of 45s: one story whose cause is the 79. An event joins
the open story of its thing where it comes within a minute of it, or within ten where that story knows it already; otherwise it
begins one, and ends an older one of the same cause, which has come back. A story is over when there is evidence of repair (a
reset, a reboot, a GPU that was gone and answers again), or when it has been quiet for long enough.
"""

from collections.abc import Collection, Iterable, Mapping
from math import inf

import msgspec

from gpuwatch.detectors import causes, suspicion
from gpuwatch.detectors.suspicion import Occasion
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event

JOIN = 60.0  # seconds between two events of one story
AGAIN = 600.0  # seconds in which more of the same is no news
CHAIN = 120.0  # seconds from a disk that fails to the file systems above it
ATTACH = 600.0  # seconds in which a recovery action belongs to what was told before it
WORKS = 60.0  # seconds after the last word of a lost GPU from which an answer of it counts: an older one may still lie around
RATE, RATE_WINDOW, BUCKET = 50, 300.0, 10.0  # more than ten a minute for five minutes (failure-modes.md 5.8)
OPEN_LIMIT, LABELS, PROGRAMS = 512, 64, 8
FREQUENT = frozenset({"aer_corrected", "cpu_throttle"})  # nothing by themselves; trouble when they go on
NO_WINDOW = "bar_unassigned"
UNCORRECTABLE = frozenset({"Xid 48", "Xid 171", "Xid 172"})
CONTAINED, UNCONTAINED = "Xid 94", ("Xid 95", "Xid 140", "Xid 64")
QUIET: Mapping[Severity, float] = {Severity.INFO: 600.0, Severity.WARNING: 6 * 3600.0, Severity.CRITICAL: 86400.0}
PROGRAM_CODES = frozenset(code for code, rank in causes.RANKS.items() if rank == causes.PROGRAM)
QUIET_PROGRAM = 1800.0  # seconds: an error of a program is over with the program
QUIET_MEMORY = 86400.0  # seconds: a row that waits for its remap does so until a reset, but not all drivers tell of that


class Tally(msgspec.Struct):
    """How often a story had one label, and what it means by itself; `sure` where the line itself was read."""

    kind: str
    code: int | None
    count: int = 0
    severity: Severity = Severity.INFO
    sure: bool = False

    def add(self, event: Event, count: int) -> None:
        """Count an event. NVML knows the number only; the kernel's line says whether it was fatal."""
        is_sure = event.source != "nvml"
        if self.sure is is_sure:
            self.severity = max(self.severity, event.severity, key=lambda one: one.rank)
        elif is_sure or not self.count:
            self.severity = event.severity
        self.sure = self.sure or is_sure
        self.count += count


class Story(msgspec.Struct, kw_only=True):
    """One story. Its cause is the gravest thing that was told, by rank, and of equals the first."""

    subject: str
    key: str
    began: float  # wall clock
    last: float
    heard: float  # the detector's own clock at `last`
    boot: str
    kind: str
    code: int | None
    label: str
    rank: int
    title: str
    words: str
    facts: dict[str, str] = {}
    tallies: dict[str, Tally] = {}
    programs: list[str] = []
    recovery: str = ""  # the number of the last recovery action, "" where none was told
    gone: bool = False  # the GPU was seen to be gone since
    lately: list[tuple[float, int]] = []  # of what counts when it is frequent: when and how many
    frequent: bool = False
    severity: Severity = Severity.INFO
    suspicion: str = ""
    is_news: bool = True  # more was told since it was weighed

    @property
    def thing(self) -> str:
        """What it is a story of."""
        return thing(self.subject, self.key)

    @property
    def count(self) -> int:
        """How often the cause was told."""
        return self.tallies[self.label].count

    @property
    def also(self) -> str:
        """What else was told, with how often."""
        return ", ".join(f"{label} x{one.count}" for label, one in self.tallies.items() if label != self.label)

    @property
    def action(self) -> str:
        """What to do: what the driver wants first."""
        wanted = causes.RECOVERIES.get(self.recovery)
        is_contained_ecc = self.label in UNCORRECTABLE and is_contained(self.tallies)
        remedy = causes.action("xid", 94, {}) if is_contained_ecc else causes.action(self.kind, self.code, self.facts)
        parts = [f"the driver asks for: {wanted}" if wanted else "", remedy, self.suspicion]
        return "; ".join(part for part in parts if part)


class Chronicle(msgspec.Struct):
    """All open stories, and when each trouble of each thing occurred before."""

    open: list[Story] = []
    past: dict[str, list[Occasion]] = {}
    boot: str = ""


class Scene(msgspec.Struct, frozen=True):
    """What a beat says about the GPUs, by key. `working`: when each that answers did so last (wall clock)."""

    boot: str = ""
    working: Mapping[str, float] = {}
    gone: Collection[str] = ()
    wants_nothing: Mapping[str, float] = {}  # since when the driver is known to want nothing done
    windows: Mapping[str, float] = {}  # of those that have a window for the CPU to their memory: when that was last seen
    shows: bool = True  # the board shows what was counted; a new one shows nothing


def add(chronicle: Chronicle, event: Event, count: int, *, clock: float, wall: float) -> list[Story]:
    """Take in an event; `count` 0 is a second telling of one that is counted. Returns the stories that it ended.

    How grave a story is by then is said by `weigh`, once for all that came together.
    """
    if event.kind in causes.SILENT:
        return []
    subject, key = causes.place(event)
    label = causes.label(event)
    if causes.is_end(event):
        return close(chronicle, [one for one in chronicle.open if (one.subject, one.key) == (subject, key)])
    ended: list[Story] = []
    story = belongs(chronicle, event, subject, key, label)
    heard = clock - max(0.0, wall - event.at)
    if story is None:
        same = [one for one in chronicle.open if (one.subject, one.key) == (subject, key) and label in one.tallies]
        ended = close(chronicle, [*same, *chronicle.open[: max(0, len(chronicle.open) + 1 - OPEN_LIMIT)]])
        story = begin(event, heard, event.mark.rpartition(":")[0] or chronicle.boot)
        chronicle.open.append(story)
    tell(story, event, count, label, heard)
    suspicion.note(chronicle.past, story.thing, label, event, story.boot)
    story.is_news = True
    return ended


def belongs(chronicle: Chronicle, event: Event, subject: str, key: str, label: str) -> Story | None:
    """Return the open story that an event goes on with, None where it begins one."""
    mine = [one for one in chronicle.open if (one.subject, one.key) == (subject, key)]
    for one in reversed(mine):
        lost = one.rank == causes.LOST and (one.gone or causes.rank(event) == causes.LOST)
        near = JOIN
        if label in one.tallies or subject == "disk":  # a controller that is reset takes its minutes
            near = AGAIN
        elif causes.is_recovery(event):
            near = ATTACH
        if lost or one.began - near <= event.at <= one.last + near:
            return one
    if event.kind in causes.STORAGE:  # what a disk takes down with it: its name says nothing of device mapper and RAID
        disks = [one for one in chronicle.open if one.subject == "disk" and abs(event.at - one.last) <= CHAIN]
        names = {"nvme_timeout", "nvme_disabled"}
        if event.kind not in names or not any(one.key != key and names & one.tallies.keys() for one in disks):
            return disks[-1] if disks else None
    return None


def thing(subject: str, key: str) -> str:
    """Return one name for a thing."""
    return f"{subject} {key}"


def begin(event: Event, heard: float, boot: str) -> Story:
    """Return a story that knows nothing yet but what it will be about."""
    subject, key = causes.place(event)
    return Story(
        subject=subject,
        key=key,
        began=event.at,
        last=event.at,
        heard=heard,
        boot=boot,
        kind=event.kind,
        code=event.code,
        label=causes.label(event),
        rank=causes.rank(event),
        title=causes.title(event),
        words=event.words,
        facts=dict(event.facts),
    )


def tell(story: Story, event: Event, count: int, label: str, heard: float) -> None:
    """Add an event to its story; a graver cause takes the place of the present one."""
    tally = story.tallies.get(label)
    if tally is None and len(story.tallies) < LABELS:
        tally = story.tallies[label] = Tally(event.kind, event.code)
    if tally is not None:
        tally.add(event, count)
    rank = causes.rank(event)
    # NVML tells the number alone, the kernel's line what it was. What is told of another thing is no better word for this one.
    is_better_told = (
        label == story.label and event.source != "nvml" and not story.facts and causes.place(event) == (story.subject, story.key)
    )
    if label in story.tallies and (rank < story.rank or is_better_told):
        story.kind, story.code, story.label, story.rank = event.kind, event.code, label, rank
        story.title, story.words, story.facts = causes.title(event), event.words, dict(event.facts)
    story.began, story.last, story.heard = min(story.began, event.at), max(story.last, event.at), max(story.heard, heard)
    if causes.is_recovery(event):
        story.recovery = event.facts.get("recovery", story.recovery)
    program = event.facts.get("name", "")
    if program and program not in story.programs and len(story.programs) < PROGRAMS:
        story.programs.append(program)
    if event.kind in FREQUENT:
        begun = event.at // BUCKET * BUCKET
        lately = dict(story.lately)
        lately[begun] = lately.get(begun, 0) + count
        story.lately = sorted((at, many) for at, many in lately.items() if abs(event.at - at) <= RATE_WINDOW)
        story.frequent = story.frequent or sum(many for _, many in story.lately) > RATE


def weigh(chronicle: Chronicle, story: Story, gpus: Collection[str]) -> None:
    """Say how grave a story is by now, and whether hardware is suspected: that needs other `gpus` on this host that are clean."""
    story.is_news = False
    grave = max((graded(chronicle, story, label, one) for label, one in story.tallies.items()), key=lambda one: one.rank)
    if story.subject == "gpu":
        others = [thing("gpu", key) for key in gpus if key != story.key]
        story.suspicion, least = suspicion.of_chip(chronicle.past, story.thing, tuple(story.tallies), grave, story.last)
        if not story.suspicion and any(one.code in PROGRAM_CODES for one in story.tallies.values()):
            story.suspicion = suspicion.of_programs(chronicle.past, story.thing, others, story.last)
            least = Severity.WARNING if story.suspicion else least
        grave = max(grave, least, key=lambda one: one.rank)
    story.severity = grave


def graded(chronicle: Chronicle, story: Story, label: str, tally: Tally) -> Severity:
    """Return what one label means in this story."""
    repeated = suspicion.repeated(chronicle.past, story.thing, label, story.last)
    if tally.kind == "sxid" and tally.severity is not Severity.CRITICAL:
        return Severity.WARNING if repeated else tally.severity  # fleets see single non-fatal ones all the time
    if tally.kind == "xid" and tally.code in PROGRAM_CODES:
        return Severity.INFO  # the programs' own business (operator.md 3), unless `suspicion` means the GPU
    if tally.kind in FREQUENT:
        return Severity.WARNING if story.frequent else Severity.INFO
    if label in {"Xid 38", "Xid 44"} and repeated:
        return Severity.CRITICAL
    if label in UNCORRECTABLE and is_contained(story.tallies):
        return Severity.WARNING
    return tally.severity


def is_contained(labels: Collection[str]) -> bool:
    """Say whether a memory error was handled as designed: one program has died, and its row waits for the remap."""
    return CONTAINED in labels and not any(label in labels for label in UNCONTAINED)


def settle(chronicle: Chronicle, scene: Scene, clock: float, gpus: Collection[str]) -> list[Story]:
    """Weigh what is new, end the stories that are over, and return those."""
    if scene.boot:
        chronicle.boot = scene.boot
    for story in chronicle.open:
        story.boot = story.boot or scene.boot  # told before it was known which boot this is
        story.gone = story.gone or (story.subject == "gpu" and story.key in scene.gone)
        if story.is_news:
            weigh(chronicle, story, gpus)
    return close(chronicle, [story for story in chronicle.open if is_over(story, scene, clock)])


def is_over(story: Story, scene: Scene, clock: float) -> bool:
    """Say whether a story is over: a reboot or a reset, a GPU that is back, or a long time without a word."""
    if scene.boot and story.boot != scene.boot:
        return True
    works_at = scene.working.get(story.key, -inf) if story.subject == "gpu" else -inf
    answers = works_at > story.last and story.key not in scene.gone
    if answers and (story.gone or (story.rank == causes.LOST and works_at - story.last >= WORKS)):
        return True
    if story.label == NO_WINDOW and works_at > story.last and scene.windows.get(story.key, -inf) > story.last:
        return True  # the kernel or the driver found room later, or the GPU does without what has none
    if story.recovery and scene.wants_nothing.get(story.key, -inf) > story.last:
        return True
    return clock - story.heard >= patience(story)


def patience(story: Story) -> float:
    """Return the seconds of silence after which a story is over."""
    if story.rank == causes.LOST or story.gone:
        return inf  # it does not come back by itself
    if story.rank == causes.PROGRAM and story.severity is not Severity.CRITICAL:
        return QUIET_PROGRAM
    return QUIET_MEMORY if story.rank == causes.CONTAINED else QUIET[story.severity]


def close(chronicle: Chronicle, stories: Iterable[Story]) -> list[Story]:
    """Take stories out of the open ones and return them."""
    ended = list(stories)
    chronicle.open = [one for one in chronicle.open if all(one is not other for other in ended)]
    return ended


def retold(events: Iterable[Event]) -> list[Story]:
    """Return the stories of a saved log, in the order in which they began to be told; nothing but the log is known."""
    chronicle, told = Chronicle(), list[Story]()
    for event in events:
        add(chronicle, event, event.count, clock=event.at, wall=event.at)
        told += [story for story in chronicle.open[-1:] if not told or story is not told[-1]]
        for story in chronicle.open:
            if story.is_news:
                weigh(chronicle, story, ())
    for story in told:  # by now it is known what came before each, in whatever order the log tells it
        weigh(chronicle, story, ())
    return told
