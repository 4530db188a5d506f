"""The margin to the maximum operating temperature, where a card tells it and where it only seems to."""

from contextlib import closing
from pathlib import Path

from gpuwatch.catalogue import gpu
from gpuwatch.model.reading import Absence
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker


def test_a_margin_of_zero_or_less_is_believed_on_a_hot_card_only(tmp_path: Path) -> None:
    told: list[tuple[int, int, float | Absence]] = [
        (60, 24, 24.0),
        (83, 1, 1.0),
        (84, 0, 0.0),
        (85, -1, -1.0),
        (92, -8, -8.0),
        (35, 0, Absence.UNSUPPORTED),  # so answer some H100 at any temperature
        (60, -5, Absence.UNSUPPORTED),
        (84, -5, Absence.UNSUPPORTED),
        (60, -(2**31), Absence.FAILED),
    ]
    fake = FakeNvml(tmp_path, gpus=len(told), model="H100", driver="595.71.05")
    for card, (core, margin, _) in enumerate(told):
        fake.set(card, temperature=core, margin=margin)
    with closing(NvmlWorker(fake)) as worker:
        round_ = worker.ask()
    found = [round_.gpu(fake.uuid(card)) for card in range(len(told))]
    assert [expected for _, _, expected in told] == [{**one.absent, **one.values}[gpu.TEMPERATURE_MARGIN] for one in found]
    assert [(float(core), None) for core, _, _ in told] == [(one.values[gpu.TEMPERATURE["core"]], one.fault) for one in found]


def test_a_margin_below_zero_of_a_card_without_a_temperature_is_not_believed(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model="H100", driver="595.71.05")
    fake.set(0, temperature=None, margin=-5)
    with closing(NvmlWorker(fake)) as worker:
        fast = worker.ask().gpu(fake.uuid(0))
    assert fast.absent[gpu.TEMPERATURE_MARGIN] is Absence.EMPTY
