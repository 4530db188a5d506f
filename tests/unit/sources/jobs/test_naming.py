"""Whose a job is, what it is called, by which key it is known: jobs of different owners stay two, and people may stay untold."""

import json
import re
from contextlib import suppress

import msgspec
import pytest

from gpuwatch.catalogue.process import JOB, JOB_CPU, PROCESS, PROCESS_GPU
from gpuwatch.config import Privacy
from gpuwatch.model.reading import Tier
from gpuwatch.sources.jobs.containers import Named
from gpuwatch.sources.jobs.home import Home
from gpuwatch.sources.jobs.naming import Naming
from tests.fakes.cgroups import Crowd, docker, pod, session, slurm
from tests.fakes.crowd_view import holder
from tests.fakes.host import HostTree
from tests.fakes.until import until
from tests.fakes.watched_jobs import ID, Watched, name_container, one, told

UID = "5f0c2a7e-9d1b-4c53-8a4e-0123456789ab"
ANN, BOB = (f"/user.slice/user-{uid}.slice/user@{uid}.service/app.slice" for uid in (1001, 1002))
NSPAWN = "/machine.slice/systemd-nspawn@deb.service/payload"
INSTANCE = "/system.slice/system-jupyter.slice/jupyter@ann.service"


def watched(tree: HostTree, how: str = "name") -> Watched:
    """Return the source with this privacy."""
    tree.write(tree.root / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    return Watched(tree, msgspec.structs.replace(tree.config, privacy=msgspec.convert({"users": how}, Privacy)))


def crowded(tree: HostTree, *groups: str, how: str = "name", uids: tuple[int, ...] = (1001, 1002)) -> Watched:
    """Return the source on a host with a process in each of these groups."""
    crowd = Crowd(tree, "v2")
    crowd.users(ann=1001, bob=1002, aoi=998)
    for number, group in enumerate(groups):
        crowd.run(4711 + number, group=group, uid=uids[number % len(uids)])
    host = watched(tree, how)
    host.board = [holder(4711 + number) for number in range(len(groups))]
    return host


def labels(host: Watched) -> list[str]:
    """Return what the jobs are called now, in the order of their processes."""
    return [job.target.labels["job"] for job in told(host.ask(), JOB)]


def is_called(host: Watched, expected: list[str]) -> None:
    """Wait until the jobs are called so: names are looked up in a thread."""
    with suppress(AssertionError):  # what they are called instead is told below
        until(lambda: labels(host) == expected)
    assert expected == labels(host)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (f"{ANN}/jupyter.service", f"{BOB}/jupyter.service", ["ann/jupyter.service", "bob/jupyter.service"]),
        (f"{ANN}/run-u5.service", "/system.slice/run-u5.service", ["ann/run-u5.service", "run-u5.service"]),
        (f"{ANN}/run-u5.scope", f"{BOB}/run-u5.scope", ["ann/run-u5.scope", "bob/run-u5.scope"]),
        (f"{NSPAWN}/system.slice/ollama.service", "/system.slice/ollama.service", ["deb/ollama.service", "ollama.service"]),
        (f"{NSPAWN}{ANN}/x.service", f"{ANN}/x.service", ["deb/1001/x.service", "ann/x.service"]),
        (
            "/machine.slice/machine-a\\x2db.scope/system.slice/x.service",
            "/system.slice/x.service",
            ["a-b/x.service", "x.service"],
        ),
        (f"{ANN}/docker-{ID}.scope", docker(ID, "systemd"), [f"ann/{ID[:12]}", ID[:12]]),
        (f"/lxc.payload.lab/docker/{ID}", docker(ID, "cgroupfs"), [f"lab/{ID[:12]}", ID[:12]]),
        (f"/docker/{'f' * 64}/docker/{ID}", docker(ID, "cgroupfs"), [f"{'f' * 12}/{ID[:12]}", ID[:12]]),
        (
            f"{ANN}/kubepods-pod{UID}/x",
            pod(UID, ID, driver="systemd"),
            [f"ann/{UID}", UID],
        ),
        (f"{ANN}{pod(UID, ID, driver='systemd')}", pod(UID, ID, driver="systemd"), [f"ann/{UID}", UID]),
        (f"{ANN}{pod(UID, ID, driver='cgroupfs')}", pod(UID, ID, driver="cgroupfs"), [f"ann/{UID}", UID]),
        (f"/lxc.payload.kubepods-pod{UID}", pod(UID, ID, driver="systemd"), [f"kubepods-pod{UID}", UID]),
        # Below a unit whose groups are delegated to it: what it makes there it may call as it likes.
        (f"{INSTANCE}/ollama.service", "/system.slice/ollama.service", ["jupyter@ann.service", "ollama.service"]),
        (f"{ANN}/a.service/b.service", f"{ANN}/b.service", ["ann/a.service", "ann/b.service"]),
    ],
)
def test_jobs_of_different_owners_are_two_and_are_told_apart(
    tree: HostTree, first: str, second: str, expected: list[str]
) -> None:
    is_called(crowded(tree, first, second), expected)


