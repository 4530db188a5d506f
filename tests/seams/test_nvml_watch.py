"""The event wait of one GPU, against every code that each of its calls can answer."""

import queue
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gpuwatch.config import Config
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.event import Event
from gpuwatch.sources.nvml import bits
from gpuwatch.sources.nvml.gpu import Gpu
from gpuwatch.sources.nvml.identity import Identity
from gpuwatch.sources.nvml.library import Library
from gpuwatch.sources.nvml.watch import BREATH, Watch
from tests.fakes.until import until

CODES = (*range(1, 31), 999)
PERMANENT = {3, 13, 26}
DRIVER = {1, 9, 18}
GONE = {15, 16}
CALLS = (
    "nvmlEventSetCreate",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait",
    "nvmlEventSetFree",
)


class CodeError(Exception):
    """NVMLError of a pynvml."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class Pynvml:
    """The functions of pynvml that a watch calls: one of them answers a code the first time, an Xid comes after that."""

    NVMLError = CodeError

    def __init__(self, function: str = "", code: int = 0, supported: int = bits.WANTED) -> None:
        self.function, self.code, self.supported = function, code, supported
        self.calls: Counter[str] = Counter()
        self.live: set[int] = set()
        self.masks: list[int] = []
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def xid(self, code: int) -> None:
        """Have an Xid come."""
        self.events.put(SimpleNamespace(eventType=8, eventData=code, gpuInstanceId=0xFFFFFFFF, computeInstanceId=0xFFFFFFFF))

    def nvmlEventSetCreate(self) -> int:  # noqa: N802 - its name
        """Make a set."""
        self._called("nvmlEventSetCreate")
        made = self.calls["nvmlEventSetCreate"]
        self.live.add(made)
        return made

    def nvmlDeviceGetSupportedEventTypes(self, handle: object) -> int:  # noqa: N802 - its name and arguments
        """Return the bits."""
        self._called("nvmlDeviceGetSupportedEventTypes")
        return self.supported

    def nvmlDeviceRegisterEvents(self, handle: object, mask: int, event_set: int) -> None:  # noqa: N802 - as above
        """Register."""
        self._called("nvmlDeviceRegisterEvents")
        assert event_set in self.live
        self.masks.append(mask)

    def nvmlEventSetWait(self, event_set: int, milliseconds: int) -> object:  # noqa: N802 - its name
        """Wait."""
        self._called("nvmlEventSetWait")
        assert event_set in self.live
        assert self.masks
        try:
            return self.events.get(timeout=milliseconds / 1e3)
        except queue.Empty:
            raise CodeError(10) from None

    def nvmlEventSetFree(self, event_set: int) -> None:  # noqa: N802 - its name
        """Free."""
        self.live.remove(event_set)
        self._called("nvmlEventSetFree")

    def _called(self, function: str) -> None:
        self.calls[function] += 1
        if function == self.function and self.calls[function] == 1:
            raise CodeError(self.code)


class Desk:
    """Who hears what the watch says."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.reread_bits: list[int] = []
        self.gone: list[int] = []
        self.driver_gone: Callable[[int], None] = self.gone.append

    def tell(self, event: Event) -> None:
        """Take an event."""
        self.told.append(event)

    def reread(self, gpu: Gpu, kinds: int) -> None:
        """Take what is to be read again."""
        self.reread_bits.append(kinds)


class Case:
    """One watch of one GPU."""

    def __init__(self, module: Pynvml) -> None:
        self.module, self.desk = module, Desk()
        library = self.library = Library(module)
        self.gpu = Gpu(library, SystemClock(), Identity(key="GPU-1", address=None, info={}), 0, Config())
        self.gpu.handle = object()
        self.watch = Watch(library, self.gpu, SystemClock(), self.desk)
        assert self.watch.begin()

    def give_up(self) -> None:
        """Take the handle away."""
        self.gpu.handle = None
        self.watch.end()


def ends(function: str, code: int) -> bool:
    """Return whether this answer ends the watch for good; of a refused registration only one bit may be to blame."""
    return code in DRIVER or (code in PERMANENT and (function, code) != ("nvmlDeviceRegisterEvents", 3))


