"""operator.md S6: the GPUs are released for a new driver, and taken up again; nobody is told anything but one event."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.daemon import Page, Running
from tests.fakes.gpu_server import GpuServer
from tests.fakes.receiver import Receiver
from tests.fakes.until import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
NVML = "gpuwatch-nvml"
Done = subprocess.CompletedProcess[str]


def gpuwatch(daemon: Running, command: str, *words: str, module: str = "gpuwatch") -> Done:
    """Run a command that asks a daemon."""
    line = [sys.executable, "-m", module, command, "--socket", str(daemon.socket), *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT)


def told(daemon: Running) -> list[dict[str, Any]]:
    """Return the events of releases, once that of an end is on the disk."""
    found: list[dict[str, Any]] = []

    def came() -> bool:
        events = json.loads(daemon.get("/api/v1/events")[1])["events"]
        found[:] = [event for event in events if event["kind"] in {"released", "resumed", "driver_changed"}]
        return any(event["kind"] != "released" for event in found)

    until(came)
    return found


def released(page: Page) -> bool:
    """Whether the page says so of the driver and of every GPU."""
    reasons = [labels["reason"] for labels, value in page.all("gpuwatch_gpu_down_reason") if value == 1]
    return page.state("gpuwatch_driver_state") == "released" and bool(reasons) and set(reasons) == {"released"}


def a_new_driver(folder: Path) -> None:
    """A command releases the GPUs, unloads the module, loads another, and fails with a code of its own."""
    with Receiver() as receiver, GpuServer(folder, gpus=4, receiver=receiver) as server:
        server.wait_up(4)
        nvml, daemon, go_on = server.nvml, server.daemon, folder / "go-on"
        script = f"for _ in $(seq 600); do test -e {go_on} && exit 3; sleep 0.1; done"  # a test that fails must end, too
        line = [sys.executable, "-m", "gpuwatch", "release", "--socket", str(daemon.socket), "--", "sh", "-c", script]
        with subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True) as command:
            daemon.until(released)
            until(lambda: NVML not in daemon.workers().values())  # its handles went with it
            calls = nvml.calls()
            page = daemon.until(lambda page: not any(server.series(page, card) for card in range(4)))
            assert [value for _, value in page.all("gpuwatch_gpu_up")] == [0, 0, 0, 0]
            assert server.ready()[0] == 200
            shown = gpuwatch(daemon, "status")
            assert (shown.returncode, bool(re.search(r"released until \d\d:\d\d by \S+", shown.stdout))) == (0, True), (
                shown.stdout
            )
            view = json.loads(daemon.get("/api/v1/view")[1])
            absent = [target["absent"] for target in view["targets"] if target["subject"] == "gpu"]
            assert [found["temperature_celsius_core"] for found in absent] == ["released"] * 4
            nvml.unload()
            nvml.install("550")
            nvml.load("550.90.07")
            assert nvml.calls() == calls
            go_on.touch()
            assert command.wait(PATIENCE) == 3
            assert command.stderr is not None
            assert "read again: driver 535.154.05 -> 550.90.07, 4 GPUs, same UUIDs\n" in command.stderr.read()
        server.wait_up(4)
        begun, event = told(daemon)
        assert (begun["kind"], begun["severity"], begun["facts"]["gpus"]) == ("released", "info", "4")
        words = "driver 535.154.05 -> 550.90.07, 4 GPUs, same UUIDs"
        assert (event["kind"], event["severity"], event["words"]) == ("driver_changed", "info", words)
        assert daemon.status()["release"]["state"] == "attached"
        assert daemon.stop() == 0
        assert receiver.requests == []


def over_a_restart(folder: Path) -> None:
    """A release outlives a kill of the daemon, an alert that fires is neither ended nor told again, and `resume` ends it."""
    with Receiver() as receiver, GpuServer(folder, gpus=2, receiver=receiver) as server:
        server.wait_up(2)
        daemon = server.daemon
        server.nvml.lose(1)
        receiver.wait(1, PATIENCE)
        (alert,) = daemon.status()["alerts"]
        done = gpuwatch(daemon, "release", "--for", "1h")
        assert done.returncode == 0, done
        assert done.stdout.startswith("the GPUs are released until ")
        inits = server.nvml.inits
        daemon.kill()
        daemon.start()
        until(lambda: daemon.get("/-/healthy")[0] == 200)
        daemon.until(released)
        assert (server.nvml.inits, NVML in daemon.workers().values()) == (inits, False)
        (same,) = daemon.status()["alerts"]
        assert (same["id"], same["state"], same["silenced_by"]) == (alert["id"], "firing", ["release"])
        assert [got.json["kind"] for got in receiver.requests] == ["firing"]
        server.nvml.find(1)
        done = gpuwatch(daemon, "resume")
        assert done.returncode == 0, done
        assert done.stdout == "the GPUs are read again: driver 535.154.05, 1 -> 2 GPUs, new: GPU 1 " + server.nvml.uuid(1) + "\n"
        server.wait_up(2)
        assert [event["kind"] for event in told(daemon)] == ["released", "resumed"]
        assert gpuwatch(daemon, "resume").stdout == "the GPUs were not released\n"
        server.daemon.until(lambda page: not page.all("gpuwatch_alert_state", rule="gpu_dropped", state="firing"))
        assert server.said("the GPUs are still released, until .* by ") == 1


def in_time(folder: Path) -> None:
    """The processes that have GPUs open are gone soon after the question: the best of three, since this machine is shared."""
    with GpuServer(folder, gpus=2) as server:
        took: list[float] = []
        for _ in range(3):
            server.wait_up(2)
            (holder,) = (pid for pid, name in server.daemon.workers().items() if name == NVML)
            began = time.monotonic()
            reply = server.daemon.client.post("/api/v1/release", b'{"seconds": 600}', PATIENCE)
            until(lambda holder=holder: not Path(f"/proc/{holder}").exists())  # type: ignore[misc]  # a default binds the loop's value
            took.append(time.monotonic() - began)
            assert (reply.status, reply.json()["stuck"]) == (200, []), reply.body
            inits = server.nvml.inits
            assert server.daemon.client.post("/api/v1/resume", b"{}", PATIENCE).status == 200
            until(lambda inits=inits: server.nvml.inits > inits)  # type: ignore[misc]  # the page may not have changed at all
        assert min(took) < 2, took
        assert server.daemon.stop() == 0


def by_itself(folder: Path) -> None:
    """A release ends by its time, but not while an installer is at work, and a command that is killed by a signal says so."""
    with GpuServer(folder, gpus=2) as server:
        server.wait_up(2)
        daemon = server.daemon
        began = time.monotonic()
        assert gpuwatch(daemon, "release", "--for", "2s").returncode == 0
        told(daemon)
        assert time.monotonic() - began >= 2
        server.wait_up(2)
        _, event = told(daemon)
        assert (event["words"], event["facts"]["ended_by"]) == ("driver 535.154.05, 2 GPUs, same UUIDs", "its time")

        (Path(server.nvml.proc) / "4711").mkdir()
        installer = Path(server.nvml.proc) / "4711"
        (installer / "status").write_text(f"Name:\tnvidia-installe\nUid:\t{'0 ' * 4}\n")
        (installer / "comm").write_text("nvidia-installe\n")
        assert gpuwatch(daemon, "release", "--for", "1s").returncode == 0
        until(lambda: daemon.status()["release"].get("waits_for"))
        release = daemon.status()["release"]
        assert (release["state"], release["waits_for"]) == ("released", "nvidia-installe (pid 4711)")
        assert release["until"] - time.time() > 200
        assert gpuwatch(daemon, "resume").returncode == 0

        line = [sys.executable, "-m", "gpuwatch", "release", "--socket", str(daemon.socket), "--", "sleep", "1000"]
        with subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE) as command:
            daemon.until(released)
            until(lambda: "sleep" in names(command.pid))
            command.send_signal(signal.SIGTERM)
            assert command.wait(PATIENCE) == 128 + signal.SIGTERM
        assert daemon.status()["release"]["state"] == "attached"
        at_once(daemon, folder)
        done = gpuwatch(daemon, "release", "--", "/nowhere/at-all")
        assert (done.returncode, daemon.status()["release"]["state"]) == (127, "attached"), done
        assert daemon.stop() == 0


def at_once(daemon: Running, folder: Path) -> None:
    """Of two commands at once, whichever ends first leaves the GPUs released for the other."""
    for order in ((0, 1), (1, 0)):
        with ExitStack() as stack:
            commands = [stack.enter_context(waiting(daemon, folder / f"{order[0]}-{number}")) for number in range(2)]
            said = []
            for number in order:
                (folder / f"{order[0]}-{number}" / "go-on").touch()
                said.append(commands[number].communicate(timeout=PATIENCE)[1].splitlines()[-1])
                assert commands[number].returncode == 0
                assert daemon.status()["release"]["state"] == ("released" if number == order[0] else "attached"), said
        assert [text.split()[:4] for text in said] == [["the", "GPUs", "stay", "released"], ["the", "GPUs", "are", "read"]]


def waiting(daemon: Running, folder: Path) -> subprocess.Popen[str]:
    """Start a command under release, and return once it runs; it ends when it is told to."""
    folder.mkdir()
    script = f"touch {folder}/began; for _ in $(seq 600); do test -e {folder}/go-on && exit; sleep 0.1; done"
    line = [sys.executable, "-m", "gpuwatch", "release", "--socket", str(daemon.socket), "--", "sh", "-c", script]
    command = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    until((folder / "began").exists)
    return command


def a_reset(folder: Path) -> None:
    """What the driver logs while somebody resets a GPU is explained by the release; the next error after it is told."""
    with Receiver() as receiver, GpuServer(folder, gpus=2, receiver=receiver) as server:
        server.wait_up(2)
        daemon, log = server.daemon, server.host.dev / "kmsg"
        place, uuid = server.address(1).rpartition(".")[0], server.nvml.uuid(1)

        def prints(*codes: str, first: int) -> None:
            now = time.monotonic_ns() // 1000
            lines = [
                f"4,{first + n},{now},-;NVRM: Xid (PCI:{place}): {text}, pid='<unknown>', name=<unknown>\n"
                for n, text in enumerate(codes)
            ]
            with log.open("a") as file:
                file.write("".join(lines))

        def counted(code: int) -> bool:
            return daemon.page().value("gpuwatch_xid_errors_total", uuid=uuid, xid=str(code)) == 1

        def kept() -> dict[int, str]:
            found = json.loads(daemon.get("/api/v1/events")[1])["events"]
            return {one["code"]: one["facts"].get("released", "") for one in found if one["kind"] == "xid"}

        assert gpuwatch(daemon, "release").returncode == 0
        prints("79", "119", "45", "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", first=0)
        until(lambda: counted(79) and counted(119))
        prints("62", first=4)  # perhaps told only when the GPUs are ours again
        assert gpuwatch(daemon, "resume").returncode == 0
        server.wait_up(2)
        until(lambda: counted(62))
        until(lambda: kept() == {79: "yes", 119: "yes", 45: "yes", 154: "yes", 62: "yes"})
        daemon.until(lambda page: page.value("gpuwatch_gpu_errors_open", uuid=uuid, severity="warning") == 0)
        shown = gpuwatch(daemon, "events").stdout
        assert shown.count("(while the GPUs were released)") == 5, shown
        prints("120", first=5)
        message = receiver.wait(1, PATIENCE)[0].json
        assert [(one["rule"], one["severity"], one["labels"]["gpu"]) for one in message["alerts"]] == [
            ("gpu_errors", "critical", "1")
        ]
        (alert,) = daemon.status()["alerts"]
        assert [code for code in (79, 119, 120, 154, 62) if f"Xid {code}" in alert["summary"]] == [120], alert
        assert daemon.stop() == 0
        assert len(receiver.requests) == 1


def names(parent: int) -> list[str]:
    """Return the names of the children of a process."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [Path(f"/proc/{child}/comm").read_text().strip() for child in children]


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Tell all stories at the same time, each by a daemon of its own."""
    chosen: tuple[Callable[[Path], None], ...] = (a_new_driver, over_a_restart, in_time, by_itself, a_reset)
    with ThreadPoolExecutor() as pool:
        yield {story.__name__: pool.submit(story, tmp_path_factory.mktemp(story.__name__)) for story in chosen}


def test_a_new_driver_under_release_is_one_event_and_no_message_and_the_commands_exit_code_is_ours(
    stories: dict[str, Future[None]],
) -> None:
    stories["a_new_driver"].result()


def test_every_handle_is_closed_within_two_seconds(stories: dict[str, Future[None]]) -> None:  # README
    stories["in_time"].result()


def test_released_stays_released_over_a_kill_and_ends_no_alert(stories: dict[str, Future[None]]) -> None:
    stories["over_a_restart"].result()


def test_a_release_ends_by_its_time_unless_an_installer_is_at_work(stories: dict[str, Future[None]]) -> None:
    stories["by_itself"].result()


def test_xids_of_a_reset_under_release_are_kept_and_marked_and_only_an_error_after_it_is_told(
    stories: dict[str, Future[None]],
) -> None:
    stories["a_reset"].result()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the command as another user than the daemon's")
def test_an_ordinary_user_can_neither_release_nor_resume(open_folder: Path) -> None:  # operator.md S11
    with Running(open_folder, config="[sources.simulated]\nenabled = true") as daemon:
        daemon.wait_ready()
        for command in ("release", "resume"):
            done = gpuwatch(daemon, command, module="tests.fakes.ordinary")
            said = f"gpuwatch {command}: needs root or group gpuwatch-admin\n"
            assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
        assert daemon.status()["release"]["state"] == "attached"
        assert daemon.stop() == 0
