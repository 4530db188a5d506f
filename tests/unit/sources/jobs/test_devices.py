"""Containers whose device rules lack the GPUs that they use."""

import pytest

from gpuwatch.sources.jobs import devices
from gpuwatch.sources.jobs.home import groups, home
from gpuwatch.sources.jobs.limits import Hierarchies
from tests.fakes.cgroups import Crowd, docker, session
from tests.fakes.host import HostTree

ID = "0123456789abcdef" * 4
SCOPE = f"docker-{ID}.scope"
USUAL = "c 1:3 rwm\nc 1:5 rwm\nc 136:* rwm\n"


def missing(
    tree: HostTree, version: str, group: str, *, rules: str = "", allowed: str | None = None, policy: str = ""
) -> float | None:
    """Return what is told of a container whose rules in force, and whose list at systemd, are these."""
    crowd = Crowd(tree, version)
    crowd.run(4711, group=group)
    if version != "v2" and rules:
        tree.write(crowd.folder(group, "devices") / "devices.list", rules)
    if allowed is not None:
        tree.write(tree.root / f"run/systemd/transient/{SCOPE}.d/50-DeviceAllow.conf", f"[Scope]\nDeviceAllow=\n{allowed}")
    if policy:
        tree.write(tree.root / f"run/systemd/transient/{SCOPE}.d/50-DevicePolicy.conf", f"[Scope]\nDevicePolicy={policy}\n")
    tree.write(tree.dev / "char/195:255", "")
    paths = groups((tree.proc / "4711/cgroup").read_text())
    return devices.missing(Hierarchies(str(tree.sys)), tree.root, tree.dev, home(paths), paths)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (USUAL, 1.0),
        (USUAL + "c 195:255 rw\n", 0.0),
        (USUAL + "c 195:* rw\n", 0.0),
        ("a *:* rwm\n", 0.0),
        ("b 195:0 rwm\nc 1195:0 rwm\n", 1.0),
    ],
)
def test_the_rules_in_force_of_cgroup_v1(tree: HostTree, rules: str, expected: float) -> None:
    assert missing(tree, "v1", docker(ID, "cgroupfs"), rules=rules) == expected


@pytest.mark.parametrize("version", ["v1", "hybrid", "v2"])
@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ("DeviceAllow=/dev/char/10:200 rwm\n", 1.0),
        ("DeviceAllow=/dev/char/195:255 rw\n", 0.0),
        ("DeviceAllow=/dev/char/195:7 rw\n", 1.0),  # without its link in /dev/char systemd leaves it out
        ("DeviceAllow=char-nvidia rw\n", 0.0),
        ("DeviceAllow=/dev/nvidiactl rw\n", 0.0),
        ("DeviceAllow=/dev/char/1195:255 rw\n", 1.0),
    ],
)
def test_what_systemd_would_set_at_a_reload(tree: HostTree, version: str, allowed: str, expected: float) -> None:
    assert missing(tree, version, docker(ID, "systemd"), rules=USUAL + "c 195:* rw\n", allowed=allowed) == expected


@pytest.mark.parametrize("version", ["v1", "hybrid", "v2"])
@pytest.mark.parametrize(
    ("allowed", "policy", "expected"),
    [
        ("", "auto", 0.0),  # `docker run --privileged`
        ("", "", 0.0),
        (None, "auto", 0.0),
        ("DeviceAllow=/dev/char/10:200 rwm\nDeviceAllow=\n", "auto", 0.0),
        ("DeviceAllow=/dev/char/10:200 rwm\n", "auto", 1.0),  # a list is a list, whatever the policy
        ("", "strict", 1.0),
        ("", "closed", 1.0),
        (None, "strict", 0.0),  # the list cannot be read: what is in force counts
    ],
)
def test_a_privileged_container_has_every_gpu(
    tree: HostTree, version: str, allowed: str | None, policy: str, expected: float
) -> None:
    found = missing(tree, version, docker(ID, "systemd"), rules="a *:* rwm\n", allowed=allowed, policy=policy)
    assert (None if (version, allowed, policy) == ("v2", None, "strict") else expected) == found


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_what_cannot_be_told_is_not(tree: HostTree, version: str, driver: str) -> None:
    assert missing(tree, version, docker(ID, driver)) is None


def test_what_is_no_container_has_no_rules(tree: HostTree) -> None:
    assert missing(tree, "v1", session(1001), rules=USUAL) is None
