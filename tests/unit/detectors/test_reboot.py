"""Reboots that nobody asked for (operator.md S10, alerting.md RB-01 and RB-02)."""

from collections.abc import Callable
from datetime import datetime

import pytest

from gpuwatch.catalogue.derived import UNEXPECTED_REBOOT
from gpuwatch.catalogue.host import BOOT_TIME, HOST
from gpuwatch.detectors.reboot import Before, Reboot, State, down
from gpuwatch.model.alert import Severity
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from tests.fakes.happenings import told as happened
from tests.fakes.story import START, Story

RULE = "host_rebooted_unexpectedly"
Tell = Callable[..., Story]


def clock_time(at: float) -> str:
    """Return a time of day as this machine writes it."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def test_a_new_boot_without_a_clean_stop_is_told_with_the_last_readings(tell: Tell) -> None:  # RB-01
    before = Before(boot_id="boot-0", clean=False, at=START - 142, power_watts=1383.4, temperature_celsius=74.0)
    story = tell(before=before, gpus=4).at(120)
    ((at, told),) = story.transitions
    assert (at <= 120, told.rule, told.severity.value) == (True, RULE, "warning")
    times = f"down {clock_time(START - 142)}-{clock_time(START)}"
    assert told.summary == (
        f"vision-07 rebooted without a shutdown, {times}; last stored sample: 1383 W, GPU max 74 C, no Xid, no MCE, pstore empty"
        " -> power supply or breaker first"
    )
    assert (told.numbers["last_power_watts"], told.words["last_sample"]) == (1383.4, "last stored sample: 1383 W, GPU max 74 C")


XID = "Xid 79 (0000:65:00.0)"
PANIC = "Kernel panic - not syncing: Fatal exception"


@pytest.mark.parametrize(
    ("crash", "errors", "unread", "words"),
    [
        ("", (), "", "no Xid, no MCE, pstore empty -> power supply or breaker first"),
        ("", (XID,), "", f"{XID}, no MCE, pstore empty -> that GPU and its power first"),
        (PANIC, (), "", f"no Xid, no MCE, in pstore: {PANIC} -> the kernel and its drivers first"),
        (PANIC, (XID,), "", f"{XID}, no MCE, in pstore: {PANIC} -> that GPU and its power first"),
        (
            "",
            (),
            "root only",
            "no Xid, no MCE, pstore unknown: root only -> power supply or breaker first, if pstore has nothing",
        ),
    ],
)
def test_what_was_told_before_it_and_what_the_kernel_left_say_where_to_look(
    tell: Tell, crash: str, errors: tuple[str, ...], unread: str, words: str
) -> None:
    before = Before(boot_id="boot-0", clean=False, at=START - 142, crash=crash, errors=errors, unread=unread)
    ((_, alert),) = tell(before=before).at(120).transitions
    assert alert.summary.endswith(f"nothing of GPUs, {words}")


@pytest.mark.parametrize("unread", ["", "/sys/fs/pstore may be read by root only"])
def test_where_a_kernel_can_leave_nothing_that_nothing_was_left_says_nothing(tell: Tell, unread: str) -> None:
    before = Before(boot_id="boot-0", clean=False, at=START - 142, has_place=False, unread=unread)
    ((_, alert),) = tell(before=before).at(120).transitions
    words = "no Xid, no MCE, no pstore here -> power supply or breaker first, or a kernel that could leave nothing"
    assert alert.summary.endswith(words)


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ((), "Xid and MCE before it unknown: WHY, pstore empty -> power supply or breaker first, as far as is known"),
        ((XID,), f"{XID}, Xid and MCE before it unknown: WHY, pstore empty -> that GPU and its power first"),
    ],
)
def test_what_could_not_be_read_is_not_said_to_be_nothing(tell: Tell, errors: tuple[str, ...], words: str) -> None:
    before = Before(boot_id="boot-0", clean=False, at=START - 142, errors=errors, unheard="WHY", unsampled="HOW")
    ((_, alert),) = tell(before=before).at(120).transitions
    assert alert.summary.endswith(f"; last stored sample unknown: HOW, {words}")


def test_a_machine_check_that_this_boot_logs_early_is_named_and_a_later_one_is_not(tell: Tell) -> None:
    for after, words in ((1.0, "a machine check, pstore empty -> CPU, memory"), (400.0, "no MCE, pstore empty -> power supply")):
        story = tell(before=Before(boot_id="boot-0", clean=False, at=START - 142)).at(1)
        story.happens(happened("mce", Severity.CRITICAL, START + after, corrected="no")).at(30)
        (incident,) = story.incidents.open()
        assert words in incident.summary, after


@pytest.mark.parametrize(
    "before",
    [
        None,  # first start
        Before(boot_id="boot-0", clean=True, at=START - 142),  # reboot, poweroff, kexec
        Before(boot_id="boot-1", clean=True, at=START - 142),  # upgrade of gpuwatch
        Before(boot_id="boot-1", clean=False, at=START - 142),  # gpuwatch was killed
        Before(boot_id="", clean=False, at=START - 142),  # the last boot is not known
    ],
)
def test_all_else_is_nothing(tell: Tell, before: Before | None) -> None:  # RB-02
    tell(before=before).expects_nothing_until(300)


def test_a_restart_of_gpuwatch_tells_it_no_second_time(tell: Tell) -> None:
    story = tell(before=Before(boot_id="boot-0", clean=False, at=START - 142)).at(60)
    story.before = Before(boot_id="boot-1", clean=False, at=START + 60)
    story.restart(away=30).at(300)
    assert [one.after for one in story.heard(RULE)] == ["firing"]
    assert story.engine.alerts[RULE] != {}


def test_the_second_one_within_a_week_is_critical_and_after_a_week_it_is_not(tell: Tell) -> None:  # S10
    for away, severity in ((3 * 86400.0, "critical"), (8 * 86400.0, "warning")):
        story = tell(before=Before(boot_id="boot-0", clean=False, at=START - 142)).at(60)
        story.boot_id, story.before = "boot-2", Before(boot_id="boot-1", clean=False, at=START + 60)
        story.restart(away=away).at(away + 300)
        assert story.heard(RULE)[-1].severity == severity, away


def test_it_is_over_after_a_day_even_with_a_clean_reboot_between(tell: Tell) -> None:
    story = tell(before=Before(boot_id="boot-0", clean=False, at=START - 142)).at(60)
    story.boot_id, story.before = "boot-2", Before(boot_id="boot-1", clean=True, at=START + 60)
    story.every = 600.0
    story.restart(away=300).at(90_000)
    assert [one.after for one in story.heard(RULE)] == ["firing", "inactive"]


def test_a_day_that_we_slept_through_ends_it_too(tell: Tell) -> None:
    story = tell(before=Before(boot_id="boot-0", clean=False, at=START - 142)).at(60)
    story.before = Before(boot_id="boot-1", clean=True, at=START + 60)
    story.restart(away=200_000).at(200_120)
    assert [one.after for one in story.heard(RULE)] == ["firing", "inactive"]


def test_a_host_that_does_not_say_its_boot_is_not_judged() -> None:
    detector, here = Reboot(Before(boot_id="boot-0", clean=False, at=0)), Target(subject=HOST, key="")
    _, findings = detector.step(State(), View(10, {here: Entry(here, {}, {}, ())}), 10)
    assert findings.readings == ()


def test_the_time_is_that_of_the_boot_where_it_is_known() -> None:
    here = Target(subject=HOST, key="", info={"boot_id": "boot-1"})
    values = {BOOT_TIME: 5_000.0}
    reading = Reading(source="host", tier=Tier.FAST, target=here, at=5_200, took=0, values=values)
    detector = Reboot(Before(boot_id="boot-0", clean=False, at=4_000))
    state, findings = detector.step(detector.initial(), View(5_200, {here: Entry(here, values, {}, (reading,))}), 5_200)
    assert findings.readings[0].values == {UNEXPECTED_REBOOT: 5_000.0}
    assert state.words["last_sample"] == "last stored sample: nothing of GPUs"


def test_the_time_follows_a_clock_that_was_wrong_at_the_boot_and_stays_with_that_boot() -> None:
    detector, state = Reboot(Before(boot_id="boot-0", clean=False, at=4_000)), State()

    def look(boot: str, up: float, wall: float) -> float:
        nonlocal state
        here = Target(subject=HOST, key="", info={"boot_id": boot})
        state, findings = detector.step(state, View(wall, {here: Entry(here, {BOOT_TIME: up}, {}, ())}), wall)
        return findings.readings[0].values[UNEXPECTED_REBOOT]

    assert [look("boot-1", 100.0, 130.0), look("boot-1", 9_000.0, 9_060.0)] == [100.0, 9_000.0]
    detector.before = Before(boot_id="boot-1", clean=True, at=9_900)
    assert [look("boot-2", 10_000.0, 10_060.0), look("boot-2", 10_001.0, 10_062.0)] == [9_000.0, 9_000.0]


def test_a_night_between_is_written_with_its_dates() -> None:
    assert len(down(0.0, 200_000.0)) == len("down 2026-01-01 00:00:00-2026-01-02 00:00:00")
