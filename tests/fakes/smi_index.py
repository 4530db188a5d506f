"""The recorded outputs of nvidia-smi, by how each is used in tests/seams/test_nvml_recorded.py, and what rules tell of them.

Every row of the index is in MACHINES, in SHORT or in LEFT_OUT; what the index calls unwell is in TOLD or in WAITING.
"""

MACHINES = (  # whole outputs of -q -x and -q
    "a100-sxm4-40gb-drv570-v12.xml",
    "a100-sxm4-40gb-mig2-drv510-v11.xml",
    "a10g-idle-drv515-v11.xml",
    "cap-h100-gpuburn-590.txt",
    "cap-h200-gpuburn-590.txt",
    "cap-rtx-2080-super-fedora-595.txt",
    "cap-rtx-2080-super-fedora-610.txt",
    "cap-rtx-2080-super-windows-591.txt",
    "cap-rtx-2080-super-windows-610.txt",
    "gb200-4gpu-fabric-drv580-v13.xml",
    "gtx-1080ti-4gpu-q-drv384.txt",
    "h100-8gpu-replays-drv580-v13.xml",
    "mock-gb200-one-lost-v13.xml",
    "mock-gb200-power-cap-counter-v13.xml",
    "q-performance-hw-thermal.txt",
    "q-performance-power-brake.txt",
    "q-vgpu-guest-unlicensed.txt",
    "quadro-p2000-drv525-v12.xml",
    "quadro-p400-drv418.xml",
    "rtx-2080-windows-drv516-v11.xml",
    "rtx-3060-drv570-v12.xml",
    "rtx-3060-laptop-drv515-v11.xml",
    "rtx-3080-drv536-v12.xml",
    "rtx-3080-drv595-v13-busy.xml",
    "rtx-3090-drv525-v12.xml",
    "rtx-4000-sff-ada-drv595-v13.xml",
    "rtx-4090-drv535-v12.xml",
    "rtx-pro-6000-blackwell-fragment-drv580.xml",
    "t4-held-1gib-drv515-v11.xml",
    "t4-x8-slot-drv595-v13.xml",
    "turing-graphics-device-drv418.xml",
    "v100-8gpu-page-retirement-bad.txt",
    "xml-gtx8800-v6-driver340.xml",
)
SHORT = (  # tests of their own below
    "csv-1080ti-fan-unknown-error.csv",
    "csv-2080ti-default-limit-unknown-error.csv",
    "csv-gpu-requires-reset-h100.csv",
    "err-driver-library-mismatch.txt",
    "err-lost-reboot-to-recover.txt",
    "err-no-devices.txt",
    "err-no-driver-communication.txt",
    "table-rtx4000ada-fan-err-reset.txt",
    "table-rtxpro6000-all-err-held-memory.txt",
    "v100-nvlink-status-inactive-links.txt",
)
LEFT_OUT = {
    "a40x4-csv-nounits-snapshot.txt": "no header says what its columns are, and no number in it is odd",
    "csv-laptop-3080-mostly-na.csv": "no header; a laptop that answers N/A is among the machines",
    "csv-wsl2-process-memory-na.txt": "two numbers and a process; memory that is not available is tested with the processes",
    "rtx-4090x2-idle-held-by-app.txt": "its processes are the point, and they are tested with the processes",
    "rtx-4090x2-lspci-x8-downgraded.txt": "output of lspci",
    "table-driver610-kmd-header.txt": "one line of a table that we do not parse: the version comes from NVML",
    "table-orin-nvgpu-no-cuda.txt": "all of it is N/A: the model Orin of the fake",
    "v100-8gpu-table-inforom-corrupted.txt": "a warning under a table; code 14 is tested with the faults",
    "v100-query-csv-na-remap.csv": "serials and addresses only; addresses by domain are tested with the identities",
    "xml-broken-supported-clocks.xml": "XML that cannot be parsed: we do not read the output of nvidia-smi",
}
TOLD: dict[str, set[tuple[str, str, str]]] = {  # what rules say of it now: rule, severity, GPU
    "q-performance-hw-thermal.txt": {("gpu_overheating", "critical", "0")},
    "mock-gb200-one-lost-v13.xml": {("gpu_dropped", "critical", "1")},
    "csv-gpu-requires-reset-h100.csv": {("gpu_dropped", "critical", "0")},
    "table-rtxpro6000-all-err-held-memory.txt": {("gpu_dropped", "critical", "0")},
    "err-lost-reboot-to-recover.txt": {("gpu_dropped", "critical", "0")},
    "err-no-devices.txt": {("gpu_dropped", "critical", "0")},  # where the host had a GPU before
}
WAITING = {  # the rule is not written yet (the defaults of the operator name it): what it lacks, and what is asserted meanwhile
    "q-performance-power-brake.txt": "power_brake; the reasons and the clock",
    "q-vgpu-guest-unlicensed.txt": "the licence of a guest is not read, and no rule tells of it; that its sensors are absent",
    "v100-8gpu-page-retirement-bad.txt": "a rule of retired pages; the pages and what is pending",
    "csv-1080ti-fan-unknown-error.csv": "a rule of dead fans, by the siblings; the fans and temperatures",
    "table-rtx4000ada-fan-err-reset.txt": "a rule of the recovery action without its event; the action",
    "v100-nvlink-status-inactive-links.txt": "a rule of links that were up; the state of each link",
    "err-driver-library-mismatch.txt": "driver_down; the state",
    "err-no-driver-communication.txt": "driver_down; the state",
}
