"""Whose work was on a GPU that dropped out, in the one message of it (operator.md S1)."""

from collections.abc import Callable

import pytest

from gpuwatch.detectors.parts import NAME, called
from gpuwatch.detectors.usage import RECENT
from tests.fakes.story import HUNG, LOST, RESET, UNKNOWN, UNLISTED, Story, Work

Tell = Callable[..., Story]
TRAIN = Work(5, "train-7", "ann", facts={"container": "train-7"})


def had(story: Story) -> str:
    """Return what the last text of the alert says of whose work was on the GPU."""
    (incident,) = [one for one in story.incidents.known.values() if one.rule == "gpu_dropped"]
    return (
        incident.summary.partition("; last seen ")[2]
        .partition("; it had: ")[2]
        .partition(". Power cycle ")[0]
        .partition(". Stop its")[0]
    )


@pytest.mark.parametrize("facts", [{"fault": LOST}, {"fault": RESET}, {"fault": UNKNOWN}, {"fault": UNLISTED}, {"silent": True}])
def test_the_message_says_whose_work_was_on_a_lost_gpu_and_names_no_other_s(tell: Tell, facts: dict[str, object]) -> None:
    story = tell(gpus=8)
    story.work = [TRAIN, Work(4, "other", "bob")]
    story.at(60).gpu(5, **facts).at(200)
    assert had(story) == "container train-7 of ann"
    first = next(one for _, one in story.transitions if one.rule == "gpu_dropped")
    assert "; it had: container train-7 of ann. " in first.summary


def test_of_many_jobs_the_two_that_had_it_for_longest_are_named(tell: Tell) -> None:
    story = tell(gpus=8)
    story.work = [Work(5, "b", "bob")]
    story.at(20).work.append(Work(5, "c", "cat", "slurm"))
    story.at(40).work += [Work(5, name, "ann") for name in ("a", "d", "e")]
    story.at(60).gpu(5, fault=LOST).at(70)
    assert had(story) == "container b of bob, Slurm job c of cat, +3"


def test_a_gpu_that_nobody_had_is_told_without_a_word_of_it(tell: Tell) -> None:
    story = tell(gpus=8)
    story.work = [TRAIN]
    story.at(60).work.clear()
    story.at(60 + RECENT + 5).gpu(5, fault=LOST).at(200)
    assert had(story) == ""
    assert "it had" not in story.transitions[-1][1].summary


def test_a_job_that_the_fall_ends_before_the_driver_tells_of_it_was_on_it(tell: Tell) -> None:
    story = tell(gpus=8)
    story.work = [TRAIN]
    story.at(60).work.clear()
    story.at(65).gpu(5, fault=LOST).at(80)
    assert had(story) == "container train-7 of ann"


def test_a_gpu_that_hangs_for_an_hour_before_it_is_lost_had_what_it_had(tell: Tell) -> None:
    story = tell(gpus=8)
    story.work = [TRAIN]
    story.at(60).gpu(5, fault=HUNG)
    story.every = 30.0
    story.at(3600).gpu(5, all_ones=True).at(3700)
    assert had(story) == "container train-7 of ann"


def test_who_had_it_is_known_after_a_restart_too(tell: Tell) -> None:
    story = tell(gpus=8)
    story.work = [TRAIN]
    story.at(60).gpu(5, silent=True, on_bus=False)
    story.boot_id = "boot-2"
    story.restart(away=180).at(400)
    assert had(story) == "container train-7 of ann"
    story.restart(away=180).at(1000)
    assert had(story) == "container train-7 of ann"


def test_a_gpu_that_came_back_without_the_job_is_lost_again_without_it(tell: Tell) -> None:
    story = tell(gpus=8)
    story.work = [TRAIN]
    story.at(60).gpu(5, fault=LOST).at(80).work.clear()
    story.gpu(5, fault=None).at(200)
    told = len(story.transitions)
    story.gpu(5, fault=LOST).at(220)
    again = next(one for _, one in story.transitions[told:] if one.after.value == "firing")
    assert "it had" not in again.summary


def test_a_clock_that_was_set_back_brings_nobody_back(tell: Tell) -> None:
    story = tell(gpus=8)
    story.work = [TRAIN]
    story.at(60).work.clear()
    story.at(160).step_wall(-3600).at(220)
    story.gpu(5, fault=LOST).at(240)
    assert had(story) == ""


@pytest.mark.parametrize(
    ("scheduler", "job", "facts", "expected"),
    [
        ("docker", "aoi-infer-2", {"container": "aoi-infer-2", "user": "root"}, "container aoi-infer-2 of root"),
        ("docker", "0123456789ab", {"container": "0123456789ab"}, "container 0123456789ab"),
        ("lxc", "web", {"container": "web", "user": "ann,bob"}, "container web of ann, bob"),
        ("slurm", "4711", {"user": "ann"}, "Slurm job 4711 of ann"),
        (
            "kubernetes",
            "5f1c",
            {"name": "train-0", "namespace": "ml", "container": "trainer", "user": "1000"},
            "pod ml/train-0 (container trainer) of 1000",
        ),
        ("kubernetes", "5f1c", {}, "pod 5f1c"),
        ("systemd", "train.service", {"unit": "train.service", "user": "ann"}, "unit train.service of ann"),
        ("session", "python3-5001", {"user": "bob"}, "job python3-5001 of bob"),
        ("docker", "x" * 200, {}, f"container {'x' * (NAME - 1)}…"),
    ],
)
def test_every_kind_of_job_is_called_by_what_people_know_it_by(
    scheduler: str, job: str, facts: dict[str, str], expected: str
) -> None:
    assert called({"scheduler": scheduler, "job": job}, facts) == expected
