"""The page of a dcgm-exporter over real HTTP: what it gives, what its silence means, and that nothing of it takes long."""

import time
from collections.abc import Iterator

import msgspec
import pytest

from gpuwatch.catalogue import gpu, mig, own
from gpuwatch.config import Config, Dcgm, Sources
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.sampling.board import Board
from gpuwatch.sampling.local import Local
from gpuwatch.sampling.once import once
from gpuwatch.sources.dcgm.exporter import FORGET, LIMIT, SETTLED, STALE, Exporter
from gpuwatch.sources.dcgm.page import LINES
from tests.fakes.clock import FakeClock
from tests.fakes.dcgm_page import UUIDS, page, row
from tests.fakes.host import Answers
from tests.fakes.receiver import LOGIN_PAGE, REDIRECT, Answer, Receiver
from tests.fakes.until import until

PAGE = page({"DCGM_FI_PROF_SM_ACTIVE": "0.5", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "1000"}, gpus=2)
DEADLINE = 1.0
BLANK = "9223372036854775794"  # not supported
SLACK = 10.0  # of a machine under load; what hangs would hang for a minute


@pytest.fixture
def exporter() -> Iterator[Receiver]:
    """An exporter, whose page each test writes."""
    with Receiver(path="/metrics") as receiver:
        receiver.always = Answer(body=PAGE.encode())
        yield receiver


def config(url: str, deadline: float = 10.0) -> Config:
    """Return the configuration for an exporter there."""
    options = msgspec.convert({"enabled": True, "url": url, "deadline": deadline}, Dcgm, dec_hook=lambda kind, value: kind(value))
    return Config(sources=Sources(dcgm=options))


def ask(source: Exporter, tier: Tier = Tier.NORMAL) -> Answers:
    """Ask once."""
    answers = Answers()
    source.ask(tier, frozenset(), answers)
    assert answers.ends == 1
    return answers


def state(answers: Answers) -> tuple[float, str]:
    """Return whether DCGM is up, and the kind of its fault."""
    reading = answers.of(gpu.DCGM)
    return reading.values[gpu.DCGM_UP], reading.fault.kind if reading.fault else ""


def values(answers: Answers) -> dict[str, dict[Metric, float]]:
    """Return the values of every GPU."""
    return {one.target.key: dict(one.values) for one in answers.readings if one.target.subject is gpu.GPU}


def test_a_page_gives_a_reading_a_gpu_and_one_of_dcgm(exporter: Receiver, clock: FakeClock) -> None:
    answers = ask(Exporter(config(exporter.url), clock))
    expected = {gpu.SM_ACTIVE: 0.5, gpu.ENERGY: 1.0}
    assert values(answers) == {UUIDS[0]: expected, UUIDS[1]: expected}
    assert answers.of(gpu.GPU, UUIDS[1]).target.labels == {"gpu": "1", "uuid": UUIDS[1]}
    assert answers.of(gpu.GPU, UUIDS[1]).target.info == {"name": "NVIDIA A100-SXM4-80GB", "pci_bus_id": "0000:02:00.0"}
    assert answers.of(gpu.DCGM).values == {gpu.DCGM_UP: 1.0, gpu.DCGM_GPUS["seen"]: 2.0, gpu.DCGM_GPUS["missing"]: 0.0}
    assert [got.path for got in exporter.requests] == ["/metrics"]


def test_an_address_without_a_path_means_the_usual_page(exporter: Receiver, clock: FakeClock) -> None:
    ask(Exporter(config(exporter.url.removesuffix("/metrics")), clock))
    assert [got.path for got in exporter.requests] == ["/metrics"]


