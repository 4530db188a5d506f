"""Which samples of use are asked for, whatever the wall clock does: the driver stamps them by it."""

import ctypes
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.process import HOLDER, HOLDER_UTILIZATION
from gpuwatch.model.target import Target
from gpuwatch.sources.nvml.library import CallError
from gpuwatch.sources.nvml.process_list import LAYOUTS, SAMPLE
from gpuwatch.sources.nvml.processes import LISTS, NOT_FOUND, Processes, UtilizationInfo
from gpuwatch.sources.nvml.verdicts import FUNCTION_NOT_FOUND
from tests.fakes.clock import FakeClock

PERIOD = 10.0
YEARS = 5 * 365 * 86400.0


class Driver:
    """The calls for processes: one process is there, whose use is sampled now; by the old call, or the new one."""

    def __init__(self, clock: FakeClock, *, is_new: bool) -> None:
        self.clock, self.is_new = clock, is_new

    def named(self, name: str, *_: Any) -> Any:
        """Refuse everything."""
        raise CallError(FUNCTION_NOT_FOUND)

    def attempt(self, name: str, _: Any, *words: Any, allowed: tuple[int, ...]) -> int:
        """Answer as the driver does: what is not newer than asked for is not found."""
        at = int(self.clock.wall() * 1e6)
        if name == LISTS["compute"] + "_v3":
            words[0]._obj.value = 1
            LAYOUTS[24].pack_into(words[1], 0, 7, 1 << 20, 0xFFFFFFFF, 0xFFFFFFFF)
            return 0
        if name == "nvmlDeviceGetProcessUtilization" and not self.is_new:
            buffer, count, since = words
            if at <= since.value:
                return NOT_FOUND
            count._obj.value = 1
            SAMPLE.pack_into(buffer, 0, 7, at, 55, 0, 0, 0)
            return 0
        if name == "nvmlDeviceGetProcessesUtilizationInfo":
            info: UtilizationInfo = words[0]._obj
            if at <= info.since:
                return NOT_FOUND
            info.count = 1
            row = at.to_bytes(8, "little") + b"".join(number.to_bytes(4, "little") for number in (7, 55, 0, 0, 0, 0, 0, 0))
            ctypes.memmove(info.rows, row, len(row))
            return 0
        raise CallError(FUNCTION_NOT_FOUND)


@pytest.fixture(params=[False, True], ids=["old call", "new call"])
def driver(request: pytest.FixtureRequest, clock: FakeClock) -> Driver:
    """The driver."""
    return Driver(clock, is_new=request.param)


@pytest.fixture
def look(driver: Driver, tmp_path: Path) -> Processes:
    """The lists of its GPU."""
    (tmp_path / "1").mkdir()  # a /proc of other processes than the host's: nobody is looked up there
    return Processes(driver, Target(subject=GPU, key="GPU-A"), driver.clock, str(tmp_path), PERIOD)  # type: ignore[arg-type] # all of it that is used


def use(look: Processes, clock: FakeClock) -> float | None:
    """Return the use of the process after a period."""
    clock.forward(PERIOD)
    *_, found = look.look(None)
    (holder,) = (one for one in found if one.target.subject is HOLDER)
    return holder.values.get(HOLDER_UTILIZATION)


def test_use_goes_on_where_the_clock_was_years_ahead_for_a_moment(look: Processes, clock: FakeClock) -> None:  # EN-55
    assert use(look, clock) == 0.55
    clock.step(YEARS)
    assert use(look, clock) == 0.55
    clock.step(-YEARS)
    assert [use(look, clock), use(look, clock)] == [0.55, 0.55]


def test_a_clock_that_goes_back_a_little_costs_one_look(look: Processes, clock: FakeClock) -> None:
    assert use(look, clock) == 0.55
    clock.step(-45)
    assert [use(look, clock) for _ in range(3)] == [None, 0.55, 0.55]
