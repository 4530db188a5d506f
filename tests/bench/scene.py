"""A whole training server: 8 H100 with 18 NVLinks each, one of them in 7 MIG instances, 40 processes, and the daemon on it.

python -m tests.bench.scene

The processes are files: those of /proc are written anew twice a second, as their CPU time grows. What the kernel takes to make up
the text of a real one is not in it; `python -m tests.bench.crowd` says how much that is.
"""

import argparse
import contextlib
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import mean

from gpuwatch.catalogue import METRICS, SUBJECTS
from gpuwatch.catalogue.interconnect import NVLINK
from gpuwatch.catalogue.mig import MIG
from gpuwatch.catalogue.process import JOB, JOB_GPU, PROCESS, PROCESS_GPU, USER_GPU
from gpuwatch.config import Nvml
from gpuwatch.model.metric import Subject as Kind
from tests.bench import environments
from tests.bench.processes import alone, cpu, pss, reaped
from tests.bench.scrapes import Prometheus
from tests.bench.subject import Subject
from tests.bench.table import Table
from tests.bench.workload import GIB, GPUS, Busy
from tests.fakes.cgroups import Crowd, docker
from tests.fakes.drives import nvme
from tests.fakes.host import HostTree
from tests.fakes.nvml import FakeNvml, Process
from tests.fakes.smartctl import FakeSmartctl
from tests.fakes.until import until

DRIVER = "595.71.05"  # the newest: it tells most
DIVIDED = GPUS - 1  # the card that is divided
INSTANCES = range(7, 14)  # numbers of its instances, as 1g.10gb has them
PROCESSES, LOADERS, CONTAINERS, LINKS = 40, 4, 10, 18
SHARES, RATES = (1, 2, 3, 4, 5, 10, 11, 12, 13), (20, 21, 60, 61)  # numbers of GPM: percent, and MiB a second
SLOW, PERIODS = Nvml().every_slow, 1  # whole periods of the slow tier are measured: a part of one would have all or nothing of it
SLOW_CALL = "nvmlDeviceGetComputeMode"  # which is asked once a card in each round of that tier, and in no other
WARM, SAMPLE_EVERY, SCRAPE_EVERY = 15.0, 5.0, 15.0  # the first is far from any slow round, so that none is cut
LIMITS = {"series": 1600, "PSS": 80.0, "beat": 15.0}  # the last: milliseconds, 1.5 % of a core
SHOWN = 12  # families that are named
GROUPS: dict[str, tuple[Kind, ...]] = {
    "NVLinks, each by itself": (NVLINK,),
    "MIG instances": (MIG,),
    "jobs and users": (JOB, JOB_GPU, USER_GPU),
    "processes": (PROCESS, PROCESS_GPU),
}
OF_GPUS, REST = ("gpuwatch_gpu_", "gpuwatch_xid_"), "host, disks, gpuwatch itself"


