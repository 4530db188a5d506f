"""What /-/ready and `gpuwatch status` say, from what is known."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gpuwatch.catalogue import derived, disk, gpu, host
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE, MIG_MEMORY_USED, MIG_MODE
from gpuwatch.catalogue.process import JOB, JOB_GPU_ACCESS_MISSING, PROCESS_GPU, PROCESS_GPU_MEMORY
from gpuwatch.cli.status import lines, well
from gpuwatch.daemon.answers import Facts, reasons, status
from gpuwatch.model.alert import AlertState, Incident, Now, Open, Severity
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.sampling.events import NOT_YET
from tests.fakes.incidents import HOT

DRIVER = Target(subject=gpu.DRIVER, key="", info={"driver_version": "535.154.05"})
GPUS = Target(subject=gpu.GPUS, key="")
CARD = Target(subject=gpu.GPU, key="GPU-1", labels={"gpu": "3", "uuid": "GPU-1"}, info={"name": "NVIDIA A40", "label": "slot 3"})
DISK = Target(subject=disk.DISK, key="wwn-1", labels={"device": "sda"})
MACHINE = Target(subject=host.HOST, key="", info={"os": "Debian"})
OK = gpu.DRIVER_STATE.at("ok")


def entry(target: Target, values: Mapping[Metric, float], fault: Fault | None = None) -> Entry:
    """Return what is known of one target."""
    reading = Reading(source="x", tier=Tier.SLOW, target=target, at=100.0, took=0.0, values=values, fault=fault)
    return Entry(target, values, {}, (reading,))


def facts(*entries: Entry) -> Facts:
    """Return the facts of a daemon that is well, with these entries."""
    return Facts(
        view=View(100.0, {one.target: one for one in entries}),
        version="1",
        name="vision-07",
        started=40.0,
        beat_age=0.5,
        beat_limit=10.0,
        wants_gpus=True,
        collectors={"gpuwatch-nvml": "", "host": "", "gpuwatch-smart": ""},
        seldom=("gpuwatch-smart",),
        incidents=(),
        silenced={},
        silences=(),
        nobody=False,
        telling=(),
        store="",
        judging=(),
        receivers=("oncall",),
        notes=(),
    )


SEEN = entry(GPUS, {gpu.VISIBLE["pci"]: 4.0})
AWAITED = entry(DRIVER, gpu.DRIVER_STATE.at("no_nodes"), Fault("no_nodes", "nodes are waited for", 4, waits=True))
MISSED = entry(DRIVER, gpu.DRIVER_STATE.at("no_nodes"), Fault("no_nodes", "nodes are missing: make them", 4))
DOWN = entry(DRIVER, gpu.DRIVER_STATE.at("not_loaded"), Fault("not_loaded", "the nvidia module is not loaded"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (facts(entry(DRIVER, OK), SEEN), []),
        (facts(), []),  # a host without GPUs is ready without
        (facts(entry(DRIVER, gpu.DRIVER_STATE.at("no_library"))), []),
        (replace(facts(), beat_age=None), ["no sample has been taken yet"]),
        (replace(facts(), beat_age=12.0), ["the last sample is 12 s old"]),
        (replace(facts(), collectors={"gpuwatch-nvml": "hangs", "host": ""}), ["gpuwatch-nvml: hangs"]),
        (replace(facts(), collectors={"host": "", "gpuwatch-smart": NOT_YET}), []),  # the rest is fresh
        (facts(SEEN), ["nvml: no answer yet"]),
        (facts(entry(GPUS, {derived.EXPECTED: 8.0})), ["nvml: no answer yet"]),
        (facts(SEEN, DOWN), ["driver not_loaded: the nvidia module is not loaded"]),
        (replace(facts(SEEN, DOWN), wants_gpus=False), []),
        (facts(AWAITED), ["driver no_nodes: nodes are waited for"]),
        (replace(facts(AWAITED), wants_gpus=False), []),
        (facts(MISSED), ["driver no_nodes: nodes are missing: make them"]),
        (facts(entry(DRIVER, gpu.DRIVER_STATE.at("version_mismatch"))), ["driver version_mismatch: gives no reading"]),
    ],
)
def test_it_is_ready_unless_it_has_nothing_fresh_to_tell(found: Facts, expected: list[str]) -> None:
    assert reasons(found) == expected
    assert (status(found)["ready"], status(found)["reasons"]) == (not expected, expected)


def test_a_driver_that_is_waited_for_is_no_trouble_until_the_grace_is_over() -> None:
    shown = [status(facts(SEEN, one)) for one in (AWAITED, MISSED)]
    assert [(page["driver"]["state"], page["driver"]["waits"], page["ready"]) for page in shown] == [
        ("no_nodes", True, False),
        ("no_nodes", False, False),
    ]
    assert [page["troubles"] for page in shown] == [[], ["driver no_nodes: nodes are missing: make them"]]


def test_a_release_is_no_reason_against_being_ready_and_no_trouble() -> None:
    driver = entry(DRIVER, gpu.DRIVER_STATE.at("released"), Fault("released", "released until 14:32 by root"))
    card = entry(CARD, {derived.UP: 0.0, **derived.DOWN_REASON.at("released")})
    page = status(facts(SEEN, driver, card))
    assert (page["ready"], page["reasons"], page["troubles"], well(page)) == (True, [], [], True)


def test_the_status_tells_each_gpu_and_disk_with_what_is_known_and_nothing_else() -> None:
    card = entry(CARD, {derived.UP: 1.0, **derived.STATE.at("ok"), gpu.POWER: 250.0})
    drive = entry(DISK, {**disk.VERDICT.at("warn"), disk.WEAR_USED: 0.9}, Fault("wear", "90 % worn"))
    page = status(facts(entry(DRIVER, OK), card, drive, entry(MACHINE, {})))
    [shown] = page["gpus"]
    assert (shown["gpu"], shown["label"], shown["up"], shown["state"], shown["down_reason"]) == ("3", "slot 3", True, "ok", "")
    assert shown["values"] == {"power_watts": 250.0}
    [shown] = page["disks"]
    assert (shown["device"], shown["verdict"], shown["words"]) == ("sda", "warn", "90 % worn")
    assert shown["values"] == {"wear_used_ratio": 0.9}
    assert page["host"] == {"name": "vision-07", "os": "Debian"}
    assert page["driver"] == {"state": "ok", "words": "", "waits": False, "driver_version": "535.154.05"}


def test_only_the_gpus_of_the_inventory_are_gpus_of_this_host() -> None:
    mine = entry(CARD, {derived.UP: 1.0})
    lost = Target(subject=gpu.GPU, key="GPU-2", labels={"gpu": "4", "uuid": "GPU-2"})
    silent = Entry(lost, {}, {derived.UP: Absence.LATE}, ())
    of_dcgm = entry(Target(subject=gpu.GPU, key="GPU-9", labels={"gpu": "0", "uuid": "GPU-9"}), {gpu.POWER: 80.0})
    of_an_xid = entry(Target(subject=gpu.GPU, key="0000:3f:00.0", labels={"gpu": "0000:3f:00.0"}), {})
    page = status(facts(entry(DRIVER, OK), of_dcgm, mine, silent, of_an_xid))
    assert [card["gpu"] for card in page["gpus"]] == ["3", "4"]


def test_a_collector_that_is_asked_seldom_is_a_trouble_and_what_must_be_fresh_is_a_reason() -> None:
    page = status(replace(facts(), collectors={"host": "hangs", "gpuwatch-smart": "ends"}))
    assert (page["reasons"], page["troubles"]) == (["host: hangs"], ["gpuwatch-smart: ends"])
    assert "reading: host FAILS  gpuwatch-smart FAILS" in list(lines(page, 100.0))


def test_what_is_asked_seldom_and_has_not_been_read_yet_is_no_trouble() -> None:
    page = status(replace(facts(), collectors={"host": "", "gpuwatch-smart": NOT_YET}))
    assert (page["ready"], page["troubles"], well(page)) == (True, [], True)
    assert "reading: host ok  gpuwatch-smart has not answered yet" in list(lines(page, 100.0))
    page = status(replace(facts(), collectors={"host": NOT_YET, "gpuwatch-smart": ""}))
    assert (page["ready"], page["reasons"]) == (False, ["host: has not answered yet"])


def test_mig_instances_and_those_who_are_on_a_gpu_are_told_with_it() -> None:
    def instance(number: str, used: float) -> Entry:
        labels = {"gpu": "3", "uuid": "GPU-1", "gpu_instance": number}
        target = Target(subject=MIG, key=f"GPU-1/{number}", labels=labels, info={"profile": "3g.40gb"})
        return entry(target, {MIG_MEMORY_USED: used, MIG_MEMORY_SIZE: 40.0})

    def holder(pid: str, job: str, memory: float | None, uuid: str = "GPU-1", **info: str) -> Entry:
        labels = {"pid": pid, "start": "1", "command": f"run{pid}", "job": job, "role": "gpu", "gpu": "3", "uuid": uuid}
        target = Target(subject=PROCESS_GPU, key=f"{uuid}/{pid}", labels=labels, info=info)
        return entry(target, {} if memory is None else {PROCESS_GPU_MEMORY: memory})

    card = entry(CARD, {derived.UP: 1.0, MIG_MODE["current"]: 1.0})
    holders = [
        holder("7", "small", 1.0, user="ben"),
        holder("8", "train", 2.0, user="anna", gi="1"),
        holder("9", "train", 3.0, user="anna", gi="1"),
        holder("10", "", None),
        holder("11", "elsewhere", 9.0, uuid="GPU-7"),
    ]
    [shown] = status(facts(card, instance("1", 5.0), instance("2", 0.0), *holders))["gpus"]
    assert [(one["gpu_instance"], one["profile"], one["values"]) for one in shown["mig"]] == [
        ("1", "3g.40gb", {"memory_used_bytes": 5.0, "memory_size_bytes": 40.0}),
        ("2", "3g.40gb", {"memory_used_bytes": 0.0, "memory_size_bytes": 40.0}),
    ]
    assert [tuple(one.values()) for one in shown["users"]] == [
        ("anna", "train", "1", "run9", ["8", "9"], 5.0),
        ("ben", "small", "", "run7", ["7"], 1.0),
        ("", "", "", "run10", ["10"], None),
    ]
    [shown] = status(facts(entry(CARD, {derived.UP: 1.0, MIG_MODE["current"]: 0.0})))["gpus"]
    assert (shown["mig"], shown["users"]) == (None, [])


def test_a_container_that_lacks_its_gpus_is_named_with_what_to_do() -> None:
    whose = {"scheduler": "docker", "container": "aoi-infer-2", "user": "root", "why": "", "key": "docker/0123"}

    def job(name: str, values: Mapping[Metric, float]) -> Entry:
        labels = {"scheduler": "docker", "job": name}
        return entry(Target(subject=JOB, key=f"docker/{name}", labels=labels, info=whose), values)

    page = status(
        facts(job("aoi-infer-2", {JOB_GPU_ACCESS_MISSING: 1.0}), job("well", {JOB_GPU_ACCESS_MISSING: 0.0}), job("unknown", {}))
    )
    words = "container aoi-infer-2 of root has lost its GPUs, or will when systemd reloads: its device rules lack them"
    assert page["lacking"] == [
        {"scheduler": "docker", "job": "aoi-infer-2", "user": "root", "container": "aoi-infer-2", "words": words}
    ]
    assert [line for line in lines(page, 100.0) if "aoi-infer-2" in line] == [
        f"  . {words}. Make it anew, with CDI or with links in /dev/char (nvidia-ctk system create-dev-char-symlinks)."
    ]


def test_the_worst_alert_is_first_then_what_is_told_then_the_oldest() -> None:
    def incident(name: str, severity: Severity, since: float) -> Incident:
        return replace(HOT, id=name, severity=severity, since=since)

    incidents = [
        incident("young warning", Severity.WARNING, 90.0),
        incident("old warning", Severity.WARNING, 10.0),
        incident("silenced", Severity.CRITICAL, 5.0),
        incident("info", Severity.INFO, 1.0),
        incident("critical", Severity.CRITICAL, 95.0),
    ]
    page = status(replace(facts(), incidents=list(map(Open, incidents)), silenced={"silenced": ["S1"]}))
    expected = ["critical", "silenced", "old warning", "young warning", "info"]
    assert [alert["id"] for alert in page["alerts"]] == expected


@pytest.mark.parametrize(
    ("state", "now", "words"),
    [
        (AlertState.FIRING, Now("x", 94.0, "celsius"), ""),
        (AlertState.STALE, None, ", no data now"),
        (AlertState.RECOVERING, Now("x", 69.4, "celsius"), ", recovering, 69 C now"),
        (AlertState.RECOVERING, Now("x", 310.0, "watts"), ", recovering, 310 W now"),
        (AlertState.RECOVERING, Now("x", 0.25, "ratio"), ", recovering, 25% now"),
        (AlertState.RECOVERING, Now("x", 3 * 2.0**30, "bytes"), ", recovering, 3.0 GiB now"),
        (AlertState.RECOVERING, Now("x", 7200.0, "seconds"), ", recovering, 2 h 0 min now"),
        (AlertState.RECOVERING, Now("x", 1500.0, "hertz"), ", recovering, 1500 hertz now"),
        (AlertState.RECOVERING, Now("x", 3.0, ""), ", recovering, 3 now"),
        (AlertState.RECOVERING, None, ", recovering"),
    ],
)
def test_an_alert_that_does_not_just_fire_says_how_it_stands_now(state: AlertState, now: Now | None, words: str) -> None:
    page = status(replace(facts(), incidents=[Open(replace(HOT, state=state, since=40.0), now)]))
    assert f"  WARNING {HOT.rule} for 60 s{words}: {HOT.summary}" in list(lines(page, 100.0))


def test_of_a_released_gpu_nothing_is_told_that_was_true_before() -> None:
    labels = {"pid": "7", "start": "1", "command": "python", "job": "", "role": "gpu", "gpu": "3", "uuid": "GPU-1"}
    holder = entry(Target(subject=PROCESS_GPU, key="GPU-1/7", labels=labels), {PROCESS_GPU_MEMORY: 1.0})
    lost = entry(CARD, {derived.UP: 0.0, **derived.STATE.at("lost"), gpu.POWER: 5.0, MIG_MODE["current"]: 1.0})
    held = replace(facts(entry(DRIVER, OK), lost, holder), release={"state": "released", "until": 900.0, "by": "root"})
    [shown] = status(held)["gpus"]
    assert (shown["gpu"], shown["label"]) == ("3", "slot 3")
    assert (shown["up"], shown["state"], shown["down_reason"], shown["values"]) == (False, "", "released", {})
    assert (shown["mig"], shown["users"]) == (None, [])
    assert "  GPU 3 (slot 3): released" in list(lines(status(held), 100.0))
    [shown] = status(replace(held, release={"state": "attaching"}))["gpus"]
    assert (shown["state"], len(shown["users"])) == ("lost", 1)


def test_the_size_of_a_memory_is_known_from_its_parts_until_it_is_read() -> None:
    up = {derived.UP: 1.0, gpu.MEMORY_USED: 3.0, gpu.MEMORY_FREE: 5.0}

    def size(values: Mapping[Metric, float]) -> float | None:
        [shown] = status(facts(entry(CARD, values)))["gpus"]
        found = shown["values"].get("memory_size_bytes")
        return None if found is None else float(found)

    assert size({**up, gpu.MEMORY_RESERVED: 2.0}) == 10.0
    assert size(up) == 8.0  # version 1 of the call counts the reserved part as used
    assert size({**up, gpu.MEMORY_SIZE: 11.0}) == 11.0
    assert size({derived.UP: 1.0, gpu.MEMORY_USED: 3.0}) is None
