"""What `--for` takes, and what it says of anything else."""

import pytest

from gpuwatch.cli.lasting import lasting
from gpuwatch.config import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1.0), ("1000ms", 1.0), ("1.5m", 90.0), ("4h", 14_400.0), ("7d", 604_800.0), ("168h", 604_800.0)]
)
def test_every_unit_is_taken(text: str, seconds: float) -> None:
    assert lasting("here", text, 1.0, 604_800.0) == seconds


@pytest.mark.parametrize("text", ["", "2", "1w", "30D", "-5m", "5 m", "0s", "999ms", "8d", "7.1d", "30d", "9999d", "soon"])
def test_all_else_has_one_error_with_the_bounds_and_the_units(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        lasting("here", text, 1.0, 604_800.0)
    assert str(raised.value) == f'here: --for: expected 1s to 7d, a number with a unit (ms, s, m, h, d), got "{text}"'
