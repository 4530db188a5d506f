"""What is wrong with single things is in `gpuwatch status`, `/-/ready` and `/api/v1/status`: the same lines, each once."""

import subprocess
import sys
from pathlib import Path

from tests.fakes.gpu_server import WATCHFUL, GpuServer
from tests.fakes.until import PATIENCE, until

MDSTAT = """\
Personalities : [raid1]
md0 : active raid1 sdb1[1] sda1[0](F)
      10 blocks super 1.2 [2/1] [_U]
md127 : inactive sdi1[0](S)
      10 blocks super 1.2
"""
WELL_MDSTAT = "md0 : active raid1 sdb1[1] sda1[0]\n      10 blocks super 1.2 [2/2] [UU]\n"
EXTRA = (
    f'{WATCHFUL}[sources.host]\nevery_slow = "1s"\n[sources.smart]\nenabled = false\n[gpus."0000:99:00.0"]\nlabel = "slot 9"\n'
)


def test_what_is_wrong_with_single_things_is_said_everywhere_and_once_and_ends(tmp_path: Path) -> None:
    server = GpuServer(tmp_path, gpus=3, config=EXTRA)

    def status() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gpuwatch", "status", "--socket", str(server.daemon.socket)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    with server:
        server.wait_up(3)
        until(lambda: server.ready() == (200, ["ready"]))
        until(lambda: server.daemon.status()["notes"] == ["[gpus] has a label for 0000:99:00.0, where no GPU is"])
        well = status()
        assert (well.returncode, "!" in well.stdout) == (0, False), well.stdout
        server.nvml.answer("nvmlDeviceGetUtilizationRates", 8, gpu=0)  # it goes on answering
        server.host.write(server.host.proc / "mdstat", MDSTAT)
        device = server.host.sys / "bus/pci/devices" / server.address(1)
        config = (device / "config").read_bytes()
        (device / "config").write_bytes(b"\xff" * 64)
        expected = [
            f"GPU 0 {server.nvml.uuid(0)}: an external power cable of this card is missing or has no power: check the plugs",
            f"PCI device {server.address(1)}: it reads as all ones: it fell off the bus",
            "RAID array md0: it lacks 1 disk",
            "RAID array md127: it is not active, and gives no access to its data",
        ]
        until(lambda: server.ready() == (200, ["ready", *expected]))
        assert server.daemon.status()["troubles"] == expected
        ill = status()
        assert ill.returncode == 1
        assert [line for line in ill.stdout.splitlines() if line.startswith("  ! ")] == [f"  ! {line}" for line in expected]
        assert [ill.stdout.count(line.partition(": ")[2]) for line in expected] == [1, 1, 1, 1]
        server.nvml.answer("nvmlDeviceGetUtilizationRates", 0, gpu=0)
        server.host.write(server.host.proc / "mdstat", WELL_MDSTAT)
        (device / "config").write_bytes(config)
        until(lambda: server.ready() == (200, ["ready"]))
        assert status().returncode == 0