def test_only_the_normal_tier_reads_it(exporter: Receiver, clock: FakeClock) -> None:
    source = Exporter(config(exporter.url), clock)
    assert [ask(source, tier).readings for tier in (Tier.FAST, Tier.SLOW)] == [[], []]
    assert exporter.requests == []


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (LOGIN_PAGE, "not_dcgm"),
        (REDIRECT, "refused"),
        (Answer(503), "refused"),
        (Answer(200, b""), "not_dcgm"),
        (Answer(200, b"# HELP process_cpu_seconds_total Time.\nprocess_cpu_seconds_total 12\n"), "not_dcgm"),
        (Answer(200, b"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization.\n"), "empty"),
        (Answer(200, b"\xff\xfe\x00" * 1000), "not_dcgm"),
        (Answer(how="garbage"), "unreachable"),
        (Answer(how="reset"), "unreachable"),
        (Answer(how="close"), "unreachable"),
        (Answer(200, PAGE.encode(), {"Content-Length": str(len(PAGE) + 100)}), "unreachable"),  # cut in the middle
        (Answer(how="endless"), "unreachable"),
        (Answer(200, b"x" * (LIMIT + 1)), "unreachable"),
        (Answer(200, PAGE.encode() + b"\n" * LINES), "foreign"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_page_is_said_and_the_next_page_is_whole(
    exporter: Receiver, clock: FakeClock, answer: Answer, kind: str
) -> None:
    source = Exporter(config(exporter.url), clock)
    exporter.script(answer)
    assert state(ask(source)) == (0.0, kind)
    assert (state(after := ask(source)), len(values(after))) == ((1.0, ""), 2)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(how="silent"),
        Answer(200, PAGE.encode(), how="drip", pause=0.02),
        Answer(200, PAGE.encode(), how="drip_head", pause=0.1),
        Answer(200, PAGE.encode(), delay=30.0),
    ],
    ids=["silent", "drip", "drip_head", "late"],
)
def test_a_page_that_does_not_come_costs_its_deadline_and_no_more(exporter: Receiver, clock: FakeClock, answer: Answer) -> None:
    exporter.script(answer)
    source = Exporter(config(exporter.url, DEADLINE), clock)
    started = time.monotonic()
    assert state(ask(source)) == (0.0, "unreachable")
    assert DEADLINE <= time.monotonic() - started < DEADLINE + SLACK


def test_an_exporter_that_is_not_there_is_named_and_comes_back(exporter: Receiver, clock: FakeClock) -> None:
    source = Exporter(config(exporter.url), clock)
    exporter.down()
    fault = ask(source).of(gpu.DCGM).fault
    assert fault is not None
    assert (fault.kind, fault.words) == (
        "unreachable",
        f"127.0.0.1:{exporter.port}: nobody answers there; is dcgm-exporter running?",
    )
    exporter.up()
    assert state(ask(source)) == (1.0, "")


@pytest.mark.parametrize("url", ["http://[::1/metrics", "http://127.0.0.1:99999/metrics", "http://", "nonsense:", ""])
def test_an_address_that_is_none_is_a_fault_and_no_crash(clock: FakeClock, url: str) -> None:
    assert state(ask(Exporter(config(url, DEADLINE), clock))) == (0.0, "unreachable")


def test_the_part_of_a_page_that_is_whole_is_used_and_no_gpu_is_missed(exporter: Receiver, clock: FakeClock) -> None:
    source = Exporter(config(exporter.url), clock)
    ask(source)
    exporter.script(Answer(body=row("DCGM_FI_PROF_SM_ACTIVE", "0.7").encode() + b"DCGM_FI_PROF_SM_ACT"))
    answers = ask(source)
    assert (state(answers), values(answers)) == ((0.0, "cut"), {UUIDS[0]: {gpu.SM_ACTIVE: 0.7}})


def test_a_broken_row_is_said_and_costs_nothing_else(exporter: Receiver, clock: FakeClock) -> None:
    exporter.script(Answer(body=b"DCGM_FI_DEV_GPU_TEMP{gpu= 12\n" + PAGE.encode()))
    answers = ask(Exporter(config(exporter.url), clock))
    assert (state(answers), len(values(answers))) == ((0.0, "broken"), 2)


def test_values_that_are_repeated_keep_the_time_at_which_they_came(exporter: Receiver, clock: FakeClock) -> None:
    source = Exporter(config(exporter.url), clock)
    first = clock.wall()
    times = []
    for _ in range(3):
        times.append(ask(source).of(gpu.GPU, UUIDS[0]).at - first)
        clock.forward(10)
    exporter.always = Answer(body=PAGE.replace(" 1000\n", " 1001\n").encode())
    times.append(ask(source).of(gpu.GPU, UUIDS[0]).at - first)
    assert times == [0.0, 0.0, 0.0, 30.0]


