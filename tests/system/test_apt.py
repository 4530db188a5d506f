"""apt's hooks: for packages of the driver the GPUs are released, a person's release is left alone, and apt never stops for us."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch import cli
from gpuwatch.cli.apt import is_driver
from tests.fakes.gpu_server import GpuServer
from tests.fakes.until import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = "/var/cache/apt/archives"
DRIVER = f"{ARCHIVES}/linux-image-6.8.0-49-generic_6.8.0-49.49_amd64.deb\n{ARCHIVES}/nvidia-driver-550_550.90.07_amd64.deb\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuServer]:
    """A server whose daemon runs."""
    with GpuServer(tmp_path_factory.mktemp("server"), gpus=1) as server:
        server.wait_up(1)
        yield server


def apt(server: GpuServer, mark: Path, when: str, packages: str = "", redirected: str = "") -> str:
    """Run a hook as apt does; returns what it says. It never fails."""
    line = [sys.executable, "-m", "gpuwatch", "apt", when, "--socket", str(server.daemon.socket), "--mark", str(mark)]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", *line],
        input=os.fsencode(packages),
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},  # as in every locale but C
        timeout=PATIENCE,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout) == (0, b""), done
    return done.stderr.decode()


def state(server: GpuServer) -> str:
    """Return how the release stands."""
    return str(server.daemon.status()["release"]["state"])


def test_a_package_of_the_driver_releases_the_gpus_until_dpkg_is_done(server: GpuServer, tmp_path: Path) -> None:
    said = apt(server, tmp_path / "mark", "before", DRIVER)
    assert said == "gpuwatch has let go of the GPUs while the NVIDIA driver is being installed\n"
    assert state(server) == "released"
    assert apt(server, tmp_path / "mark", "after") == ""
    until(lambda: state(server) == "attached")
    assert not (tmp_path / "mark").exists()


def test_other_packages_are_nothing(server: GpuServer, tmp_path: Path) -> None:
    assert apt(server, tmp_path / "mark", "before", f"{ARCHIVES}/nvidia-container-toolkit_1.16_amd64.deb\n") == ""
    assert (state(server), (tmp_path / "mark").exists(), apt(server, tmp_path / "mark", "after")) == ("attached", False, "")


def test_a_path_that_is_not_utf_8_is_one_like_any_other(server: GpuServer, tmp_path: Path) -> None:
    assert apt(server, tmp_path / "mark", "before", f"/home/m\udcfcller/nvidia-tool_1_amd64.deb\n{DRIVER}") != ""
    assert state(server) == "released"
    assert apt(server, tmp_path / "mark", "after", redirected="<&-") == ""
    until(lambda: state(server) == "attached")


def test_a_closed_input_has_no_packages(server: GpuServer, tmp_path: Path) -> None:
    assert apt(server, tmp_path / "mark", "before", redirected="<&-") == ""
    assert state(server) == "attached"


def test_an_input_that_cannot_be_read_is_said(server: GpuServer, tmp_path: Path) -> None:
    assert apt(server, tmp_path / "mark", "before", redirected=f"0>{tmp_path}/x") != ""
    assert state(server) == "attached"


def test_nothing_is_released_where_no_mark_can_be_left(server: GpuServer, tmp_path: Path) -> None:
    mark = tmp_path / "nowhere/mark"
    assert apt(server, mark, "before", DRIVER) == f"gpuwatch apt: [Errno 2] No such file or directory: '{mark}'\n"
    assert state(server) == "attached"


def test_what_a_person_has_released_stays_released(server: GpuServer, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    apt(server, mark, "before", DRIVER)
    assert cli.main(["resume", "--socket", str(server.daemon.socket)]) == 0
    assert cli.main(["release", "--socket", str(server.daemon.socket)]) == 0
    assert mark.exists()  # of a run of apt that was killed
    apt(server, mark, "after")
    assert (state(server), mark.exists()) == ("released", False)
    apt(server, mark, "before", DRIVER)
    apt(server, mark, "after")
    assert (state(server), mark.exists()) == ("released", False)
    assert cli.main(["resume", "--socket", str(server.daemon.socket)]) == 0


def test_a_release_that_a_person_asks_for_meanwhile_outlasts_dpkg(server: GpuServer, tmp_path: Path) -> None:
    apt(server, tmp_path / "mark", "before", DRIVER)
    assert cli.main(["release", "--for", "3h", "--socket", str(server.daemon.socket)]) == 0
    apt(server, tmp_path / "mark", "after")
    assert state(server) == "released"
    assert cli.main(["resume", "--socket", str(server.daemon.socket)]) == 0


def test_without_a_daemon_apt_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--socket", str(tmp_path / "none.sock"), "--mark", str(tmp_path / "mark")]
    with (tmp_path / "packages").open("w+") as packages:
        packages.write(DRIVER)
        packages.seek(0)
        monkeypatch.setattr("sys.stdin", packages)
        assert cli.main(["apt", "before", *words]) == 0
    assert cli.main(["apt", "after", *words]) == 0
    assert not (tmp_path / "mark").exists()
    assert capsys.readouterr().err.count("gpuwatch apt: ") == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia-driver-535_535.154_amd64.deb", True),
        ("nvidia-dkms-550-open_550_amd64.deb", True),
        ("libnvidia-compute-550_550_amd64.deb", True),
        ("linux-modules-nvidia-550-generic_550_amd64.deb", True),
        ("cuda-drivers_550_amd64.deb", True),
        ("libnvidia-container1_1.16_amd64.deb", False),
        ("nvidia-settings_550_amd64.deb", False),
        ("nvidia-cuda-toolkit_12_amd64.deb", False),
        ("linux-image-6.8.0_amd64.deb", False),
        ("not-nvidia-driver_1_amd64.deb", False),
    ],
)
def test_what_belongs_to_the_driver(name: str, *, expected: bool) -> None:
    assert is_driver([f"{ARCHIVES}/{name}\n".encode()]) is expected


PROGRAM = "/opt/gpuwatch/bin/gpuwatch"
HOOKS = re.findall(r"^DPkg::([\w-]+) \{ \"(.*)\"; \};$", (ROOT / "systemd/apt.conf").read_text(), re.MULTILINE)


@pytest.mark.skipif(shutil.which("apt-config") is None, reason="apt is not here")
def test_apt_takes_the_lines_for_it() -> None:
    done = subprocess.run(
        ["apt-config", "dump", "-c", str(ROOT / "systemd/apt.conf")], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert [name for name, _ in HOOKS] == ["Pre-Install-Pkgs", "Post-Invoke"]
    assert [f'DPkg::{name}:: "{line}";' in done.stdout for name, line in HOOKS] == [True, True]


@pytest.mark.parametrize(
    ("program", "heard"),
    [
        ("#!/bin/sh\necho $* >> %s\n", "apt before\napt after\n"),
        ("#!/bin/sh\necho $* >> %s\nexit 2\n", "apt before\napt after\n"),  # an older one, without this command
        ("#!/nowhere/python %s\n", ""),  # the shell says 127, or 126
        (None, ""),
    ],
)
def test_the_lines_stop_apt_for_no_program_whatever_its_state(tmp_path: Path, program: str | None, heard: str) -> None:
    place, said = tmp_path / "gpuwatch", tmp_path / "said"
    said.touch()
    if program is not None:
        place.write_text(program % said)
        place.chmod(0o755)
    codes = [
        subprocess.run(
            ["sh", "-c", line.replace(PROGRAM, str(place))],
            input=DRIVER.encode(),
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        ).returncode
        for _, line in HOOKS
    ]
    assert (codes, said.read_text()) == ([0, 0], heard)
