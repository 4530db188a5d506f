"""The whole daemon over a kernel log: what it says is counted once, floods hold up nothing, a missing log is said."""

import json
import time
from pathlib import Path

from tests.fakes.gpu_server import GpuServer
from tests.fakes.until import PATIENCE, until


def stamped(seq: int, text: str) -> str:
    """Return a raw record of now."""
    return f"4,{seq},{time.monotonic_ns() // 1000},-;{text}\n"


def test_over_a_restart_an_xid_is_counted_once_and_what_was_overwritten_meanwhile_too(tmp_path: Path) -> None:
    server = GpuServer(tmp_path, gpus=2)
    log = server.host.dev / "kmsg"
    uuid, place = server.nvml.uuid(1), server.address(1).rpartition(".")[0]
    with log.open("a") as file:
        file.write(stamped(0, f"NVRM: Xid (PCI:{place}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."))

    def count(code: int) -> float | None:
        return server.daemon.page().value("gpuwatch_xid_errors_total", uuid=uuid, xid=str(code))

    with server:
        server.daemon.wait_ready()
        until(lambda: count(79) == 1)
        with log.open("a") as file:
            file.write("".join(stamped(seq, "usb 1-1: new device") for seq in range(1, 19)))
            file.write(stamped(19, f"NVRM: Xid (PCI:{place}): 43, pid=812, name=python3, Ch 00000010"))
        until(lambda: count(43) == 1)
        assert server.daemon.stop() == 0
    with log.open("w") as file:  # numbers 20 to 49 have come and gone
        file.write(stamped(50, f"NVRM: Xid (PCI:{place}): 31, pid=812, name=python3, Ch 00000008"))
    with server:
        server.daemon.wait_ready()
        until(lambda: (count(31), count(79), count(43)) == (1, 1, 1))
        server.daemon.until(lambda page: page.value("gpuwatch_kernel_log_lost_total") == 30)


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


def test_a_hundred_thousand_xids_in_one_second_are_folded_and_make_nothing_late(tmp_path: Path) -> None:
    total = 100_000
    server = GpuServer(tmp_path, gpus=3, config='[sources.kernel]\nevery = "250ms"\n')
    places = [server.address(card).rpartition(".")[0] for card in range(3)]
    uuids = [server.nvml.uuid(card) for card in range(3)]

    def count(card: int, code: int) -> float | None:
        return server.daemon.page().value("gpuwatch_xid_errors_total", uuid=uuids[card], xid=str(code))

    def told() -> list[int]:
        events = json.loads(server.daemon.get("/api/v1/events?limit=10000")[1])["events"]
        return [event["count"] for event in events if event["code"] == 45]

    def resident() -> float:
        return server.daemon.page().value("gpuwatch_process_group_resident_bytes", process="daemon") or 0.0

    with server:
        server.wait_up(3)
        until(resident)
        before, at = resident(), time.monotonic_ns() // 1000
        lines = [
            f"4,{seq},{at + seq * 9},-;NVRM: Xid (PCI:{places[1]}): 45, pid={seq % 5000}, name=a, Ch {seq}\n"
            for seq in range(total)
        ]
        lines.append(f"4,{total},{at + 950_000},-;NVRM: Xid (PCI:{places[2]}): 48, pid=1, name=b\n")
        with (server.host.dev / "kmsg").open("a") as log:
            log.writelines(lines)
        rounds = 0
        while count(1, 45) != total or count(2, 48) != 1:  # the page comes all the while, and every GPU is on it
            page = server.answers_quickly(2.0)
            assert [page.value("gpuwatch_gpu_up", uuid=uuid) for uuid in uuids] == [1, 1, 1]
            rounds += 1
            assert time.monotonic_ns() // 1000 - at < PATIENCE * 1e6, page.all("gpuwatch_xid_errors_total", uuid=uuids[1])
            if rounds == 1:
                server.moves([0, 1, 2])
        page = server.daemon.page()
        assert page.value("gpuwatch_queue_dropped_total", queue="events") == 0
        assert page.value("gpuwatch_kernel_log_lost_total") == 0
        until(lambda: sum(told()) == total)  # what is stored may come a moment after what is counted
        assert len(told()) < 600
        assert resident() - before < 100e6
