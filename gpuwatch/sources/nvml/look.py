"""One look at one GPU: the calls of a tier, one by one and in a batch, with every answer sorted."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml import fields
from gpuwatch.sources.nvml.answers import Given
from gpuwatch.sources.nvml.bounds import plausible
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
                self.calls.append((chain, way, library.find(way.function), gives.get(chain, way.give)))
        self.numbers = [field.number for _, field in self.fields]


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
            self._batch(plan)
        self.absent.update(plan.never)

    def leave_out(self, metrics: Iterable[Metric]) -> None:
        """Give no value of these, which this GPU cannot have as it is now."""
        for metric in metrics:
            if self.values.pop(metric, None) is not None:
                self.absent[metric] = Absence.UNSUPPORTED

    def _call(self, chain: Chain, way: Call, function: Callable[..., Any] | None, give: Give) -> None:
        """Make one call; where it does not exist here, go on with the chain's next way at once."""
        try:
            given = give(self._library.call(function, self._handle, *way.arguments))
        except (GpuGoneError, DriverGoneError):
            raise
        except CallError as error:
            following = self._refused(chain, way, error.code)
            if following is not None:
                self._instead(chain, following)
        else:
            self._took(chain, given)

    def _instead(self, chain: Chain, way: Call) -> None:
        """Make the call that stands in for one which this driver lacks."""
        self._call(chain, way, self._library.find(way.function), self._gives.get(chain, way.give))

    def _batch(self, plan: Plan) -> None:
        """Read all fields in one call, then make the calls that stand in for the fields which this driver lacks."""
        whole = 0
        answers: Any = ()
        try:
            answers = self._library.named("nvmlDeviceGetFieldValues", self._handle, plan.numbers)
        except (GpuGoneError, DriverGoneError):
            raise
        except CallError as error:
            whole = error.code  # the call fails only where every field in it does
        instead: list[tuple[Chain, Call]] = []
        for position, (chain, field) in enumerate(plan.fields):
            code = whole or answers[position].nvmlReturn
            if code == 0:
                self._took(chain, fields.given(field, answers[position], chain.metrics))
                continue
            if not whole:
                verdict = self._library.classify(code)
                if isinstance(verdict, (GpuGoneError, DriverGoneError)):
                    raise verdict
            following = self._refused(chain, field, code)
            if following is not None:
                instead.append((chain, following))
        for chain, way in instead:
            self._instead(chain, way)

    def _took(self, chain: Chain, given: Given) -> None:
        """Sort an answer into values and absences."""
        self._ways.worked(chain)
        given = self.given[chain] = {
            metric: plausible(metric, given.get(metric, Absence.UNSUPPORTED)) for metric in chain.metrics
        }
        for metric, value in given.items():
            if isinstance(value, Absence):
                self.absent[metric] = value
            else:
                self.values[metric] = value
                self.absent.pop(metric, None)

    def _refused(self, chain: Chain, way: Call | Field, code: int) -> Call | None:
        """Note an error; return the call to make instead, None where there is none."""
        if not permanent(way, code):
            self.codes.append(code)
        self.absent.update(dict.fromkeys(chain.metrics, why(code, way)))
        if not self._ways.refused(chain, way, code, self._now):
            return None
        following = self._ways.present(chain)
        return following if isinstance(following, Call) else None
