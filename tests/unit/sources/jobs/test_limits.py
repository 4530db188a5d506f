"""What a control group has used, and may use, in every layout."""

from collections.abc import Callable

import pytest

from gpuwatch.sources.jobs.home import groups, home
from gpuwatch.sources.jobs.limits import Hierarchies, cores
from tests.fakes.cgroups import Crowd, docker, pod, slurm
from tests.fakes.host import HostTree

ID = "0123456789abcdef" * 4
UID = "5f0c2a7e-9d1b-4c53-8a4e-0123456789ab"
LAYOUTS = {
    "docker, v1, cgroupfs": ("v1", docker(ID, "cgroupfs"), docker(ID, "cgroupfs")),
    "docker, v1, systemd": ("v1", docker(ID, "systemd"), docker(ID, "systemd")),
    "docker, hybrid": ("hybrid", docker(ID, "systemd"), docker(ID, "systemd")),
    "docker, v2": ("v2", docker(ID, "systemd"), docker(ID, "systemd")),
    "pod, v1": ("v1", pod(UID, ID, driver="cgroupfs"), f"/kubepods/burstable/pod{UID}"),
    "pod, v2": ("v2", pod(UID, ID, driver="systemd"), pod(UID, ID, driver="systemd").rpartition("/")[0]),
    "slurm, v2": ("v2", slurm(7, "v2"), "/system.slice/slurmstepd.scope/job_7"),
    "unit, v2": ("v2", "/system.slice/train.service", "/system.slice/train.service"),
    "unit, v1": ("v1", "/system.slice/train.service", "/system.slice/train.service"),
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, tree: HostTree) -> tuple[Crowd, str, Callable[[str], float | frozenset[int] | None]]:
    """A process in a layout, the job's own group, and what asks for one of its numbers."""
    version, group, own = LAYOUTS[request.param]
    crowd = Crowd(tree, version)
    crowd.run(4711, group=group)
    paths = groups((tree.proc / "4711/cgroup").read_text())

    def ask(what: str) -> float | frozenset[int] | None:
        here, marker = Hierarchies(str(tree.sys)), home(paths).marker
        if what in ("used", "throttled"):
            (place,) = here.used_in(paths, marker) if what == "used" else here.limited_in(paths, marker)
            return here.used(place) if what == "used" else here.throttled(place)
        found: float | frozenset[int] | None = getattr(here, what)(paths, marker)
        return found

    return crowd, own, ask


Layout = tuple[Crowd, str, Callable[[str], float | frozenset[int] | None]]


def test_what_a_job_used_and_lost_is_that_of_its_own_group(layout: Layout) -> None:
    crowd, own, ask = layout
    crowd.limit(own, quota=4, cpus="0-7", used=12.5, throttled=1.5)
    assert (12.5, 1.5, 4.0, frozenset(range(8))) == tuple(ask(what) for what in ("used", "throttled", "quota", "cpus"))


def test_a_quota_further_up_counts_too(layout: Layout) -> None:
    crowd, own, ask = layout
    crowd.limit(own, quota=8)
    above = own.rpartition("/")[0]
    if above:
        crowd.limit(above, quota=2.5)
    assert (2.5 if above else 8.0) == ask("quota")


def test_no_quota_is_none(layout: Layout) -> None:
    crowd, own, ask = layout
    crowd.limit(own)
    assert ask("quota") is None


def test_what_is_not_told_is_an_error(layout: Layout) -> None:
    crowd, own, ask = layout
    for what in ("used", "throttled"):
        with pytest.raises(OSError):  # noqa: PT011 - of whichever kind the kernel has
            ask(what)
    crowd.limit(own)
    controller = "" if crowd.version == "v2" else "cpu,cpuacct"
    for content in ("", "usage_usec\n", "garbage garbage garbage\n", "nr_periods 1\n"):
        crowd.host.write(crowd.folder(own, controller) / "cpu.stat", content)
        with pytest.raises(ValueError):  # noqa: PT011 - the words are of no account
            ask("throttled")
    assert ask("quota") is None


def test_a_slurm_job_of_v1_has_only_the_controllers_that_slurm_uses(tree: HostTree) -> None:
    crowd = Crowd(tree, "v1")
    crowd.run(4711, group=slurm(7, "v1"))
    crowd.limit("/slurm/uid_1001/job_7", quota=4, cpus="0-3")
    paths = groups((tree.proc / "4711/cgroup").read_text())
    found = Hierarchies(str(tree.sys))
    assert frozenset(range(4)) == found.cpus(paths, "job_7")
    assert found.quota(paths, "job_7") is None
    assert found.used_in(paths, "job_7") == []


def test_a_group_outside_of_our_namespace_is_not_looked_for(tree: HostTree) -> None:
    Crowd(tree, "v2")
    tree.write(tree.sys / "fs/x/cpu.max", "100000 100000\n")  # where the path would lead to
    assert Hierarchies(str(tree.sys)).quota({"": "/../x"}, "x") is None


@pytest.mark.parametrize(
    ("text", "expected"), [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("a-b", set()), ("0-", set()), ("3-1", set())]
)
def test_lists_of_cores(text: str, expected: set[int]) -> None:
    assert expected == cores(text)
