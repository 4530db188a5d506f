"""How long something is to last: what `--for` takes, and the one error where it is anything else."""

from gpuwatch.config import ConfigError
from gpuwatch.model.escape import printable
from gpuwatch.model.quantity import SECONDS, Duration, duration, in_units


def lasting(place: str, text: str, least: float, most: float) -> float:
    """Return the seconds that `--for` says; raises ConfigError with its bounds and units."""
    try:
        seconds = float(duration(text))
    except ValueError:
        seconds = 0.0
    if not least <= seconds <= most:
        bounds = f"{in_units(Duration(least))} to {in_units(Duration(most))}"
        problem = f'expected {bounds}, a number with a unit ({", ".join(SECONDS)}), got "{printable(text, 40)}"'
        raise ConfigError(place, "--for", problem)
    return seconds
