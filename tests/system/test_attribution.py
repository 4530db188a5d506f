"""Whose work is on the GPUs, on the whole daemon: S8's attribution and S11's privacy (operator.md section 5)."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cgroups import Crowd, docker
from tests.fakes.daemon import Page
from tests.fakes.gpu_server import GpuServer
from tests.fakes.nvml import Process
from tests.fakes.until import PATIENCE, until

ID = "0123456789abcdef" * 4
SECRET = "hunter2-token"
GIB = 1 << 30
PACE = '[sources.jobs]\nevery = "200ms"\nevery_normal = "500ms"\nevery_slow = "1s"\n'


class Lab:
    """A server of Ubuntu 20.04 with two cards: a container of root's, loaders beside it, and bob's own training."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.server = GpuServer(folder, gpus=2, model="A40", config=PACE + config)
        self.crowd = crowd = Crowd(self.server.host, "v1")
        crowd.users(bob=1002)
        group = docker(ID, "cgroupfs")
        argv = ["python", "infer.py", f"--token={SECRET}"]
        crowd.run(4700, "containerd-shim", uid=0, group="/system.slice/containerd.service")
        crowd.run(4711, "python", parent=4700, uid=0, group=group, argv=argv, cpu=12.5)
        crowd.run(4712, "pt_data_worker", parent=4711, uid=0, group=group, argv=argv)
        crowd.limit(group, quota=4, used=99.0, throttled=1.5)
        crowd.run(5000, "bash", uid=1002, group="/user.slice/user-1002.slice/session-3.scope")
        crowd.run(5001, "python3", parent=5000, uid=1002, group="/user.slice/user-1002.slice/session-3.scope", argv=argv)
        state = {"Name": "/aoi-infer-2", "Args": argv, "Config": {"Env": [f"TOKEN={SECRET}"]}}
        self.server.host.write(self.server.host.root / f"var/lib/docker/containers/{ID}/config.v2.json", json.dumps(state))
        self.server.nvml.processes(0, [Process(4711, 14 * GIB, share=60)])
        self.server.nvml.processes(1, [Process(5001, 2 * GIB, share=30)])

    def known(self, subject: str, **labels: str) -> list[dict[str, Any]]:
        """Return the targets of a subject that have these labels and a value, as the view tells them."""
        code, body = self.server.daemon.get("/api/v1/view")
        assert code == 200, body
        found = [one for one in json.loads(body)["targets"] if one["subject"] == subject and one["values"]]
        return [one for one in found if labels.items() <= one["labels"].items()]

    def have(self, values: set[str], subject: str, **labels: str) -> bool:
        """Return whether there are such targets, each with these values."""
        found = self.known(subject, **labels)
        return bool(found) and all(values <= one["values"].keys() for one in found)

    def wait(self, *, people: bool = True) -> Page:
        """Wait until processes and jobs are told, and users by the names that they have in the end."""
        self.server.wait_up(2)
        until(lambda: self.known("process", pid="4712") and self.known("process_gpu", job="aoi-infer-2"))
        if people:
            until(lambda: self.known("process_gpu", job="aoi-infer-2")[0]["info"].get("user") == "root")
            self.server.daemon.until(lambda page: page.all("gpuwatch_user_gpu_held_seconds_total", user="bob"))
        until(lambda: self.have({"memory_bytes", "utilization_ratio"}, "process_gpu", pid="4711"))
        until(lambda: self.have({"cpu_allowed_cores"}, "job", scheduler="docker"))
        return self.server.daemon.until(lambda page: page.all("gpuwatch_job_gpu_held_seconds_total", job="aoi-infer-2"))

    def said_by(self, command: str) -> str:
        """Run a command of gpuwatch, and return what it prints."""
        told = [sys.executable, "-m", "gpuwatch", command, "--config", str(self.server.daemon.file)]
        done = subprocess.run(told, env=self.server.daemon.environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    def written(self) -> Iterator[tuple[str, bytes]]:
        """Yield all that the daemon has said and written."""
        for path in ("/metrics", "/api/v1/view", "/api/v1/status", "/api/v1/alerts"):
            yield path, self.server.daemon.get(path)[1].encode()
        for file in self.server.daemon.folder.rglob("*"):
            if file.is_file():
                yield str(file), file.read_bytes()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """The server, with the series of single processes off as they are."""
    return Lab(tmp_path)


def test_container_user_and_job_of_a_process_are_in_the_view_on_the_page_and_in_the_history(lab: Lab) -> None:
    uuid = lab.server.nvml.uuid(0)
    with lab.server:
        page = lab.wait()
        (held,) = lab.known("process_gpu", pid="4711")
        assert {"command": "python", "job": "aoi-infer-2", "gpu": "0", "uuid": uuid}.items() <= held["labels"].items()
        assert {"user": "root", "container": "aoi-infer-2", "scheduler": "docker"}.items() <= held["info"].items()
        assert held["values"] == {"memory_bytes": 14.0 * GIB, "utilization_ratio": 0.6}
        (loader,) = lab.known("process", pid="4712")
        assert (loader["labels"]["role"], loader["labels"]["job"]) == ("loader", "aoi-infer-2")
        (job,) = lab.known("job", scheduler="docker")
        assert job["values"] == {"cpu_seconds_total": 99.0, "cpu_throttled_seconds_total": 1.5, "cpu_allowed_cores": 4.0}

        assert page.value("gpuwatch_job_gpu_memory_bytes", job="aoi-infer-2", gpu="0", uuid=uuid) == 14.0 * GIB
        facts = {"scheduler": "docker", "user": "root", "container": "aoi-infer-2", "gpu": "0", "uuid": uuid}
        assert page.value("gpuwatch_job_info", job="aoi-infer-2", **facts) == 1.0
        assert page.value("gpuwatch_user_gpu_memory_bytes", user="bob", gpu="1") == 2.0 * GIB
        assert page.value("gpuwatch_gpu_processes", kind="compute", gpu="0") == 1.0
        assert page.value("gpuwatch_job_cpu_allowed_cores", job="aoi-infer-2") == 4.0
        assert [name for name in page.names if name.startswith(("gpuwatch_process_gpu", "gpuwatch_process_cpu"))] == []

        def grows() -> bool:
            found = lab.server.daemon.page().value("gpuwatch_user_gpu_held_seconds_total", user="bob", gpu="1")
            return found is not None and found > 1

        until(grows)
        assert lab.server.daemon.stop() == 0
    with sqlite3.connect(lab.server.daemon.database) as history:
        rows = history.execute(
            "SELECT labels, info, max(memory_bytes) FROM raw_process_gpu JOIN target ON target.id = target GROUP BY target.id"
        ).fetchall()
    history.close()
    found = {json.loads(labels)["pid"]: (json.loads(info).get("container"), memory) for labels, info, memory in rows}
    assert found == {"4711": ("aoi-infer-2", 14.0 * GIB), "5001": (None, 2.0 * GIB)}
    with lab.server:
        lab.wait()
        assert (lab.server.daemon.page().value("gpuwatch_user_gpu_held_seconds_total", user="bob", gpu="1") or 0) > 1


def test_a_process_that_ends_leaves_the_board_and_one_on_a_full_gpu_is_counted(lab: Lab) -> None:
    with lab.server:
        page = lab.wait()
        assert page.value("gpuwatch_gpu_oom_suspected_total", gpu="0") == 0.0
        total = lab.server.nvml.get(0, "memory_total")
        lab.server.nvml.set(0, memory_used=int(0.985 * total), memory_free=int(0.001 * total))
        lab.server.daemon.until(lambda page: (page.value("gpuwatch_gpu_memory_used_bytes", gpu="0") or 0) > 0.98 * total)
        lab.server.nvml.processes(0, [])
        lab.crowd.end(4711)
        lab.server.nvml.set(0, memory_used=0, memory_free=total)
        lab.server.daemon.until(lambda page: page.value("gpuwatch_gpu_oom_suspected_total", gpu="0") == 1)
        until(lambda: not lab.known("process_gpu", pid="4711") and not lab.known("process", pid="4711"))
        assert lab.known("process_gpu", pid="5001")


def test_no_argument_of_anybody_s_appears_anywhere(tmp_path: Path) -> None:
    """S11: a token in bob's argv, in a container's environment and in its state file."""
    lab = Lab(tmp_path, "[processes]\nseries = true\n")
    with lab.server:
        page = lab.wait()
        assert page.all("gpuwatch_process_gpu_memory_bytes", pid="5001")[0][0]["command"] == "python3"
        assert page.value("gpuwatch_process_cpu_seconds_total", pid="4711") == 12.5
        said = dict(lab.written())
        assert lab.server.daemon.stop() == 0
    said |= {f"{name}, stopped": body for name, body in lab.written() if body}
    assert any(b"aoi-infer-2" in body for name, body in said.items() if name.endswith("gpuwatch.db, stopped"))
    assert [name for name, body in said.items() if SECRET.encode() in body] == []


def test_people_are_left_out_where_the_configuration_says_so(tmp_path: Path) -> None:
    lab = Lab(tmp_path, '[privacy]\nusers = "off"\n[processes]\nseries = true\n')
    units = ("/system.slice/system-jupyter.slice/jupyter@bob.service", "/system.slice/jupyter-bob-singleuser.service")
    for pid, group in enumerate(units, 6001):
        lab.crowd.run(pid, "python3", uid=1002, group=group)
    lab.server.nvml.processes(1, [Process(pid, 2 * GIB, share=30) for pid in (5001, 6001, 6002)])
    with lab.server:
        page = lab.wait(people=False)
        until(lambda: len(lab.known("job", scheduler="systemd")) == len(units))
        assert len({job["labels"]["job"] for job in lab.known("job", scheduler="systemd")}) == len(units)
        assert [name for name in page.names if name.startswith("gpuwatch_user_")] == []
        said = dict(lab.written())
        assert lab.server.daemon.stop() == 0
    said |= {f"{name}, stopped": body for name, body in lab.written()}
    assert [name for name, body in said.items() if b"bob" in body or b'"root"' in body] == []


def test_a_container_that_loses_its_gpus_is_told_by_name_once_and_once_when_it_has_them_again(lab: Lab) -> None:
    """failure-modes.md 5.14, from the host: its device rules are written anew without the GPUs."""
    rules = lab.crowd.folder(docker(ID, "cgroupfs"), "devices") / "devices.list"
    usual = "c 1:3 rwm\nc 136:* rwm\n"
    lab.server.host.write(rules, usual + "c 195:* rw\n")
    words = "container aoi-infer-2 of root has lost its GPUs, or will when systemd reloads: its device rules lack them"

    def events() -> list[tuple[str, str]]:
        code, body = lab.server.daemon.get("/api/v1/events")
        assert code == 200, body
        return [(one["kind"], one["severity"]) for one in json.loads(body)["events"] if one["kind"].startswith("access_")]

    with lab.server:
        lab.wait()
        assert (events(), lab.server.daemon.status()["lacking"]) == ([], [])
        lab.server.host.write(rules, usual)
        until(lambda: events() == [("access_lost", "warning")])
        assert f"  . {words}. Make it anew" in lab.said_by("status")
        assert lab.server.daemon.stop() == 0
    with lab.server:
        lab.wait()
        until(lambda: lab.server.daemon.status()["lacking"])
        lab.server.host.write(rules, usual + "c 195:* rw\n")
        until(lambda: len(events()) > 1)
        assert events() == [("access_lost", "warning"), ("access_back", "info")]
        listed = lab.said_by("events")
        assert [words in listed, "access_lost" in listed, "aoi-infer-2 of root has its GPUs" in listed] == [True] * 3
        assert lab.server.daemon.status()["lacking"] == []
