"""Where one rule stands with one target: the states of its steps, and what people were last told."""

from dataclasses import dataclass, field

from gpuwatch.model.alert import AlertState, Severity
from gpuwatch.model.target import Target
from gpuwatch.rules.judge import Growth
from gpuwatch.rules.language import Increase
from gpuwatch.rules.rule import Rule, Step
from gpuwatch.rules.step import Run, State

CALM = State()


@dataclass(slots=True)
class Alert:
    """One rule on one target. `resumed` is when we came back from a restart, until the first data since."""

    rule: Rule
    target: Target
    steps: tuple[Step, ...] = ()
    states: list[State] = field(default_factory=list)
    growth: dict[Increase, Growth] = field(default_factory=dict)
    since: float = 0.0  # wall clock at which the condition began to hold
    summary: str = ""
    resumed: float | None = None

    def aim(self, target: Target) -> None:
        """Take over what the target now says of itself; its model may ask for other numbers."""
        self.target = target
        steps = self.rule.steps_for(target)
        if steps is not self.steps:
            before = {step.severity: state for step, state in zip(self.steps, self.states, strict=True)}
            self.steps, self.states = steps, [before.get(step.severity, CALM) for step in steps]

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
