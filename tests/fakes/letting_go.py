"""A host that lets go of its GPUs: one run of the releasing room after another, on the same disk and board."""

from contextlib import ExitStack

from gpuwatch.catalogue.gpu import (
    DRIVER,
    DRIVER_STATE,
    GPU,
    GPUS,
    POWER,
    RELEASED_BEFORE_SINCE,
    RELEASED_BEFORE_UNTIL,
    RELEASED_SINCE,
    RELEASED_UNTIL,
    VISIBLE,
)
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE
from gpuwatch.daemon.releasing import Releasing
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.silence import Silence
from gpuwatch.model.target import Target
from gpuwatch.sampling.board import Board
from tests.fakes.clock import FakeClock
from tests.fakes.until import until

A, B = (
    Target(subject=GPU, key=f"GPU-{n}", labels={"gpu": str(n), "uuid": f"GPU-{n}"}, info={"vbios_version": "1"}) for n in (0, 1)
)


class Disk:
    """The store: what is saved is there at once, unless nothing can be read yet."""

    def __init__(self) -> None:
        self.remembers = self.takes = True
        self.kept: dict[str, tuple[int, bytes]] = {}

    def load_state(self, name: str) -> tuple[int, bytes] | None:
        """Return it."""
        return self.kept.get(name)

    def save_state(self, name: str, version: int, blob: bytes) -> "Disk":
        """Keep it."""
        self.kept[name] = version, blob
        return self

    def wait(self, seconds: float) -> bool:
        """Say whether it is on the disk."""
        return seconds > 0 and self.takes


class Crew:
    """Worker processes; a stuck one does not end."""

    name = "gpuwatch-nvml"

    def __init__(self) -> None:
        self.is_paused = self.is_stuck = False

    def pause(self) -> None:
        """End."""
        self.is_paused = True

    def go_on(self) -> None:
        """Start again."""
        self.is_paused = False

    def pids(self) -> list[int]:
        """Return who is there."""
        return [4711] if self.is_stuck or not self.is_paused else []


class Told:
    """Rules and silences, as far as they are told of a release."""

    resting: frozenset[Subject] = frozenset()
    standing: Silence | None = None

    def hold(self, standing: Silence | None) -> None:
        """Note it."""
        self.standing = standing


class Host:
    """One run of the daemon after another on the same disk and board."""

    def __init__(self, stack: ExitStack) -> None:
        self.clock, self.disk, self.crew, self.told = FakeClock(), Disk(), Crew(), Told()
        self.board = Board({})
        self.happened: list[Event] = []
        self.installer = ""
        self._stack = stack
        self.start()

    @property
    def events(self) -> list[Event]:
        """What was told of the ends of releases."""
        return [event for event in self.happened if event.kind != "released"]

    def start(self) -> Releasing:
        """Begin a run."""
        self.crew, self.told, self.board = Crew(), Told(), Board({})
        self.releasing = Releasing(
            [self.crew],
            board=self.board,
            engine=self.told,
            silences=self.told,
            store=self.disk,
            clock=self.clock,
            happened=self.happened.append,
            at_work=lambda: self.installer,
        )
        self.releasing.start()
        self._stack.callback(self.releasing.stop)
        return self.releasing

    def restart(self) -> None:
        """End the run, and begin another."""
        self.releasing.stop()
        self.start()

    def post(self, target: Target, values: dict[Metric, float], tier: Tier = Tier.NORMAL, fault: Fault | None = None) -> None:
        """NVML tells of something."""
        wall, mono = self.clock.wall(), self.clock.mono()
        self.board.post(Reading(source="nvml", tier=tier, target=target, at=wall, took=0.0, values=values, fault=fault), mono)

    def shows(self, *cards: Target, driver: str = "535.154.05", mig: dict[str, list[str]] | None = None) -> None:
        """NVML tells of all."""
        self.post(Target(subject=DRIVER, key="", info={"driver_version": driver}), DRIVER_STATE.at("ok"))
        self.post(Target(subject=GPUS, key=""), {VISIBLE["nvml"]: float(len(cards))})
        for uuid, profiles in (mig or {}).items():
            for number, profile in enumerate(profiles):
                labels = {"gpu": "0", "uuid": uuid, "gpu_instance": str(number)}
                self.post(
                    Target(subject=MIG, key=f"{uuid}/{number}", labels=labels, info={"profile": profile}), {MIG_MEMORY_SIZE: 1.0}
                )
        for card in cards:
            self.post(card, {POWER: 100.0})
            self.post(card, {}, Tier.SLOW)

    def beat(self) -> None:
        """The judge takes what a release says."""
        for reading in self.releasing.readings(self.clock.wall()):
            self.board.post(reading, self.clock.mono())

    def state(self) -> str:
        """Return how it stands."""
        return str(self.releasing.state()["state"])

    def until(self, state: str) -> None:
        """Wait until it stands so."""
        until(lambda: self.state() == state)

    def lasts(self) -> tuple[str, float, str]:
        """Return how it stands, how long it still lasts, and by whom it is."""
        state = self.releasing.state()
        return state["state"], round(state["until"] - self.clock.wall(), 3), state["by"]

    def until_began(self, wall: float) -> None:
        """Wait until it is known to have begun then."""
        until(lambda: self.releasing.state()["since"] == wall)

    def driver(self) -> str:
        """Return the state of the driver, "" for none."""
        self.beat()
        (entry,) = self.board.view(self.clock.wall(), self.clock.mono()).of(DRIVER)
        return next((name for name, metric in DRIVER_STATE.items() if entry.values.get(metric) == 1), "")

    def before(self) -> tuple[float | None, float | None]:
        """Return since when and until when they were released just before that, as the detectors see it."""
        self.beat()
        view = self.board.view(self.clock.wall(), self.clock.mono())
        driver = Target(subject=DRIVER, key="")
        return view.value(driver, RELEASED_BEFORE_SINCE), view.value(driver, RELEASED_BEFORE_UNTIL)

    def span(self) -> tuple[float | None, float | None]:
        """Return since when and until when the GPUs were released, as the detectors see it."""
        self.beat()
        view = self.board.view(self.clock.wall(), self.clock.mono())
        driver = Target(subject=DRIVER, key="")
        return view.value(driver, RELEASED_SINCE), view.value(driver, RELEASED_UNTIL)
