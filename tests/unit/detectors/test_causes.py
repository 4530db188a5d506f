"""What to do about a cause is said of everything that is shown as trouble."""

import pytest

from gpuwatch.catalogue.events import KINDS
from gpuwatch.catalogue.xids import xids
from gpuwatch.detectors.causes import SILENT, action

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
