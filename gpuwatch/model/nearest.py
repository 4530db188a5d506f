"""Which known name somebody may have meant by one that is not known."""

from collections.abc import Iterable


def nearest(found: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names that come nearest, the nearest first; none where none is near."""
    import difflib  # noqa: PLC0415 - only a mistake needs it, and each worker reads a configuration

    return difflib.get_close_matches(found, sorted(known), n=most, cutoff=0.5)


def hint(found: str, known: Iterable[str], most: int = 1, head: str = "") -> str:
    """Return what comes nearest as a question behind a refusal, "" where nothing does; `head` stands before each name."""
    near = nearest(found, known, most)
    return f"; did you mean {' or '.join(head + name for name in near)}?" if near else ""


def advice(found: str, known: Iterable[str], most: int = 1) -> str:
    """Return the question of `hint`, or where nothing comes near all names. What was found is not in it: it may be a secret."""
    names = sorted(known)
    return hint(found, names, most) or (f"; known are {', '.join(names)}" if names else "; there is none")
