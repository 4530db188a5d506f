"""`gpuwatch read kernel` and `read jobs`: what there is, for everybody who may see it, and words for what is in the way."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import badfs
from tests.fakes.badfs import BadFiles
from tests.fakes.cgroups import Crowd, docker, session
from tests.fakes.gpu_server import GpuServer
from tests.fakes.host import HostTree
from tests.fakes.kernel_log import XID, KernelLog
from tests.fakes.nvml import Process
from tests.fakes.until import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
ID = "0123456789abcdef" * 4
GIB = 1 << 30
FALLEN = f"{XID}79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
Read = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def read() -> Read:
    """Run the command; returns its exit code, what it printed, and what it said beside that."""

    def run(source: str, config: Path, *, module: str = "gpuwatch", environ: Mapping[str, str] = os.environ) -> Any:
        line = [sys.executable, "-m", module, "read", source, "--config", str(config)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT, env=environ)
        assert done.stdout, done
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


def configured(log: KernelLog, more: str = "") -> Path:
    """Return a configuration of this host."""
    file = log.dev.parent / "gpuwatch.toml"
    file.write_text(f'[paths]\ndev = "{log.dev}"\nproc = "{log.proc}"\n{more}')
    return file


def test_the_kernel_log_is_read_since_the_boot_and_to_its_end(tmp_path: Path, read: Read) -> None:
    log = KernelLog(tmp_path)
    log.say("Linux version 6.8.0", at=0.0)
    log.say(f"{XID}31, pid=812, name=python3, Ch 00000008", at=900.25)
    for n in range(20_000):  # more than one ask takes
        log.say(f"usb 1-1: device {n}", at=901.0)
    log.say(FALLEN, at=902.0)  # a second that is not over
    code, (reading, *events), said = read("kernel", configured(log))
    assert (code, said) == (0, "")
    assert (reading["subject"], reading["fault"], reading["values"]) == ("kernel", None, {"log_read": 20_002.0})
    assert [(one["event"], one["code"], one["key"], one["severity"]) for one in events] == [
        ("xid", 31, "0000:65:00.0", "warning"),
        ("xid", 79, "0000:65:00.0", "critical"),
    ]
    assert events[0]["facts"] == {"pid": "812", "name": "python3"}


def test_of_many_events_the_newest_are_shown_and_the_others_counted(tmp_path: Path, read: Read) -> None:
    log = KernelLog(tmp_path)
    for n in range(1100):
        log.say(f"{XID}31, pid={n}, name=python3, Ch 00000008", at=10.0 + 2 * n)
    code, (_, *events), said = read("kernel", configured(log))
    assert (code, len(events), events[-1]["facts"]["pid"]) == (0, 1000, "1099")
    assert said == "gpuwatch read kernel: 100 events before the last 1000 are left out\n"


def test_a_kernel_log_in_which_nothing_is_yet_is_no_trouble(tmp_path: Path, read: Read) -> None:
    log = KernelLog(tmp_path)
    assert read("kernel", configured(log)) == (0, [], "gpuwatch read kernel: the kernel log is empty\n")


def test_a_kernel_log_that_may_not_be_read_says_which_capability_it_needs(tmp_path: Path, read: Read) -> None:
    log, files = KernelLog(tmp_path), BadFiles(badfs.build(tmp_path), tmp_path)
    files.fail("open", log.dev, errno.EPERM)
    code, (reading,), said = read("kernel", configured(log), environ=files.environ)
    words = f"{log.path} needs the capability CAP_SYSLOG while kernel.dmesg_restrict is 1"
    assert (code, reading["fault"]["kind"]) == (1, "no_permission")
    assert reading["fault"]["words"].startswith(words)
    assert said.startswith(f"gpuwatch read kernel: {words}")


def test_a_kernel_log_that_is_not_there_is_said(tmp_path: Path, read: Read) -> None:
    log = KernelLog(tmp_path)
    log.path.unlink()
    code, (reading,), said = read("kernel", configured(log))
    assert (code, reading["fault"]["kind"], f"there is no {log.path}" in said) == (1, "missing", True)


def test_the_network_is_read_with_the_counters_of_its_interfaces_and_nothing_else_of_the_host(tmp_path: Path, read: Read) -> None:
    tree = HostTree(tmp_path).kernel()
    tree.net("lo", "eno1")
    tree.interface("eno1", speed="25000")
    file = tree.write(tmp_path / "gpuwatch.toml", f'[paths]\nproc = "{tree.proc}"\nsys = "{tree.sys}"\nroot = "{tree.root}"\n')
    code, readings, said = read("network", file)
    assert (code, said) == (0, "")
    assert [(one["source"], one["subject"], one["key"]) for one in readings] == [
        ("host", "network", "eno1"),
        ("network", "network", "eno1"),
    ]
    assert (readings[0]["values"]["bytes_total_receive"], readings[1]["values"]["up"]) == (1000.0, 1.0)


@pytest.fixture
def server() -> Iterator[GpuServer]:
    """A server with a container of root's on one GPU, a user's program on another, in a folder that everybody may enter."""
    folder = Path("/tmp") / f"gpuwatch-read-{os.getpid()}"
    folder.mkdir(mode=0o755)
    server = GpuServer(folder, gpus=2)
    crowd = Crowd(server.host, "v1")
    crowd.users(bob=1002)
    group = docker(ID, "cgroupfs")
    crowd.run(4711, "python", uid=0, group=group, argv=["python", "--token=hunter2"], cpu=12.5)
    crowd.run(4712, "pt_data_worker", parent=4711, uid=0, group=group)
    crowd.run(5001, "python3", uid=1002, group=session(1002))
    server.nvml.processes(0, [Process(4711, 14 * GIB, share=60)])
    server.nvml.processes(1, [Process(5001, 2 * GIB, share=30)])
    state = {"Name": "/aoi-infer-2", "Config": {"Env": ["TOKEN=hunter2"]}}
    server.host.write(server.host.root / f"var/lib/docker/containers/{ID}/config.v2.json", json.dumps(state))
    yield server
    shutil.rmtree(folder)


def labels(readings: list[dict[str, Any]], subject: str) -> list[tuple[str, ...]]:
    """Return who is told of, in order."""
    names = ("pid", "command", "job", "role") if subject.startswith("process") else ("scheduler", "job")
    return sorted(tuple(one["labels"][name] for name in names) for one in readings if one["subject"] == subject)


def test_jobs_are_read_with_their_names_and_loaders(server: GpuServer, read: Read) -> None:
    code, readings, said = read("jobs", server.daemon.file, environ=server.daemon.environ)
    assert (code, "gpuwatch read" in said) == (0, False)
    assert labels(readings, "process_gpu") == [
        ("4711", "python", "aoi-infer-2", "gpu"),
        ("5001", "python3", "python3-5001", "gpu"),
    ]
    assert ("4712", "pt_data_worker", "aoi-infer-2", "loader") in labels(readings, "process")
    assert labels(readings, "job") == [("docker", "aoi-infer-2"), ("session", "python3-5001")]
    (held,) = (one for one in readings if one["subject"] == "process_gpu" and one["labels"]["pid"] == "4711")
    assert (held["values"]["memory_bytes"], held["info"]["user"], held["info"]["container"]) == (14 * GIB, "root", "aoi-infer-2")
    assert "hunter2" not in json.dumps(readings)


def test_a_container_whose_name_is_not_to_be_had_has_its_short_id_and_the_reason(server: GpuServer, read: Read) -> None:
    shutil.rmtree(server.host.root / "var/lib/docker")
    code, readings, _ = read("jobs", server.daemon.file, environ=server.daemon.environ)
    (job,) = (one for one in readings if one["subject"] == "job" and one["labels"]["scheduler"] == "docker")
    assert (code, job["info"]["container"], job["info"]["why"]) == (0, ID[:12], "no state file of a runtime names it")
    assert labels(readings, "process_gpu") == [("4711", "python", ID[:12], "gpu"), ("5001", "python3", "python3-5001", "gpu")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the command as another user")
def test_an_ordinary_user_is_told_who_may_read_the_kernel_log(server: GpuServer, read: Read) -> None:
    (server.host.dev / "kmsg").chmod(0o640)
    code, (reading,), said = read("kernel", server.daemon.file, module="tests.fakes.ordinary", environ=server.daemon.environ)
    words = "may be read only by its owner and the group root"
    assert (code, reading["fault"]["kind"], words in reading["fault"]["words"], words in said) == (1, "no_permission", True, True)


def test_without_the_driver_the_reason_is_that_of_nvml(server: GpuServer, read: Read) -> None:
    server.nvml.unload()
    code, readings, said = read("jobs", server.daemon.file, environ=server.daemon.environ)
    assert (code, labels(readings, "process_gpu")) == (1, [])
    assert "gpuwatch read jobs: NVML, which lists the processes: the nvidia kernel module is not loaded" in said
