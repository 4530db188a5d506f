"""Stories for rules: the shipped rules over a host that the test tells."""

from collections.abc import Callable

import pytest

from gpuwatch import shipped
from gpuwatch.rules.load import load
from tests.fakes.story import Story


@pytest.fixture
def tell() -> Callable[..., Story]:
    """Return what begins a story; `overrides` are the tables of `[rules]`."""

    def begin(overrides: dict[str, object] | None = None, **facts: object) -> Story:
        return Story(load(shipped.folder("alerts"), overrides or {}, "gpuwatch.toml"), **facts)  # type: ignore[arg-type] # facts go through as they are

    return begin


@pytest.fixture
def story(tell: Callable[..., Story]) -> Story:
    """One GPU at a beat of a second, under the rules that ship."""
    return tell()