def test_an_exporter_that_repeats_itself_for_ever_is_not_believed(exporter: Receiver, clock: FakeClock) -> None:
    """gpu-monitoring-tools#188: the backend had died, and the old values were served for ever."""
    source = Exporter(config(exporter.url), clock)
    ask(source)
    clock.forward(STALE - 1)
    assert len(values(ask(source))[UUIDS[0]]) == 2
    clock.forward(1)
    answers = ask(source)
    assert (state(answers), values(answers)) == ((0.0, "stale"), {UUIDS[0]: {}, UUIDS[1]: {}})
    assert answers.of(gpu.GPU, UUIDS[0]).absent == {gpu.SM_ACTIVE: Absence.LATE, gpu.ENERGY: Absence.LATE}
    exporter.always = Answer(body=PAGE.replace(" 1000\n", " 1001\n").encode())
    assert (state(again := ask(source)), len(values(again)[UUIDS[0]])) == ((1.0, ""), 2)


def test_an_idle_gpu_of_which_no_energy_is_known_is_believed(exporter: Receiver, clock: FakeClock) -> None:
    exporter.always = Answer(body=row("DCGM_FI_PROF_SM_ACTIVE", "0.000000").encode())
    source = Exporter(config(exporter.url), clock)
    ask(source)
    clock.forward(10 * STALE)
    assert values(ask(source)) == {UUIDS[0]: {gpu.SM_ACTIVE: 0.0}}


def test_a_gpu_that_vanishes_from_the_page_is_told_of_and_its_values_are_lost(exporter: Receiver, clock: FakeClock) -> None:
    source = Exporter(config(exporter.url), clock)
    ask(source)
    clock.forward(SETTLED)
    ask(source)
    exporter.always = Answer(body=page({"DCGM_FI_PROF_SM_ACTIVE": "0.5"}).encode())
    answers = ask(source)
    assert answers.of(gpu.GPU, UUIDS[1]).absent == {gpu.SM_ACTIVE: Absence.LOST, gpu.ENERGY: Absence.LOST}
    assert (state(answers), answers.of(gpu.DCGM).values[gpu.DCGM_GPUS["missing"]]) == ((1.0, "missing"), 1.0)
    clock.forward(FORGET + 1)
    assert state(ask(source)) == (1.0, "")


def test_one_page_of_another_host_leaves_no_gpu_of_it_behind(exporter: Receiver, clock: FakeClock) -> None:
    source = Exporter(config(exporter.url), clock)
    ask(source)
    clock.forward(SETTLED)
    ask(source)
    foreign = PAGE.replace("GPU-0", "GPU-a")
    exporter.script(Answer(body=foreign.encode()), Answer(body=PAGE.encode()), Answer(body=foreign.encode()))
    for expected in ("missing", "", "missing", ""):
        answers = ask(source)
        assert (state(answers), set(values(answers))) == ((1.0, expected), set(UUIDS[:2]))


def test_a_first_page_of_another_host_is_forgotten_with_the_second_of_this(exporter: Receiver, clock: FakeClock) -> None:
    source = Exporter(config(exporter.url), clock)
    exporter.script(Answer(body=PAGE.replace("GPU-0", "GPU-a").encode()))
    ask(source)
    assert (state(second := ask(source)), values(second)) == ((1.0, ""), {})
    assert (state(third := ask(source)), set(values(third))) == ((1.0, ""), set(UUIDS[:2]))


def test_a_gpu_that_is_new_on_the_page_is_taken_with_its_second(exporter: Receiver, clock: FakeClock) -> None:
    source = Exporter(config(exporter.url), clock)
    exporter.script(Answer(body=page({"DCGM_FI_PROF_SM_ACTIVE": "0.5"}).encode()))
    assert [len(values(ask(source))) for _ in range(3)] == [1, 1, 2]


def test_a_gpu_that_is_divided_is_not_missing(exporter: Receiver, clock: FakeClock) -> None:
    source = Exporter(config(exporter.url), clock)
    ask(source)
    both = row("DCGM_FI_PROF_SM_ACTIVE", "0.5") + row("DCGM_FI_PROF_SM_ACTIVE", "0.9", 1, GPU_I_ID="3", GPU_I_PROFILE="1g.5gb")
    exporter.always = Answer(body=both.encode())
    answers = ask(source)
    assert (state(answers), values(answers)) == ((1.0, ""), {UUIDS[0]: {gpu.SM_ACTIVE: 0.5}})


