"""DCGM beside NVML in the running daemon: one GPU, two witnesses, and neither holds up the other."""

from pathlib import Path

from tests.fakes.dcgm_page import row
from tests.fakes.dcgmi import FakeDcgmi, listing, rows
from tests.fakes.gpu_server import GpuServer
from tests.fakes.receiver import Answer, Receiver
from tests.fakes.until import until

FOREIGN = "GPU-ffffffff-62f9-8b4b-6b9f-843148c4add1"
SM = "gpuwatch_gpu_sm_active_ratio"


def test_an_exporter_adds_what_nvml_lacks_and_changes_nothing_else(tmp_path: Path) -> None:
    with Receiver(path="/metrics") as exporter:
        config = f'[sources.dcgm]\nenabled = true\nevery = "1s"\ndeadline = "1s"\nurl = "{exporter.url}"\n'
        with GpuServer(tmp_path, gpus=2, config=config) as server:
            uuids = [server.nvml.read_text(card, "uuid") for card in range(2)]
            page = ""
            for gpu, uuid in enumerate([*uuids, FOREIGN]):  # DCGM counts the other way round here
                labels = {"UUID": uuid, "gpu": str(7 - gpu)}
                page += row("DCGM_FI_PROF_SM_ACTIVE", f"0.{gpu + 1}", **labels) + row("DCGM_FI_DEV_GPU_TEMP", "199", **labels)
            exporter.always = Answer(body=page.encode())
            server.wait_up(2)
            found = server.daemon.until(lambda page: page.value(SM, uuid=uuids[1]) is not None)
            assert [found.value(SM, uuid=uuid, gpu=str(gpu)) for gpu, uuid in enumerate(uuids)] == [0.1, 0.2]  # NVML's numbers
            assert found.value("gpuwatch_dcgm_up") == 1
            core = [found.value("gpuwatch_gpu_temperature_celsius", uuid=uuid, sensor="core") for uuid in uuids]
            assert 199.0 not in core
            assert None not in core
            # The exporter may be that of another host: its GPU is shown, and not taken for one of ours.
            assert {labels["uuid"] for labels, _ in found.all("gpuwatch_gpu_up")} == set(uuids)
            exporter.always = Answer(how="silent")
            server.daemon.until(lambda page: page.value("gpuwatch_dcgm_up") == 0)
            until(lambda: "unreachable: " in server.daemon.status()["collectors"]["dcgm"])  # the trouble of its collector
            assert server.daemon.page().value("gpuwatch_gpu_up", uuid=uuids[0]) == 1


def test_dcgmi_is_called_in_a_process_of_its_own_and_may_hang(tmp_path: Path) -> None:
    fake = FakeDcgmi(tmp_path / "dcgmi")
    config = f'[sources.dcgm]\nenabled = true\nmode = "dmon"\nevery = "2s"\ndeadline = "2s"\ndcgmi = "{fake.program}"\n'
    server = GpuServer(tmp_path, gpus=1, config=config)
    uuid = server.nvml.read_text(0, "uuid")
    fake.answers("discovery", listing({"0": uuid}))
    fake.answers("dmon", {"hang": True}, {"hang": True}, rows({"GPU 0": {1002: "0.5"}}))
    with server:
        server.wait_up(1)
        server.daemon.until(lambda page: page.value("gpuwatch_dcgm_up") == 0)
        assert server.daemon.page().value("gpuwatch_gpu_up", uuid=uuid) == 1
        page = server.daemon.until(lambda page: page.value(SM, uuid=uuid) is not None)
        assert (page.value(SM, uuid=uuid), page.value("gpuwatch_dcgm_gpus", state="seen")) == (0.5, 1)
