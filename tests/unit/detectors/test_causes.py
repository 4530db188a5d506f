"""What to do about a cause is said of everything that is shown as trouble."""

import pytest

from gpuwatch.catalogue.events import KINDS
from gpuwatch.catalogue.xids import xids
from gpuwatch.detectors.causes import SILENT, action, title
from gpuwatch.detectors.stories import retold
from gpuwatch.sources.kernel import replay

END = {"access_back", "recovery_action", "mig_changed"}  # what is over, or says itself what is wanted


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - SILENT - END - {"xid"}))
def test_every_kind_has_an_action(kind: str) -> None:
    assert action(kind, None, {})


@pytest.mark.parametrize("why", ["", "held", "missing", "other_kernel", "unsupported", "a newer word"])
def test_a_driver_that_is_not_there_has_one_whatever_the_line_says(why: str) -> None:
    assert action("no_driver", None, {"why": why})


@pytest.mark.parametrize("fatal", ["yes", "no", ""])
def test_an_error_of_a_switch_goes_by_whether_it_is_fatal(fatal: str) -> None:
    assert ("drain" in action("sxid", 20009, {"fatal": fatal})) == (fatal == "yes")


def test_every_xid_has_one() -> None:
    assert [code for code in xids() if not action("xid", code, {})] == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("md/raid1:md0: Disk failure on sda1, disabling device.", "RAID md0 lost sda1"),
        ("md/raid:md127: not enough operational devices (2/4 failed)", "RAID md127 failed"),
        ("block nvme0n1: no usable path - requeuing I/O", "No path to nvme0n1 is left"),
    ],
)
def test_what_a_raid_lost_names_the_array(line: str, name: str) -> None:
    (event,) = replay([f"[   10.000000] {line}"], 1_700_000_000.0)
    assert title(event) == name
    assert action(event.kind, None, event.facts)


def test_an_array_is_the_headline_whatever_was_told_of_its_disks_before() -> None:
    log = [
        "[   10.000000] block nvme0n1: no available path - failing I/O",
        "[   10.500000] I/O error, dev nvme0n1, sector 8 op 0x1:(WRITE)",
        "[   11.000000] md/raid1:md0: Disk failure on nvme0n1p1, disabling device.",
    ]
    (story,) = retold(replay(log, 1_700_000_000.0))
    assert (story.title, story.also) == ("RAID md0 lost nvme0n1p1", "no_path x1, io_error x1")