def test_an_instance_has_a_target_of_its_own_with_what_is_measured_in_it(exporter: Receiver, clock: FakeClock) -> None:
    labels = {"GPU_I_ID": "3", "GPU_I_PROFILE": "1g.5gb"}
    text = row("DCGM_FI_PROF_SM_ACTIVE", "0.9", **labels) + row("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", BLANK, **labels)
    exporter.always = Answer(body=(text + row("DCGM_FI_DEV_GPU_TEMP", "34", **labels)).encode())
    answers = ask(Exporter(config(exporter.url), clock))
    found = answers.of(mig.MIG, f"{UUIDS[0]}/3")
    assert (found.values, found.absent) == ({mig.MIG_SM_ACTIVE: 0.9}, {mig.MIG_TENSOR_ACTIVE: Absence.UNSUPPORTED})
    assert found.target.labels == {"gpu": "0", "uuid": UUIDS[0], "gpu_instance": "3"}
    assert (state(answers), values(answers)) == ((1.0, ""), {})


def test_what_did_not_return_is_left_alone_and_said(exporter: Receiver, clock: FakeClock) -> None:
    answers = Answers()
    Exporter(config(exporter.url), clock).ask(Tier.NORMAL, frozenset({"page"}), answers)
    assert (state(answers), exporter.requests) == ((0.0, "timeout"), [])


def test_nvml_and_dcgm_are_merged_on_the_uuid_and_nvml_is_believed_first(exporter: Receiver, clock: FakeClock) -> None:
    exporter.always = Answer(body=page({"DCGM_FI_PROF_SM_ACTIVE": "0.5", "DCGM_FI_DEV_GPU_UTIL": "11"}).encode())
    answers = ask(Exporter(config(exporter.url), clock))
    read = answers.of(gpu.GPU, UUIDS[0])
    board = Board({})
    from_nvml = Reading(
        source="nvml",
        tier=Tier.FAST,
        target=read.target,
        at=clock.wall(),
        took=0.0,
        values={gpu.UTILIZATION: 0.97},
        absent={gpu.SM_ACTIVE: Absence.UNSUPPORTED},
    )
    for reading in (from_nvml, *answers.readings):
        board.post(reading, clock.mono())
    entry = board.view(clock.wall(), clock.mono()).entries[read.target]
    assert (entry.values, entry.absent) == ({gpu.UTILIZATION: 0.97, gpu.SM_ACTIVE: 0.5}, {})


def test_one_reading_of_the_source_goes_through_a_worker(exporter: Receiver) -> None:
    found = once(["dcgm"], config(exporter.url), 30.0)
    assert (found.problem, [one.target.key for one in found.readings]) == ("", ["", UUIDS[0], UUIDS[1]])


def test_an_exporter_that_dies_is_the_trouble_of_its_collector_and_two_lines_in_the_log(
    exporter: Receiver, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gpuwatch")
    came: list[Reading] = []
    source = Exporter(config(exporter.url), clock)
    local = Local("dcgm", source, post=came.append, happened=lambda _: None, clock=clock, deadline=60)
    local.start()

    def asked() -> tuple[float | None, str]:
        """Have the page read once; return what the collector says of that."""
        done = len([one for one in came if one.target.subject is gpu.DCGM])
        local.ask(Tier.NORMAL)
        until(lambda: len([one for one in came if one.target.subject is gpu.DCGM]) > done and not local._open)
        return local.readings(0.0)[0].values.get(own.COLLECTOR_SUCCESS), local.problem().partition(":")[0]

    assert asked() == (1.0, "")
    exporter.always = Answer(body=b"# nothing of DCGM\n")
    assert [asked(), asked()] == [(0.0, "not_dcgm")] * 2
    exporter.always = Answer(body=PAGE.encode())
    assert asked() == (1.0, "")
    local.stop(5)
    assert [line.split(": ")[2] if line.count(": ") > 1 else line for line in caplog.messages] == [
        "not_dcgm",
        "dcgm: dcgm is well again after 0 s",
    ]
