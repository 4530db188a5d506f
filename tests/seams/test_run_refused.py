"""What the system refuses at the start of a command is one line that names it, and no traceback."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.until import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


def shell(words: str) -> subprocess.CompletedProcess[str]:
    """Run words of a shell in the folder of the repository."""
    return subprocess.run(["bash", "-c", words], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("command", ["status --socket s", "silence list --socket s"])
def test_a_working_directory_that_was_removed_is_named(tmp_path: Path, command: str) -> None:
    gone = tmp_path / "gone"
    done = shell(f"mkdir {gone} && cd {gone} && rmdir {gone} && PYTHONPATH={ROOT} {sys.executable} -m gpuwatch {command}")
    assert (done.returncode, done.stderr) == (1, "gpuwatch: the working directory: No such file or directory\n")


def test_a_daemon_that_may_start_no_thread_says_so_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "gpuwatch.toml"
    off = "".join(f"[sources.{name}]\nenabled = false\n" for name in ("nvml", "smart", "kernel", "probe", "jobs"))
    file.write_text(f'[http]\nlisten = ""\nsocket = "{tmp_path}/s"\n[store]\nurl = "sqlite:///{tmp_path}/gpuwatch.db"\n{off}')
    # glibc gives a thread a stack of that limit's size: 64 GiB are refused under a limit of 16 GiB.
    limits = f"ulimit -Ss {64 << 20} && ulimit -v {16 << 20}"
    done = shell(f"{limits} && exec {sys.executable} -m gpuwatch run --config {file}")
    assert done.stderr == (
        "gpuwatch: no further thread can be started: a limit is met, of processes (ulimit -u, TasksMax=) "
        "or of memory (ulimit -v, LimitAS=)\n"
    )
    assert done.returncode == 1


def test_a_mistake_of_the_configuration_is_said_before_a_port_that_is_taken_and_no_socket_is_made(tmp_path: Path) -> None:
    file = tmp_path / "gpuwatch.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = f'[http]\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\nsocket = "{tmp_path}/s"\n'
        store = f'[store]\nurl = "sqlite:///{tmp_path}/gpuwatch.db"\n'
        file.write_text(f'{http}{store}[host.labels]\nseverity = "high"\n')
        done = shell(f"exec {sys.executable} -m gpuwatch run --config {file}")
        assert (done.returncode, done.stderr.startswith(f"{file}: host.labels.severity: ")) == (2, True)
        assert [one.name for one in tmp_path.iterdir()] == ["gpuwatch.toml"]
        file.write_text(http + store)
        done = shell(f"exec {sys.executable} -m gpuwatch run --config {file}")
        assert (done.returncode, " is taken: " in done.stderr) == (1, True)
