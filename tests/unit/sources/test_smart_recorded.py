"""Recorded captures of real drives: every one is judged as its index allows, and its numbers are the index's.

Selected are all rows of index.csv but kind `scan`: JSON captures through the JSON parser (with the drive's text through
pySMART where the index names it), text captures through pySMART alone, as a smartctl older than 7.0 gives them.
"""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.sources.program import Ending, Run
from gpuwatch.sources.smart import document, pysmart
from gpuwatch.sources.smart.facts import Facts, merge
from gpuwatch.sources.smart.source import Look, read_json, read_text

Row = dict[str, str]
NUMBERS: dict[str, Callable[[Facts], float | None]] = {
    "temperature_c": lambda facts: facts.temperature,
    "percent_used": lambda facts: facts.percent_used,
    "spare_percent": lambda facts: facts.spare,
    "spare_threshold": lambda facts: facts.spare_threshold,
    "critical_warning": lambda facts: facts.critical_warning,
    "media_errors": lambda facts: facts.media_errors,
    "reallocated": lambda facts: facts.count(5),
    "pending": lambda facts: facts.count(197),
    "offline_uncorrectable": lambda facts: facts.count(198),
    "reported_uncorrect": lambda facts: facts.count(187),
    "crc_errors": lambda facts: facts.count(199),
    "grown_defects": lambda facts: facts.grown_defects,
    "uncorrected_rw": lambda facts: facts.uncorrected,
    "power_on_hours": lambda facts: None if facts.power_on_hours is None else int(facts.power_on_hours),
    "passed": lambda facts: None if facts.passed is None else float(facts.passed),
}


@pytest.fixture(scope="module")
def folder(recorded: Path) -> Path:
    """The captures."""
    return recorded / "smart"


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Row]:
    """The rows that are judged."""
    with (folder / "index.csv").open(newline="", encoding="utf-8") as index:
        return [row for row in csv.DictReader(index) if row["kind"] != "scan"]


def look(folder: Path, row: Row) -> Look:
    """Judge one capture as the source does with the bytes of a run."""
    run = Run(Ending.EXITED, int(row["exit_status"] or 0), (folder / row["file"]).read_bytes())
    return read_text(run) if row["file"].endswith(".txt") else read_json(run)


def expected(row: Row, name: str) -> float | None:
    """Return a number of the index; temperature 0 of a device without SMART is in the capture, but is no reading."""
    if name == "temperature_c" and row["expected_verdict"] == "unsupported":
        return None
    return {"true": 1.0, "false": 0.0}[row[name]] if name == "passed" else float(row[name])


def test_every_capture_is_judged_as_its_index_allows(
    folder: Path, rows: list[Row], record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    judged = {row["file"]: look(folder, row).verdict for row in rows}
    record_property("captures_judged", len(judged))
    with capsys.disabled():
        print(f"\nSMART: {len(judged)} of {len(rows)} captures judged")
    wrong = {
        row["file"]: (judged[row["file"]].state, judged[row["file"]].reasons, row["accept"])
        for row in rows
        if judged[row["file"]].state not in row["accept"].split("|")
    }
    assert ({}, len(rows)) == (wrong, len(judged))
    assert len(rows) > 100


def test_every_verdict_but_ok_has_a_reason(folder: Path, rows: list[Row]) -> None:
    looks = {row["file"]: look(folder, row).verdict for row in rows}
    assert [file for file, verdict in looks.items() if bool(verdict.reasons) is (verdict.state == "ok")] == []
    assert [file for file, verdict in looks.items() if (verdict.fault is not None) is not (verdict.state == "unknown")] == []


def test_every_number_of_the_index_is_found(
    folder: Path, rows: list[Row], record_property: Callable[[str, object], None]
) -> None:
    wrong = []
    compared = 0
    for row in rows:
        facts = look(folder, row).facts
        for name, read in NUMBERS.items():
            if row[name] != "" and facts is not None:
                compared += 1
                found = read(facts)
                if found != expected(row, name):
                    wrong.append((row["file"], name, row[name], found))
    record_property("numbers_compared", compared)
    assert wrong == []
    assert sum(row[name] != "" for row in rows for name in NUMBERS) == compared > 0


def test_every_model_of_the_index_is_found(folder: Path, rows: list[Row]) -> None:
    looks = [(row, look(folder, row).facts) for row in rows if row["model"]]
    assert [(row["file"], facts and facts.model) for row, facts in looks if facts is None or facts.model != row["model"]] == []


def test_the_text_of_a_run_adds_nothing_to_the_verdict_of_its_json(folder: Path, rows: list[Row]) -> None:
    wrong = []
    pairs = 0
    for row in rows:
        for text in filter(None, (row["text_v73"], row["text_v80"])):
            doc = document.document((folder / row["file"]).read_bytes().decode(errors="replace"))
            assert doc is not None
            facts = document.facts(doc, int(row["exit_status"] or 0))
            lines = (folder / text).read_text(errors="replace").splitlines()
            both, _ = merge(facts, pysmart.facts(lines, facts.exit_status, facts.protocol))
            pairs += 1
            before, after = numbers_of(facts), numbers_of(both)
            if any(after[name] != value for name, value in before.items() if value is not None):
                wrong.append(row["file"])
    assert wrong == []
    assert pairs == sum(bool(row["text_v73"]) + bool(row["text_v80"]) for row in rows)


def test_pysmart_reads_the_same_numbers_as_json(folder: Path, rows: list[Row]) -> None:
    """Of the texts by smartctl 7.3 for the same drive; names and thresholds of attributes are of the database of the day."""
    wrong = []
    for row in rows:
        if not row["text_v73"] or row["file"].endswith(".txt"):
            continue
        facts = look(folder, row).facts
        assert facts is not None
        lines = (folder / row["text_v73"]).read_text(errors="replace").splitlines()
        parsed = pysmart.facts(lines, facts.exit_status, facts.protocol)
        _, differ = merge(facts, parsed)
        known = {one.name for one in facts.attributes} | {"family"}
        # Edited by its project: passed=false with a critical warning of 0, which no smartctl prints as text.
        edited = {"passed"} if row["file"] == "nvme_intel_passed_false_warning0.json" else set()
        if unexpected := set(differ) - known - edited:
            wrong.append((row["file"], unexpected))
    assert wrong == []


def numbers_of(facts: Facts) -> dict[str, float | None]:
    """Return every number of the index that the facts have."""
    return {name: read(facts) for name, read in NUMBERS.items()}
