"""Where one rule stands with one target: the states of its steps, and what people were last told.

Nearly always nothing is wrong and nothing changes. Then an alert is idle: its states are left as they are, and only the time
up to which they hold moves on; `wake` writes it into them.
"""

from collections.abc import Mapping
from math import inf

import msgspec

from gpuwatch.model.alert import AlertState, Severity
from gpuwatch.model.target import Target
from gpuwatch.rules.judge import Growth
from gpuwatch.rules.language import Increase
from gpuwatch.rules.rule import Rule, Step
from gpuwatch.rules.step import SPEAKS_FOR, Run, State

CALM = State()


class Facts(msgspec.Struct, frozen=True):
    """What is known of an alert: it only ever grows while the alert lasts."""

    measured: Mapping[str, float] = {}  # what the target itself shows, by metric
    sides: Mapping[str, float] = {}  # of the condition: `value` and `threshold`
    numbers: Mapping[str, float] = {}  # what detectors found
    words: Mapping[str, str] = {}
    otherwise: Mapping[str, str] = {}  # in place of words that nobody knows


class Alert(msgspec.Struct):
    """One rule on one target. `resumed` is when we came back from a restart, until the first data since."""

    rule: Rule
    target: Target
    steps: tuple[Step, ...] = ()
    states: list[State] = []
    growth: dict[Increase, Growth] = {}
    since: float = 0.0  # wall clock at which the condition began to hold
    summary: str = ""
    facts: Facts = Facts()  # of the summary
    complete_at: float | None = None  # monotonic time at which they are brought up to date
    pause: float = 0.0  # seconds from the last time to that one
    resumed: float | None = None
    idle: list[bool | None] | None = None  # the verdicts that go on unchanged
    idle_to: float = 0.0

    def aim(self, target: Target) -> None:
        """Take over what the target now says of itself; its model may ask for other numbers, once nothing is wrong."""
        self.target = target
        steps = self.rule.steps_for(target)
        if steps is not self.steps and self.severity is None:
            self.wake()
            before = {step.severity: state for step, state in zip(self.steps, self.states, strict=True)}
            self.steps, self.states = steps, [before.get(step.severity, CALM) for step in steps]

    def rests(self, verdicts: list[bool | None], now: float) -> bool:
        """Say whether an idle alert goes on as it is; if not, it is awake now."""
        if verdicts == self.idle and now - self.idle_to <= self.patience:
            self.idle_to = now
            return True
        self.wake()
        return False

    def doze(self, verdicts: list[bool | None], now: float) -> None:
        """Become idle where the next beat with the same verdicts would change nothing but times."""
        for step, state, verdict in zip(self.steps, self.states, verdicts, strict=True):
            if state.phase is not AlertState.INACTIVE or verdict:
                return
            runs = state.runs
            quiet = not runs if verdict is None else len(runs) == 1 and not runs[0].held and runs[0].end == now
            if step.timing.share is not None and not quiet:
                return
        self.idle, self.idle_to = verdicts, now

    def wake(self) -> None:
        """Write the time up to which an idle alert was idle into its states."""
        if self.idle is not None:
            self.idle = None
            self.states = [
                State(at=self.idle_to, runs=tuple(run._replace(end=self.idle_to) for run in state.runs)) for state in self.states
            ]

    @property
    def patience(self) -> float:
        """Seconds between two beats above which an idle alert has to look closer."""
        windows = [step.timing.window for step in self.steps if step.timing.share is not None]
        return min(windows) / SPEAKS_FOR if windows else inf

    def shift(self, seconds: float) -> None:
        """Move all durations: time in which we did not live does not count."""
        self.states = [shifted(state, seconds) for state in self.states]
        for growth in self.growth.values():
            growth.shift(seconds)

    @property
    def phase(self) -> AlertState:
        """The state of the whole: firing before recovering before stale before pending."""
        phases = {state.phase for state in self.states}
        order = (AlertState.FIRING, AlertState.RECOVERING, AlertState.STALE, AlertState.PENDING)
        return next((phase for phase in order if phase in phases), AlertState.INACTIVE)

    @property
    def severity(self) -> Severity | None:
        """The gravest severity that is active, None where nothing is."""
        active = [step.severity for step, state in zip(self.steps, self.states, strict=True) if state.active]
        return active[-1] if active else None


def shifted(state: State, seconds: float) -> State:
    """Return the state with all its times moved."""
    if state is CALM:
        return state
    return State(
        phase=state.phase,
        since=state.since + seconds,
        at=None if state.at is None else state.at + seconds,
        missed=state.missed,
        runs=tuple(Run(run.start + seconds, run.end + seconds, run.held) for run in state.runs),
    )
