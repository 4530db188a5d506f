"""Nodes of the loaded module that are missing: waited for for two minutes, then missed, each said once, and over at once."""

import os
import re
import time
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.reading import Fault, Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import Round
from tests.fakes.turned import TurnedWorker

WAITED, MISSED, BACK = (
    "INFO .* are waited for for up to 120 s",
    "WARNING .* run nvidia-modprobe -c 0 -u",
    "INFO .*NVML is initialised",
)
WARNED = "WARNING .* driver: "  # of the driver alone: to a wait for events, the leaps of this clock are a hang


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Two cards."""
    return FakeNvml(tmp_path, gpus=2)


def take_nodes(fake: FakeNvml) -> None:
    """Have no nodes, and nothing that opens without them."""
    fake.nodes(there=False)
    fake.init(4)


def told(found: Round) -> tuple[str, bool]:
    """Return the driver's state, and whether it is waited for."""
    fault = found.driver.fault or Fault("ok", "")
    return found.state, fault.waits


def said(worker: TurnedWorker, *lines: str) -> tuple[int, ...]:
    """Return how often the log has each of these lines."""
    return tuple(len(re.findall(line, worker.log())) for line in lines)


def test_nodes_that_do_not_come_are_missed_after_two_minutes_in_the_next_normal_round(fake: FakeNvml) -> None:
    """nvmlInit backs off to a minute; neither the end of the grace nor the nodes wait for that."""
    take_nodes(fake)
    with closing(TurnedWorker(fake, normal=10.0)) as worker:
        assert told(worker.survey()) == ("no_nodes", True)
        for _ in range(11):  # to 110 s after the first look
            worker.forward(10)
            assert told(worker.survey()) == ("no_nodes", True)
        assert said(worker, WAITED, MISSED, BACK) == (1, 0, 0), worker.log()
        tried = fake.calls("nvmlInitWithFlags")
        assert 3 <= tried <= 6
        worker.forward(10)
        assert told(worker.survey()) == ("no_nodes", False)
        assert fake.calls("nvmlInitWithFlags") <= tried + 1
        for _ in range(12):
            worker.forward(10)
            assert told(worker.survey()) == ("no_nodes", False)
        assert said(worker, WAITED, MISSED, BACK) == (1, 1, 0), worker.log()
        fake.init(0)
        fake.nodes()
        assert told(worker.survey()) == ("ok", False)
        assert said(worker, WAITED, MISSED, BACK) == (1, 1, 1), worker.log()
        assert worker.restarts == []


def test_nodes_that_come_within_the_grace_are_picked_up_at_once_and_warn_nobody(fake: FakeNvml) -> None:
    take_nodes(fake)
    with closing(TurnedWorker(fake, normal=60.0)) as worker:  # half a minute to the next attempt by itself
        assert told(worker.survey()) == ("no_nodes", True)
        fake.init(0)
        fake.nodes()
        assert told(worker.survey()) == ("ok", False)
        assert said(worker, WAITED, "WARNING", BACK) == (1, 0, 1), worker.log()


@pytest.mark.parametrize("code", [1, 9])
def test_nodes_that_vanish_with_the_driver_later_get_the_same_grace(fake: FakeNvml, code: int) -> None:
    with closing(TurnedWorker(fake)) as worker:
        worker.warm()
        worker.forward(1000)
        worker.survey()
        take_nodes(fake)
        if code == 1:
            fake.uninitialise()
        else:
            fake.answer_all(code)
        worker.ask()
        assert told(worker.until(Tier.NORMAL, lambda round_: round_.state == "no_nodes")) == ("no_nodes", True)
        worker.forward(110)
        assert told(worker.survey()) == ("no_nodes", True)
        worker.forward(10)
        assert told(worker.survey()) == ("no_nodes", False)
        fake.answer_all(0)
        fake.init(0)
        fake.nodes()
        assert told(worker.survey()) == ("ok", False)
        worker.until(Tier.FAST, lambda round_: sum(bool(one.values) for one in round_.of(GPU).values()) == 2)
        assert said(worker, WAITED, MISSED, BACK, WARNED) == (1, 1, 2, 1), worker.log()


@pytest.mark.parametrize("code", [4, 999])
@pytest.mark.parametrize("others", ["none", "lost"])
def test_the_only_gpu_left_is_not_blamed_for_nodes_that_are_gone(tmp_path: Path, code: int, others: str) -> None:
    """One GPU that answers nothing may as well be lost; what the nodes say is asked first."""
    fake = FakeNvml(tmp_path, gpus=1 if others == "none" else 2)
    with closing(TurnedWorker(fake)) as worker:
        worker.warm()
        if others == "lost":
            fake.lose(1)
            worker.until(Tier.FAST, lambda round_: round_.gpu(fake.uuid(1)).fault is not None)
        fake.nodes(there=False)
        fake.answer_all(code, gpu=0)
        worker.until(Tier.NORMAL, lambda round_: bool(worker.ask()) and told(round_) == ("no_nodes", True))
        worker.forward(120)
        worker.until(Tier.NORMAL, lambda round_: told(round_) == ("no_nodes", False))
        assert said(worker, WAITED, MISSED) == (1, 1), worker.log()
        assert "GPU 0" not in worker.log()


@pytest.mark.parametrize(("code", "state"), [(4, "no_permission"), (999, "ok")])
def test_the_only_gpu_whose_nodes_are_there_may_be_lost_but_not_for_lack_of_permission(
    tmp_path: Path, code: int, state: str
) -> None:
    fake = FakeNvml(tmp_path, gpus=1)
    with closing(TurnedWorker(fake)) as worker:
        worker.warm()
        fake.answer_all(code)
        worker.until(Tier.FAST, lambda round_: bool(round_.of(GPU)[fake.uuid(0)].fault))
        assert worker.survey().state == state


def test_a_new_worker_does_not_wait_anew_for_nodes_of_a_module_that_was_loaded_long_ago(fake: FakeNvml) -> None:
    module = Path(fake.sys) / "module/nvidia"
    module.mkdir(parents=True)
    (Path(fake.proc) / "uptime").write_text("86400.00 80000.00\n")
    take_nodes(fake)
    for age, waits in ((100.0, True), (130.0, False), (130.0, False)):
        os.utime(module, (time.time() - age, time.time() - age))
        with closing(TurnedWorker(fake)) as worker:
            assert told(worker.survey()) == ("no_nodes", waits)


def test_gpus_that_cannot_be_reached_for_lack_of_nodes_get_the_same_grace_each_time(fake: FakeNvml) -> None:
    """NVML stays initialised: every GPU answers that it may not be opened, and answers again later."""
    again = "INFO .*the driver answers again"
    with closing(TurnedWorker(fake)) as worker:
        worker.warm()
        for times in (1, 2):
            fake.nodes(there=False)
            fake.answer_all(999)
            worker.until(Tier.NORMAL, lambda round_: told(round_) == ("no_nodes", True))
            worker.forward(115)
            worker.until(Tier.NORMAL, lambda round_: told(round_) == ("no_nodes", True))
            assert said(worker, WAITED, MISSED, again) == (times, times - 1, times - 1), worker.log()
            worker.forward(5)
            worker.until(Tier.NORMAL, lambda round_: told(round_) == ("no_nodes", False))
            assert said(worker, WAITED, MISSED, again) == (times, times, times - 1), worker.log()
            fake.nodes()
            fake.answer_all(0)
            worker.until(Tier.NORMAL, lambda round_: round_.state == "ok")
            assert said(worker, WAITED, MISSED, again) == (times, times, times), worker.log()
