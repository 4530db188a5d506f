"""Fixtures that every room may use; a room's own fixtures lie beside its tests."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes.clock import FakeClock

# How long an example takes says something about the machine, not about the code.
settings.register_profile("gpuwatch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpuwatch")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def clock() -> FakeClock:
    """Both clocks, turned by hand."""
    return FakeClock()


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder of recorded inputs that lies beside the clone where the developers have it."""
    data = SHARED / "data"
    if not data.is_dir():
        pytest.skip("the recorded inputs (shared/data beside the clone) are not on this machine")
    return data


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage once the tests are collected: all that is made till then stays, and looking through it takes long."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


ROOMS = ("system", "seams", "shipped", "unit")  # what waits longest begins first, so that what computes fills the waits


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by room; within a room they stay as they are."""
    items.sort(key=lambda item: next((rank for rank, room in enumerate(ROOMS) if room in item.path.parts), len(ROOMS)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --regold, which writes golden files anew; a reviewer reads the difference."""
    parser.addoption("--regold", action="store_true", help="write the golden files anew")


@pytest.fixture
def regold(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written anew."""
    return bool(request.config.getoption("--regold"))
