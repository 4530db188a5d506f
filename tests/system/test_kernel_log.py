"""The whole daemon over a kernel log: what it says is counted once, floods hold up nothing, a missing log is said."""

import time
from pathlib import Path

from tests.fakes.gpu_server import GpuServer
from tests.fakes.until import until


def stamped(seq: int, text: str) -> str:
    """Return a raw record of now."""
    return f"4,{seq},{time.monotonic_ns() // 1000},-;{text}\n"


def test_an_xid_of_the_kernel_log_is_counted_once_over_a_restart(tmp_path: Path) -> None:
    server = GpuServer(tmp_path, gpus=2)
    log = server.host.dev / "kmsg"
    uuid, place = server.nvml.uuid(1), server.address(1).rpartition(".")[0]
    with log.open("a") as file:
        file.write(stamped(0, f"NVRM: Xid (PCI:{place}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."))

    def count() -> float | None:
        return server.daemon.page().value("gpuwatch_xid_errors_total", uuid=uuid, xid="79")

    with server:
        server.daemon.wait_ready()
        until(lambda: count() == 1)
    with log.open("a") as file:
        file.write(stamped(1, f"NVRM: Xid (PCI:{place}): 31, pid=812, name=python3, Ch 00000008"))
    with server:
        server.daemon.wait_ready()
        until(lambda: server.daemon.page().value("gpuwatch_xid_errors_total", uuid=uuid, xid="31") == 1)
        assert count() == 1


def test_a_kernel_log_that_is_missing_is_said_and_leaves_the_host_ready(tmp_path: Path) -> None:
    server = GpuServer(tmp_path, gpus=1)
    (server.host.dev / "kmsg").unlink()
    with server:
        server.wait_up(1)
        until(lambda: server.daemon.status()["collectors"]["kernel"].startswith("there is no "))
        assert server.ready()[0] == 200
        assert any(line.startswith("kernel: there is no ") for line in server.ready()[1])
        (server.host.dev / "kmsg").touch()
        until(lambda: server.daemon.status()["collectors"]["kernel"] == "")
