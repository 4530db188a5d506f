"""What each import costs: memory and CPU time of a fresh interpreter with it, less those of an empty one.

Prints a line for each package that gpuwatch needs, and for each process what all its imports come to. A package counts what
it imports itself, so that shared parts (asyncio, ssl, typing) count for each. Run it as `python -m tests.bench.imports`.
"""

import statistics
import subprocess

from tests.bench import environments

RUNS = 7
PACKAGES = {
    "nvidia-ml-py": "pynvml",
    "prometheus-client": "prometheus_client, prometheus_client.openmetrics.exposition",
    "psutil": "psutil",
    "pySMART": "pySMART",
    "apscheduler": "apscheduler.schedulers.background",
    "httpx": "httpx",
    "sqlalchemy": "sqlalchemy, sqlalchemy.dialects.sqlite",
    "msgspec": "msgspec",
    "h11": "h11",
    "PyYAML": "yaml",
    "bcrypt": "bcrypt",
}
PROCESSES = {
    "the daemon": "gpuwatch.cli.run",
    "gpuwatch-nvml": "gpuwatch.sources.worker, gpuwatch.sources.nvml, pynvml",
    "gpuwatch-probe": "gpuwatch.sources.worker, gpuwatch.sources.pci, gpuwatch.sources.filesystem, gpuwatch.sources.hwmon, "
    "gpuwatch.sources.network",
    "gpuwatch-smart": "gpuwatch.sources.worker, gpuwatch.sources.smart",
}
PROGRAM = """
import time
began = time.process_time()
import {modules}
spent = time.process_time() - began
lines = open("/proc/self/smaps_rollup").read().splitlines()
size = {{name: int(line.split()[1]) for line in lines[1:] for name in [line.split(":")[0]]}}
print(size["Rss"], size["Anonymous"], spent)
"""


def measured(python: str, modules: str) -> tuple[float, float, float]:
    """Return resident MB, anonymous MB and CPU milliseconds, the medians of some fresh interpreters."""
    command = [python, "-c", PROGRAM.format(modules=modules)]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split() for _ in range(RUNS)]
    resident, anonymous, spent = (statistics.median(float(run[place]) for run in runs) for place in range(3))
    return resident / 1000, anonymous / 1000, spent * 1e3


def main() -> None:
    """Measure and print."""
    python = str(environments.gpuwatch())
    empty = measured(python, "time")
    print(f"{'':20}{'RSS':>10}{'its own':>10}{'CPU':>10}")
    print(f"{'an empty Python':20}{empty[0]:7.1f} MB{empty[1]:7.1f} MB")
    for name, modules in (*PACKAGES.items(), *PROCESSES.items()):
        resident, anonymous, spent = measured(python, modules)
        print(f"{name:20}{resident - empty[0]:7.1f} MB{anonymous - empty[1]:7.1f} MB{spent:7.0f} ms")


if __name__ == "__main__":
    main()
