"""A new worker in the place of one that has ended: what that one has said of GPUs is not said again, and its end is said once."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.model.reading import Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, fault_of


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Five cards."""
    return FakeNvml(tmp_path, gpus=5)


def said(worker: NvmlWorker) -> list[tuple[str, str]]:
    """Return what was logged of GPUs, without names and times: number and the first words or the last."""
    found = re.findall(
        r"GPU (\d) \(\S+\):? (the GPU is lost|a call to this GPU has not returned|answers again after)", worker.log()
    )
    return sorted(found)


def test_what_stands_is_not_said_again_and_its_end_is_said_once(fake: FakeNvml) -> None:
    kinds = {0: "lost", 1: "hung", 2: "lost", 3: "unknown_error"}
    standing = {fake.uuid(card): (kind, 1000.0) for card, kind in kinds.items()}
    fake.lose(0)
    fake.hang(1)
    fake.lose(3)  # which is another kind than before, and news
    with closing(NvmlWorker(fake, deadline=0.5, standing=standing)) as worker:
        wanted = {0: "lost", 1: "hung", 2: "", 3: "lost", 4: ""}
        worker.until(Tier.FAST, lambda found: {card: fault_of(found.gpu(fake.uuid(card)))[0] for card in wanted} == wanted)
        worker.until(Tier.NORMAL, lambda _: ("2", "answers again after") in said(worker))
        assert said(worker) == [("2", "answers again after"), ("3", "the GPU is lost")]
        fake.find(0)
        fake.release(1)
        fake.find(3)
        ends = [(str(card), "answers again after") for card in range(4)]
        worker.until(Tier.NORMAL, lambda _: set(ends) <= set(said(worker)))
        assert said(worker) == sorted([*ends, ("3", "the GPU is lost")]), worker.log()
        assert min(int(seconds) for seconds in re.findall(r"after (\d+) s", worker.log())) >= 1000, worker.log()


def test_a_gpu_that_hangs_again_in_a_new_process_is_no_news(fake: FakeNvml) -> None:
    fake.hang(1, "nvmlDeviceGetUtilizationRates")
    with closing(NvmlWorker(fake, deadline=0.5, standing={fake.uuid(1): ("hung", 1000.0)})) as worker:
        worker.until(Tier.FAST, lambda found: fault_of(found.gpu(fake.uuid(1)))[0] == "hung")
        assert said(worker) == []
        fake.release(1, "nvmlDeviceGetUtilizationRates")
        worker.until(Tier.FAST, lambda found: bool(found.gpu(fake.uuid(1)).values))
        assert len(re.findall("comes back after", worker.log())) == 1, worker.log()
