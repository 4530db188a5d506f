"""The page on scenarios says what a scenario may say."""

import re
from pathlib import Path

import msgspec

from gpuwatch.sources.simulated.models import MODELS
from gpuwatch.sources.simulated.scenario import Event, Kind, Load, Scenario, read

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulation.md").read_text()
EXAMPLE = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_is_a_scenario_that_names_every_key(tmp_path: Path) -> None:
    """Whoever copies it gets a host, and sees all that can be said."""
    assert EXAMPLE is not None
    file = tmp_path / "mine.toml"
    file.write_text(EXAMPLE[1])

    found = read(file)

    assert found.model == "A40"
    for struct in (Scenario, Load, Event):
        for field in msgspec.structs.fields(struct):
            assert re.search(rf"\b{field.name}\b", EXAMPLE[1]), field.name


def test_every_model_and_every_kind_of_event_is_named() -> None:
    """Nothing that can be simulated is a secret."""
    for name in (*MODELS, *(f"`{kind.value}`" for kind in Kind)):
        assert name in PAGE, name