class Training(Busy):
    """The cards: as busy as those of the other scene, with what only these count, and the processes on them."""

    def __init__(self, fake: FakeNvml, crowd: Crowd) -> None:
        self._fake, self._crowd, self._pids = fake, crowd, list[int]()
        self._people()
        super().__init__(fake)

    def turn(self) -> None:
        """Change everything once."""
        super().turn()
        for card in range(GPUS):
            for link in range(LINKS):
                counted = self._fake.link(card, link)
                counted.transmit += 10**6
                counted.receive += 10**6
            self._fake.work(card, dict.fromkeys(SHARES, 1.0) | dict.fromkeys(RATES, 20.0))
        for instance in INSTANCES:
            self._fake.work(DIVIDED, dict.fromkeys(SHARES, 1.0), instance=instance)
        for pid in self._pids:
            self._crowd.spend(pid, pid / 100 + 0.4 * self._round)

    def values(self, card: int) -> dict[str, int]:
        """Return the next values of one card."""
        found = super().values(card) | {"temperature_memory": 60 + self._round % 20}
        lacking = {"fan_speed"} | ({"utilization", "memory_activity", "encoder", "decoder"} if card == DIVIDED else set())
        return {name: value for name, value in found.items() if name not in lacking}

    def _people(self) -> None:
        """Put the processes on the cards, in containers of two users, each with its loaders."""
        fake, crowd = self._fake, self._crowd
        fake.divide(DIVIDED)
        for instance in INSTANCES:
            fake.create(DIVIDED, instance, "1g.10gb", 10 * GIB, used=5 * GIB)
        cards: dict[int, list[Process]] = {card: [] for card in range(GPUS)}
        crowd.users(ann=1001, bob=1002)
        for number in range(PROCESSES):
            pid, group = 1000 + number * 100, docker(f"{number % CONTAINERS:012x}" + "0" * 52, "systemd")
            crowd.run(pid, group=group, threads=range(pid + 50, pid + 80), uid=1001 + number % 2)
            for loader in range(pid + 1, pid + 1 + LOADERS):
                crowd.run(loader, "pt_data_worker", parent=pid, group=group, uid=1001 + number % 2)
            self._pids += range(pid, pid + 1 + LOADERS)
            crowd.limit(group, quota=8)
            if number < len(INSTANCES):
                cards[DIVIDED].append(Process(pid, 5 * GIB, gi=INSTANCES[number], ci=0))
            else:
                cards[number % DIVIDED].append(Process(pid, (number + 1) * GIB // 3, share=20))
        for card, processes in cards.items():
            fake.processes(card, processes)


def host(fake: FakeNvml) -> tuple[HostTree, str]:
    """Return the machine around the cards, with two disks and two interfaces, and a configuration that looks at it."""
    tree = HostTree(fake.path).kernel()
    tree.write(tree.root / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    tree.write(tree.proc / "sys/kernel/task_delayacct", "0\n")  # as since Linux 5.14
    smartctl = FakeSmartctl(fake.path / "smartctl")
    for card in range(GPUS):
        tree.gpu(fake.read_text(card, "bus_id_legacy").lower())
    for number in range(2):
        tree.nvme(number)
        drive = nvme()
        smartctl.answers(f"nvme{number}n1", smartctl.document(f"nvme{number}n1", drive.tree, drive.text))
        tree.interface(f"eth{number}", speed="100000")
    tree.diskstats("nvme0n1 100 200 300", "nvme1n1 100 200 300")
    tree.net("eth0", "eth1")
    paths = "\n".join(f'{name} = "{getattr(fake, name)}"' for name in ("proc", "sys", "dev", "root"))
    return tree, f'[paths]\n{paths}\n[sources.smart]\nsmartctl = "{smartctl.program}"\n'


def measure(folder: Path, python: Path, table: Table) -> None:
    """Run the daemon on it and say what it cost and what it told."""
    folder.mkdir()
    fake = FakeNvml(folder, GPUS, "H100", driver=DRIVER)
    tree, config = host(fake)
    work = Training(fake, Crowd(tree))
    subject = Subject(folder / "daemon", fake, python, config)
    with contextlib.ExitStack() as ending:  # all of it ends, whatever of it fails
        work.start()
        ending.callback(work.stop)
        ending.push(subject.running)
        subject.start()
        prometheus = Prometheus((subject.port,), SCRAPE_EVERY)
        ending.callback(prometheus.stop)
        until(lambda: fake.calls(SLOW_CALL) >= GPUS)
        time.sleep(WARM)
        processes = subject.resident()
        before = {name: cpu(pid) for name, pid in processes.items()}
        inside, calls, short, began = fake.inside()[1], fake.calls(), reaped(subject.running.pid), time.monotonic()
        slow, held = fake.calls(SLOW_CALL), list[tuple[float, float]]()
        while (left := began + PERIODS * SLOW - time.monotonic()) > 0:
            time.sleep(min(SAMPLE_EVERY, left))
            held.append((pss(processes.values()), alone(processes.values())))
        spent = {name: cpu(pid) - before[name] for name, pid in processes.items()}
        inside, calls, passed = fake.inside()[1] - inside, fake.calls() - calls, time.monotonic() - began
        short, slow = reaped(subject.running.pid) - short, fake.calls(SLOW_CALL) - slow
        page = subject.running.page().text
        subject.running.stop()
    ours = spent | {"gpuwatch-nvml": spent["gpuwatch-nvml"] - inside}
    what = f"{LINKS} NVLinks each, one in {len(INSTANCES)} MIG instances, {PROCESSES} processes"
    table.section(f"A whole scene: {GPUS} fake H100, driver {DRIVER}, {what}, over {passed:.0f} s")
    for name, seconds in ours.items():
        words = f"{name}{' beside the library' if name == 'gpuwatch-nvml' else ''}, CPU a beat"
        table.line(words, f"{1e3 * seconds / passed:.2f} ms")
    together = sum(ours.values()) / passed
    table.line("resident processes together, CPU a beat", f"{1e3 * together:.2f} ms", 1e3 * together, LIMITS["beat"], "ms")
    table.line("inside the library (taken off), a beat", f"{1e3 * inside / passed:.2f} ms")
    table.line("short-lived workers, a beat", f"{1e3 * short / passed:.2f} ms")
    table.line("NVML calls a beat, all tiers", f"{calls / passed:.1f}")
    table.line("slow rounds of a card in it", f"{slow / GPUS:g}")
    for name, sizes in zip(("PSS", "sharing with nobody"), zip(*held, strict=True), strict=True):
        words = f"{mean(sizes):.1f} MB"
        table.line(f"{name}, on average and at most", f"{words}, {max(sizes):.1f} MB", max(sizes), LIMITS["PSS"], "MB")
    series(page, table)


def series(page: str, table: Table) -> None:
    """Say how many series the page has, and which."""
    families = Counter(line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if not line.startswith("#"))
    whose = {metric.family: metric.subject for metric in METRICS} | {f"{kind.head}_info": kind for kind in SUBJECTS.values()}
    groups: Counter[str] = Counter()
    for name, count in families.items():
        group = next((words for words, kinds in GROUPS.items() if whose.get(name) in kinds), REST)
        groups["GPUs" if group == REST and name.startswith(OF_GPUS) else group] += count
    total = families.total()
    table.line("series", str(total), total, LIMITS["series"])
    for group, count in groups.most_common():
        table.line(f"... {group}", str(count))
    for name, count in families.most_common(SHOWN):
        table.line(f"... {name}", str(count))


def main() -> None:
    """Measure this scene alone and print."""
    argparse.ArgumentParser(prog="python -m tests.bench.scene", description=__doc__).parse_args()
    table = Table()
    with tempfile.TemporaryDirectory(prefix="gpuwatch-scene-") as name:
        measure(Path(name) / "scene", environments.gpuwatch(), table)
    print(table.text())


if __name__ == "__main__":
    main()
