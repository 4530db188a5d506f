"""What is said of a name that is not known."""

import pytest

from gpuwatch.model.nearest import advice, hint

KNOWN = {"gpu", "uuid", "severity"}


@pytest.mark.parametrize(
    ("found", "most", "said"),
    [
        ("gpuu", 1, "; did you mean gpu?"),
        ("gpuu", 3, "; did you mean gpu or uuid?"),
        ("x", 3, "; known are gpu, severity, uuid"),
    ],
)
def test_the_nearest_names_are_asked_for_or_all_are_told(found: str, most: int, said: str) -> None:
    assert advice(found, KNOWN, most) == said


def test_where_there_is_no_name_that_is_said() -> None:
    assert advice("x", ()) == "; there is none"


def test_what_is_hinted_at_is_written_as_people_write_it() -> None:
    assert (hint("gpuu", KNOWN, head="--"), hint("x", KNOWN, head="--")) == ("; did you mean --gpu?", "")