def test_whatever_a_call_answers_once_nothing_is_left_over_and_the_next_try_is_whole() -> None:
    cases = {(function, code): Case(Pynvml(function, code)) for function in CALLS for code in CODES}
    for (function, code), case in cases.items():
        if function == "nvmlEventSetFree":  # which comes last
            continue
        case.module.xid(43)
        if ends(function, code):
            assert case.watch.ended(20.0), (function, code)
            assert case.desk.told == []
        elif code not in GONE:
            until(lambda case=case: case.desk.told)  # type: ignore[misc] # mypy cannot tell its type
            assert [event.code for event in case.desk.told] == [43], (function, code)
        assert case.desk.gone == ([code] if code in DRIVER else []), (function, code)
    for (function, _), case in cases.items():
        if function == "nvmlEventSetFree":
            until(lambda case=case: case.module.calls["nvmlEventSetWait"])  # type: ignore[misc] # as above
        case.give_up()
    for place, case in cases.items():
        assert case.watch.ended(20.0), place
        assert case.module.calls[place[0]] >= 1, place
        assert case.module.live == set(), place


def test_what_is_asked_for_is_what_is_wanted_and_supported() -> None:
    case = Case(Pynvml(supported=0x1F))
    case.module.xid(79)
    until(lambda: case.desk.told)
    case.give_up()
    assert case.module.masks == [0xA]


def test_a_card_with_nothing_that_we_want_is_left_alone() -> None:
    case = Case(Pynvml(supported=0x14))
    assert case.watch.ended(20.0)
    assert case.module.masks == []
    assert case.module.live == set()


def test_a_lost_card_is_not_touched_again_until_its_own_look_has_said_so() -> None:
    lost = Case(Pynvml("nvmlEventSetWait", 15))
    until(lambda: lost.module.calls["nvmlEventSetFree"] == 1)
    other = Case(Pynvml("nvmlEventSetWait", 999))
    until(lambda: other.module.calls["nvmlDeviceRegisterEvents"] == 2)  # so much later
    for case in (lost, other):
        case.give_up()
        assert case.watch.ended(20.0)
    assert lost.module.calls["nvmlDeviceRegisterEvents"] == 1


def test_a_wait_in_which_nothing_happens_is_no_error() -> None:
    case = Case(Pynvml())
    until(lambda: case.module.calls["nvmlEventSetWait"] > 2)
    case.give_up()
    assert case.module.calls["nvmlEventSetCreate"] == 1
    assert not any(case.library.errors().values())


def test_an_event_that_comes_as_the_card_is_lost_is_told_and_one_that_another_watch_tells_is_not() -> None:
    lost, opened_anew = Case(Pynvml()), Case(Pynvml())
    for case in (lost, opened_anew):
        until(lambda case=case: case.module.calls["nvmlEventSetWait"])  # type: ignore[misc] # as above
    lost.gpu.handle = None
    opened_anew.gpu.handle = object()
    for case in (lost, opened_anew):
        case.module.xid(79)
        assert case.watch.ended(20.0)
    assert ([event.code for event in lost.desk.told], opened_anew.desk.told) == ([79], [])


def test_a_wait_that_comes_back_early_with_nothing_does_not_spin() -> None:
    case = Case(Pynvml())
    nothing = SimpleNamespace(eventType=0, eventData=0, gpuInstanceId=0, computeInstanceId=0)
    for _ in range(50):
        case.module.events.put(nothing)
    started = time.monotonic()
    until(lambda: case.module.calls["nvmlEventSetWait"] > 4)
    case.give_up()
    assert time.monotonic() - started > 3 * BREATH


def test_events_that_change_numbers_have_them_read_again_once_a_second() -> None:
    case = Case(Pynvml())
    started = time.monotonic()
    for _ in range(300):
        case.module.events.put(SimpleNamespace(eventType=0x100, eventData=0, gpuInstanceId=0, computeInstanceId=0))
    until(case.module.events.empty)
    case.give_up()
    assert case.watch.ended(20.0)
    assert case.desk.told == []  # the layout is told by who reads it
    assert set(case.desk.reread_bits) == {0x100}
    assert len(case.desk.reread_bits) <= 2 + time.monotonic() - started
