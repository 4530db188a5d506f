"""What NVML's event bits and recovery numbers become."""

import pytest

from gpuwatch.catalogue.events import KINDS
from gpuwatch.catalogue.gpu import RECOVERY_ACTION
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import WORDS_LIMIT
from gpuwatch.sources.nvml import bits, recovery

NONE = (0xFFFFFFFF, 0xFFFFFFFF)
FLOODS = 0x1 | 0x4 | 0x10 | 0x80  # single-bit ECC, P-state, clock, power source


def test_what_comes_all_day_is_not_asked_for() -> None:
    assert bits.WANTED == 0xFF0A
    assert not bits.WANTED & FLOODS
    assert [bits.event("GPU-1", bit, 0, NONE, 0.0) for bit in (0x1, 0x4, 0x10, 0x80, 0x100, 0x8000, 0x10000)] == [None] * 7


def test_every_kind_is_one_of_the_catalogue() -> None:
    assert {meaning.kind for meaning in bits.MEANINGS.values()} - {""} <= set(KINDS)
    assert {KINDS[meaning.kind].subject for meaning in bits.MEANINGS.values() if meaning.kind} == {"gpu"}


@pytest.mark.parametrize(
    ("data", "code", "severity"),
    [
        (79, 79, Severity.CRITICAL),
        (43, 43, Severity.INFO),
        (177, 177, Severity.WARNING),
        (999, 999, Severity.WARNING),
        (0, 999, Severity.WARNING),
        (0xFFFFFFFFFFFFFFFF, 999, Severity.WARNING),
    ],
)
def test_an_xid_has_the_severity_of_the_table_and_no_number_that_is_none(data: int, code: int, severity: Severity) -> None:
    event = bits.event("GPU-1", bits.XID, data, NONE, 5.0)
    assert event is not None
    assert (event.code, event.severity, event.at, dict(event.facts)) == (code, severity, 5.0, {})
    assert 0 < len(event.words) <= WORDS_LIMIT


def test_the_instance_of_an_event_is_in_its_words_and_facts() -> None:
    event = bits.event("GPU-1", 0x1000, 0, (5, 0), 0.0)
    assert event is not None
    assert dict(event.facts) == {"gpu_instance": "5", "compute_instance": "0"}
    assert event.words.endswith("(GPU instance 5)")


@pytest.mark.parametrize(
    ("number", "action"), [(0, "none"), (1, "gpu_reset"), (4, "drain_and_reset"), (7, "system_reboot"), (8, "unknown")]
)
def test_a_recovery_number_is_one_state(number: int, action: str) -> None:
    values = recovery.states(float(number))
    assert [state for state, metric in RECOVERY_ACTION.items() if values[metric]] == [action]
    assert recovery.present(values) == action
    assert recovery.present({}) is None


def test_a_changed_action_says_what_has_to_be_done_and_its_end_is_no_alarm() -> None:
    worse, better = recovery.changed("GPU-1", "none", "node_reboot", 1.0), recovery.changed("GPU-1", "node_reboot", "none", 2.0)
    assert (worse.severity, worse.facts["recovery"], better.severity) == (Severity.CRITICAL, "2", Severity.INFO)
    assert "rebooted" in worse.words
    assert set(recovery.WORDS) == set(RECOVERY_ACTION)
