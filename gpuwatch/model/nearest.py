"""Which known name somebody may have meant by one that is not known."""

from collections.abc import Iterable


def nearest(found: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names that come nearest, the nearest first; none where none is near."""
    import difflib  # noqa: PLC0415 - only a mistake needs it, and each worker reads a configuration

    return difflib.get_close_matches(found, sorted(known), n=most, cutoff=0.5)


def hint(found: str, known: Iterable[str]) -> str:
    """Return what comes nearest as a question behind a refusal, "" where nothing does."""
    return f"; did you mean {near[0]}?" if (near := nearest(found, known)) else ""