def test_a_group_below_a_unit_is_never_booked_on_the_container_whose_name_it_has(tree: HostTree) -> None:
    jobs = told(crowded(tree, f"{INSTANCE}/docker-{ID}.scope", docker(ID, "systemd")).ask(), JOB)
    assert [job.target.key for job in jobs] == [f"docker/unit=jupyter@ann.service/{ID[:12]}", f"docker/{ID[:12]}"]


@pytest.mark.parametrize(
    ("group", "label"),
    [
        ("/system.slice/train.service", "train.service"),
        (INSTANCE, "jupyter@ann.service"),
        (docker(ID, "systemd"), "aoi-infer-2"),
        (f"/system.slice/cri-containerd-{'e' * 64}.scope", "e" * 12),
        (pod(UID, ID, driver="systemd"), UID),
        (slurm(7, "v2"), "7"),
        (session(1001), "python-4711"),
        ("/machine.slice/machine-lab.scope/payload", "machine-lab.scope"),
        (f"{NSPAWN}/init.scope", "systemd-nspawn@deb.service"),
        (f"/system.slice/web.service/libpod-payload-{'e' * 64}", "e" * 12),  # podman run --cgroups=split, as quadlets have it
    ],
)
def test_what_is_of_this_host_itself_is_called_by_its_name_alone(tree: HostTree, group: str, label: str) -> None:
    name_container(tree)
    is_called(crowded(tree, group), [label])


def test_a_user_s_container_is_called_with_his_name_before_its_own(tree: HostTree) -> None:
    file = tree.root / f"home/ann/.local/share/docker/containers/{ID}/config.v2.json"
    tree.write(file, json.dumps({"Name": "/train"}))
    uid = 1001  # a file of root's counts as well as his own
    crowd = Crowd(tree, "v2")
    crowd.users(ann=uid)
    crowd.run(4711, uid=uid, group=f"/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/docker-{ID}.scope")
    host = watched(tree)
    host.board = [holder(4711)]
    is_called(host, ["ann/train"])


def test_a_container_inside_another_is_not_named_by_this_host_s_files(tree: HostTree) -> None:
    name_container(tree)
    crowd = Crowd(tree, "v2")
    crowd.run(4711, group=f"/lxc.payload.lab/docker/{ID}")
    host = watched(tree)
    host.board = [holder(4711)]
    job = one(told(host.ask(), JOB)).target
    assert (job.labels["job"], job.info["why"]) == (
        f"lab/{ID[:12]}",
        "it is in another container or machine, whose files are not looked at",
    )


def test_a_name_that_two_jobs_have_had_at_once_stays_with_neither(tree: HostTree, crowd: Crowd) -> None:
    for pid, letter in ((4711, "a"), (4712, "b")):
        crowd.run(pid, group=f"/system.slice/nerdctl-{letter * 64}.scope")
        bundle = tree.root / "run/containerd/io.containerd.runtime.v2.task" / letter / (letter * 64) / "config.json"
        tree.write(bundle, json.dumps({"annotations": {"nerdctl/name": "train"}}))
    host = Watched(tree)
    first, second = (f"train-{letter * 12}" for letter in "ab")
    for pids, expected in (((4711,), ["train"]), ((4711, 4712), [first, second]), ((4712,), [second]), ((4711,), [first])):
        host.board = [holder(pid) for pid in pids]
        is_called(host, expected)


def test_the_containers_of_a_pod_give_it_the_same_facts_whoever_has_most_memory(tree: HostTree, crowd: Crowd) -> None:
    for pid, letter in ((4711, "a"), (4712, "b")):
        crowd.run(pid, group=pod(UID, letter * 64, driver="systemd"))
    host = Watched(tree)
    found = []
    for larger in (4711, 4712):
        host.board = [holder(pid, memory=1 + (pid == larger)) for pid in (4711, 4712)]
        found.append(one(told(host.ask(), JOB)).target.info["container"])
    assert found == ["a" * 12] * 2


def test_the_name_of_an_lxc_container_is_whole_and_needs_no_file(tree: HostTree, crowd: Crowd) -> None:
    for number in (1, 2):
        crowd.run(4710 + number, group=f"/lxc.payload.vision-training-0{number}")
    host = Watched(tree)
    host.board = [holder(4711), holder(4712)]
    facts = [job.target.info for job in told(host.ask(), JOB)]
    names = ["vision-training-01", "vision-training-02"]
    assert [(info["container"], info["name"], info.get("why")) for info in facts] == [(name, name, None) for name in names]


