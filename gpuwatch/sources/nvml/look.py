"""One look at one GPU: the calls of a tier, one by one and in a batch, with every answer sorted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml import fields
from gpuwatch.sources.nvml.answers import Given
from gpuwatch.sources.nvml.bounds import plausible, refuted
from gpuwatch.sources.nvml.fields import Field
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, GpuGoneError, Library
from gpuwatch.sources.nvml.readers import Call, Chain
from gpuwatch.sources.nvml.ways import Ways, permanent, why

Give = Callable[[Any], Given]
Step = tuple[Chain, Call, Callable[..., Any] | None, Give]


class Plan:
    """What one tier asks of one GPU: calls one by one, fields in a batch, and what this GPU will not have."""

    def __init__(self, chains: tuple[Chain, ...], ways: Ways, library: Library, gives: Mapping[Chain, Give]) -> None:
        self.chains = chains
        self.version = ways.version
        self.calls: list[Step] = []
        self.fields: list[tuple[Chain, Field]] = []
        self.never: dict[Metric, Absence] = {}
        for chain in chains:
            way = ways.present(chain)
            if way is None:
                self.never.update(dict.fromkeys(chain.metrics, Absence.UNSUPPORTED))
            elif isinstance(way, Field):
                self.fields.append((chain, way))
            else:
                self.calls.append((chain, way, function(library, way), gives.get(chain, way.give)))


class Look:
    """The pass itself. `run` raises GpuGoneError or DriverGoneError; every other error costs the metrics of its call."""

    def __init__(self, library: Library, handle: Any, ways: Ways, gives: Mapping[Chain, Give], now: float) -> None:
        self.values: dict[Metric, float] = {}
        self.absent: dict[Metric, Absence] = {}
        self.given: dict[Chain, Given] = {}
        self.codes: list[int] = []  # what is no matter of an older driver or a lesser card
        self._library = library
        self._handle = handle
        self._ways = ways
        self._gives = gives
        self._now = now

    def run(self, plan: Plan) -> None:
        """Make every call of the plan."""
        for step in plan.calls:
            self._call(*step)
        if plan.fields:
            self._batch(plan.fields)
        self.absent.update(plan.never)
        untrue = refuted(self.values)
        for metric in untrue:
            del self.values[metric]
        self.absent.update(untrue)

    def add(self, given: Given) -> None:
        """Take what was read in another way."""
        for metric, value in given.items():
            if isinstance(value, Absence):
                self.absent[metric] = value
            else:
                self.values[metric] = value

    def take(self, metric: Metric) -> float | Absence:
        """Take a number out; one that nobody has read is not supported."""
        why = self.absent.pop(metric, Absence.UNSUPPORTED)
        return self.values.pop(metric, why)

    def leave_out(self, metrics: Iterable[Metric]) -> None:
        """Give no value of these, which this GPU cannot have as it is now."""
        for metric in metrics:
            if self.values.pop(metric, None) is not None:
                self.absent[metric] = Absence.UNSUPPORTED

    def _call(self, chain: Chain, way: Call, ask: Callable[..., Any] | None, give: Give) -> None:
        """Make one call; where it does not exist here, go on with the chain's next way at once."""
        try:
            given = give(self._library.call(ask, self._handle, *way.arguments))
        except (GpuGoneError, DriverGoneError):
            raise
        except CallError as error:
            following = self._refused(chain, way, error.code)
            if isinstance(following, Call):  # no chain goes from a call to a field
                self._instead(chain, following)
        else:
            self._took(chain, given)

    def _instead(self, chain: Chain, way: Call) -> None:
        """Make the call that stands in for one which this driver lacks."""
        self._call(chain, way, function(self._library, way), self._gives.get(chain, way.give))

    def _batch(self, asked: Sequence[tuple[Chain, Field]]) -> None:
        """Read fields in one call, then what stands in for those which this driver lacks."""
        whole = 0
        answers: Any = ()
        try:
            answers = self._library.named("nvmlDeviceGetFieldValues", self._handle, [(one.number, one.scope) for _, one in asked])
        except (GpuGoneError, DriverGoneError):
            raise
        except CallError as error:
            whole = error.code  # the call fails only where every field in it does
        calls: list[tuple[Chain, Call]] = []
        others: list[tuple[Chain, Field]] = []
        for position, (chain, field) in enumerate(asked):
            code = whole or answers[position].nvmlReturn
            if code == 0:
                self._took(chain, fields.given(field, answers[position], chain.metrics))
                continue
            if not whole:
                verdict = self._library.classify(code)
                if isinstance(verdict, (GpuGoneError, DriverGoneError)):
                    raise verdict
            following = self._refused(chain, field, code)
            if isinstance(following, Field):
                others.append((chain, following))
            elif following is not None:
                calls.append((chain, following))
        if others:
            self._batch(others)
        for chain, way in calls:
            self._instead(chain, way)

    def _took(self, chain: Chain, given: Given) -> None:
        """Sort an answer into values and absences."""
        self._ways.worked(chain)
        told = self.given[chain] = dict[Metric, float | Absence]()
        for metric in chain.metrics:
            value = told[metric] = plausible(metric, given.get(metric, Absence.UNSUPPORTED))
            if isinstance(value, Absence):
                self.absent[metric] = value
            else:
                self.values[metric] = value
                self.absent.pop(metric, None)

    def _refused(self, chain: Chain, way: Call | Field, code: int) -> Call | Field | None:
        """Note an error; return what to ask instead, None where there is nothing."""
        if not permanent(way, code):
            self.codes.append(code)
        self.absent.update(dict.fromkeys(chain.metrics, why(code, way)))
        if not self._ways.refused(chain, way, code, self._now):
            return None
        return self._ways.present(chain)


def function(library: Library, way: Call) -> Callable[..., Any] | None:
    """Return the function of a call, None where this pynvml is older."""
    return library.find(way.function) if way.struct is None else library.filler(way.function, *way.struct)
