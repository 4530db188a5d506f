"""The table of a history: a line for each moment at which something was known, and columns that can be told apart."""

from gpuwatch.cli.history import apart, heading, table
from gpuwatch.export.history import HistoryDocument, Line


def line(points: list[list[float | None]], **facts: object) -> Line:
    """Return one series; `facts` are fields of it."""
    known: dict[str, object] = {
        "subject": "gpu",
        "metric": "power_watts",
        "key": "",
        "unit": "watts",
        "keep": "mean",
        "labels": {},
        "members": {},
    }
    known |= {"family": "", "kind": "gauge"}
    return Line(points=points, **{**known, **facts})  # type: ignore[arg-type] # as they are


def rows(*columns: Line, step: float = 10) -> list[str]:
    """Return the cells of a table, without the times."""
    found = HistoryDocument(version="1", since=0, until=100, step=step, oldest=0, series=list(columns), events=[], truncated=[])
    return [" ".join(text.split()[2:]) for text in list(table(columns, found))[2:]]


def test_a_gap_of_one_series_is_no_line_of_its_own_where_others_have_values() -> None:
    """A round is never exactly 10 s after the one before."""
    whole = line([[0.0, 1.0], [10.01, 2.0], [20.02, 3.0], [30.03, 4.0]], labels={"gpu": "0"})
    gone = line([[0.0, 5.0], [10.0, None], [30.03, 6.0]], labels={"gpu": "1"})
    assert rows(whole, gone) == ["1 5", "2 -", "3 -", "4 6"]


def test_a_gap_of_all_is_one_line_of_dashes() -> None:
    one = line([[0.0, 1.0], [10.0, None], [90.0, 2.0]], labels={"gpu": "0"})
    other = line([[0.2, 5.0], [10.2, None], [90.0, 6.0]], labels={"gpu": "1"})
    assert rows(one, other) == ["1 -", "- 5", "- -", "2 6"]


def test_headings_say_what_the_columns_differ_in() -> None:
    labels = {"rule": "host_rebooted_unexpectedly", "severity": "warning"}
    states = [line([], metric=f"state_{name}", labels=labels, members={"state": name}) for name in ("pending", "firing", "stale")]
    assert [heading(one, states) for one in states] == ["pending", "firing", "stale"]
    many = [line([], labels={"gpu": str(index), "uuid": f"GPU-{index}", "fan": "0"}) for index in range(8)]
    assert [heading(one, many) for one in many] == [f"GPU {index}" for index in range(8)]
    assert heading(many[0], many[:1]) == "GPU 0 fan 0"


def test_headings_are_cut_as_far_as_they_can_be_told_apart() -> None:
    rule = "host_rebooted_unexpectedly"
    assert apart([f"{rule} critical", f"{rule} warning"], ["", ""]) == [f"{rule} critical", f"{rule} warning"]
    many = [f"recovering gpu_overheating GPU {index} warning" for index in range(8)]
    assert apart(many, [""] * 8) == [f"recovering gpu_overheating GPU {index}…" for index in range(8)]


def test_two_cards_that_had_one_index_are_told_apart_by_their_keys() -> None:
    assert apart(["GPU 0", "GPU 0", "GPU 1"], ["GPU-a", "GPU-b", "GPU-c"]) == ["GPU 0 GPU-a", "GPU 0 GPU-b", "GPU 1"]