def test_lxc_containers_whose_names_begin_alike_have_their_own_cpu(tree: HostTree, crowd: Crowd) -> None:
    for pid, name, used in ((4711, "lab2", 20), (4712, "l", 1)):
        crowd.run(pid, group=f"/lxc/{name}")
        crowd.limit(f"/lxc/{name}", used=used)
    crowd.limit("/lxc", used=999)
    host = Watched(tree)
    host.board = [holder(4711), holder(4712)]
    found = {job.target.labels["job"]: job.values.get(JOB_CPU) for job in told(host.ask(), JOB)}
    assert found == {"lab2": 20.0, "l": 1.0}


PERSONAL = (
    INSTANCE,
    "/system.slice/jupyter-ann-singleuser.service",
    f"{ANN}/jupyter.service",
    f"{ANN}/ann-train.service",
    f"{ANN}/run-u5.scope",
    "/lxc.payload.ann",
    f"/lxc.payload.ann/docker/{ID}",
    "/machine.slice/machine-ann.scope/payload",
    "/machine.slice/machine-ann.scope/system.slice/x.service",
    f"{ANN}/docker-{ID}.scope",
    docker(ID, "systemd"),
)


@pytest.mark.parametrize("how", ["uid", "off"])
@pytest.mark.parametrize("group", PERSONAL)
def test_no_text_of_a_job_says_whose_it_is_where_people_are_not_told(tree: HostTree, group: str, how: str) -> None:
    name_container(tree, "ann-train")
    crowd = Crowd(tree, "v2")
    crowd.users(ann=1001)
    crowd.run(4711, uid=1001, group=group)
    crowd.run(4712, "pt_data_worker", uid=1001, parent=4711, group=group)
    host = watched(tree, how)
    host.board = [holder(4711)]
    answers = host.ask(Tier.NORMAL, Tier.FAST, Tier.SLOW, Tier.NORMAL)
    said = "\n".join(f"{reading.target.key} {reading.target.labels} {reading.target.info}" for reading in answers.readings)
    assert {target.subject for target in (reading.target for reading in answers.readings)} >= {JOB, PROCESS, PROCESS_GPU}
    assert [word for word in ("ann", "1001") if word in said] == (["1001"] if how == "uid" else [])


def test_jobs_stay_told_apart_and_the_same_where_people_are_not_told(tree: HostTree) -> None:
    groups = (INSTANCE, INSTANCE.replace("ann", "bob"), f"{ANN}/jupyter.service", f"{BOB}/jupyter.service")
    found: list[list[tuple[str, str]]] = []
    for _ in range(2):  # and the daemon is started anew
        host = crowded(tree, *groups, how="off")
        until(lambda host=host: labels(host)[2].endswith("/jupyter.service"))  # type: ignore[misc] # bound
        found.append([(job.target.key, job.target.labels["job"]) for job in told(host.ask(), JOB)])
    assert found[0] == found[1]
    assert [len(set(names)) for names in zip(*found[0], strict=True)] == [4, 4]
    shown = [re.sub("[0-9a-f]{8}", "*", label) for _, label in found[0]]
    assert shown == ["jupyter@*.service"] * 2 + ["*/jupyter.service"] * 2


@pytest.mark.parametrize("how", ["name", "uid", "off"])
def test_a_service_of_the_system_s_own_keeps_its_name_however_people_are_told(tree: HostTree, how: str) -> None:
    groups = ("/system.slice/aoi.service", "/system.slice/ollama.service", docker(ID, "systemd"), slurm(7, "v2"))
    name_container(tree)
    is_called(crowded(tree, *groups, how=how, uids=(998,)), ["aoi.service", "ollama.service", "aoi-infer-2", "7"])


@pytest.mark.parametrize("name", [None, "1001"])
def test_a_name_is_not_told_while_it_is_not_known_whose_it_is(name: str | None) -> None:
    """The name server has not answered yet, or does not know the number."""
    naming = Naming("off", b"secret", lambda uid: name)  # noqa: ARG005 - of whomever
    unit = "jupyter-ann-singleuser.service"
    home = Home("systemd", unit, unit=unit, marker=unit)
    assert "ann" not in naming.label(home, Named(), None, {1001}) + naming.unit(home, {1001}) + naming.key(home, None)
    found = naming.named(Home("docker", ID[:12], ID), Named("ann-train", "jupyter-ann", "ann"), {1001})
    assert Named() == found
