"""A libnvidia-ml.so.1 without a GPU, controlled while it runs.

    fake = FakeNvml(tmp_path, gpus=8, model="A40", driver="535.154.05")
    child = subprocess.Popen([...], env={**os.environ, **fake.environment})   # it finds our library
    config paths: proc = fake.proc, sys = fake.sys, dev = fake.dev, root = fake.root
    model may be a list of models, one a card (nvml_models.py has them)

Everything below takes effect at once, also in processes that already run:

    fake.set(3, temperature=91, utilization=100)        # raw NVML units (mW, MHz, percent, bytes); None: NOT_SUPPORTED
    fake.text(3, name=b"\\xff\\x00")                       # bytes, also invalid ones
    fake.answer("nvmlDeviceGetPowerUsage", 999, gpu=3)   # until answer(..., 0)
    fake.fail("nvmlDeviceGetPowerUsage", 999, gpu=3, call=2, times=1)   # the 2nd call from now
    fake.field(3, 186, 999)                              # nvmlReturn of one field value
    fake.delay(0.0003)  fake.delay(6.0, "nvmlDeviceGetName", gpu=2)
    fake.hang(2)  fake.hang(2, "nvmlDeviceGetName")  fake.hang(None, "nvmlInitWithFlags")  fake.release(...)
    fake.crash("nvmlDeviceGetName", gpu=2)
    fake.processes(3, [Process(4711, 1 << 30, share=80)])
    fake.xid(3, 79)  fake.event(3, 0x100, times=5)        # to those who wait for events
    fake.divide(0)  fake.create(0, 1, "3g.20gb", 20 << 30)  fake.destroy(0, 1)   # MIG (nvml_parts.py)
    fake.turn(0, 3, "inactive")  fake.work(0, {2: 45.0})  fake.memory_errors(0, corrected_volatile_dram=2)   # (nvml_load.py)
    fake.lose(5, code=15)  fake.find(5)                   # off the bus; every call answers the code
    fake.abort_on_dead_handle(3)                          # the process dies when a lost card's handle is used more often
    fake.show([0, 1, 2])                                  # which cards NVML counts, in this order
    fake.init(9)  fake.unload()  fake.load("550.90.07")   # init's answer; module away; (another) module there
    fake.uninitialise()                                   # every process must call nvmlInit again
    fake.calls("nvmlDeviceGetName", gpu=3)  fake.inside()  fake.inits  fake.shutdowns

A gpu is a card's number, which stays with the card; its NVML index is its position in `show`. Functions are named by their
symbol without `_v2`, `_v3` (the exception is nvmlDeviceGetMemoryInfo_v2). `profile` (default: the driver's major version)
says which symbols and field ids exist: "470", "535", "595", or any other major.
"""

import ctypes
import mmap
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.nvml_build import library
from tests.fakes.nvml_layout import CARDS, FUNCTIONS, NOT_THERE, TEXTS, VALUES, Rule, State
from tests.fakes.nvml_load import SINCE_AMPERE, FakeLoad
from tests.fakes.nvml_models import BASE, MODELS
from tests.fakes.nvml_parts import FakeParts

KINDS = {"compute": 1, "graphics": 2, "mps": 4}


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a card: memory in bytes (-1: not available), share in percent (0: no sample), `sampled` in microseconds."""

    pid: int
    memory: int = 1 << 30
    kinds: Sequence[str] = ("compute",)
    gi: int = 0xFFFFFFFF
    ci: int = 0xFFFFFFFF
    share: int = 0
    sampled: int = 0  # now


class FakeNvml(FakeParts, FakeLoad):
    """One host's NVML: its library, its state, and the /proc, /sys and /dev that go with it."""

    def __init__(
        self,
        tmp_path: Path,
        gpus: int = 8,
        model: str | Sequence[str] = "A40",
        driver: str = "535.154.05",
        profile: str | None = None,
    ) -> None:
        models = [model] if isinstance(model, str) else list(model)
        self.path = tmp_path / "nvml"
        self.path.mkdir()
        self.proc, self.sys, self.dev, self.root = (str(self.path / name) for name in ("proc", "sys", "dev", "root"))
        for folder in (self.proc, self.sys, self.dev, self.root):
            Path(folder).mkdir()
        self.state_file = self.path / "state"
        self.state_file.write_bytes(bytes(ctypes.sizeof(State)))
        with self.state_file.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.state = State.from_buffer(self.memory)
        self.libraries = self.path / "lib"
        self.libraries.mkdir()
        self.install(profile or driver.partition(".")[0])
        self.state.dead_uses_allowed = -1
        for rules in self.state.rules:
            for rule in rules:
                rule.delay_ns = -1
        for card in range(CARDS):
            self._fill(card, models[card % len(models)])
        self.show(range(gpus))
        self.load(driver)

    @property
    def environment(self) -> dict[str, str]:
        """What a child process needs in its environment to load the fake."""
        return {"LD_LIBRARY_PATH": str(self.libraries), "GPUWATCH_FAKE_NVML": str(self.state_file)}

    # --- the host -----------------------------------------------------------------------------------------------------

    def install(self, profile: str) -> None:
        """Put the library of one driver in place of the one before; who has that mapped keeps it."""
        shutil.rmtree(self.libraries)
        self.libraries.mkdir()
        made = library(profile)
        shutil.copy2(made, self.libraries / f"libnvidia-ml.so.{profile}")
        for name in (made.name, "libnvidia-ml.so"):
            (self.libraries / name).symlink_to(f"libnvidia-ml.so.{profile}")

    def uninstall(self) -> None:
        """Take the library away."""
        shutil.rmtree(self.libraries)
        self.libraries.mkdir()

    def load(self, driver: str) -> None:
        """Have the kernel module of this version loaded: version file, nodes, list of GPUs, and init works."""
        self.state.driver_version = driver.encode()
        self.state.nvml_version = f"12.{driver}".encode()
        self.state.driver_major = int(driver.partition(".")[0])
        self.state.cuda = 12020
        folder = Path(self.proc) / "driver/nvidia"
        folder.mkdir(parents=True, exist_ok=True)
        version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu Dec 28 15:37:48 UTC 2023\n"
        (folder / "version.new").write_text(version + "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
        (folder / "version.new").replace(folder / "version")
        self._list()
        self.nodes()
        self.init(0)

    def unload(self) -> None:
        """Take the kernel module away: no version file, no nodes, init answers 9."""
        shutil.rmtree(Path(self.proc) / "driver/nvidia", ignore_errors=True)
        self.nodes(there=False)
        self.init(9)

    def nodes(self, *, there: bool = True) -> None:
        """Make or remove the /dev/nvidia* nodes (as empty files)."""
        names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{self.get(card, 'minor')}" for card in range(self.state.count))]
        for name in names:
            node = Path(self.dev) / name
            if there:
                node.touch()
            else:
                node.unlink(missing_ok=True)

    def nouveau(self) -> None:
        """Have the nouveau module loaded."""
        (Path(self.sys) / "module/nouveau").mkdir(parents=True)

    def init(self, code: int) -> None:
        """Have nvmlInit answer this code from now on."""
        self.answer("nvmlInitWithFlags", code)

    def uninitialise(self) -> None:
        """Make every init of the past void: calls answer 1 until nvmlInit is called again."""
        self.state.epoch += 1

    def show(self, cards: Sequence[int]) -> None:
        """Have NVML count these cards, in this order."""
        for index, card in enumerate(cards):
            self.state.order[index] = card
        self.state.count = len(cards)

    def count_none(self) -> None:
        """Have NVML count no card the next time it is asked."""
        self.state.empty_counts = 1

    # --- one card -----------------------------------------------------------------------------------------------------

    def set(self, gpu: int, **values: int | None) -> None:
        """Set values of a card, in NVML's own units; None is NOT_SUPPORTED."""
        for name, value in values.items():
            self.state.cards[gpu].values[VALUES.index(name)] = NOT_THERE if value is None else value

    def get(self, gpu: int, name: str) -> int:
        """Return a value of a card."""
        return int(self.state.cards[gpu].values[VALUES.index(name)])

    def text(self, gpu: int, **texts: bytes) -> None:
        """Set texts of a card; empty is NOT_SUPPORTED."""
        for name, text in texts.items():
            self.state.cards[gpu].texts[TEXTS.index(name)].value = text

    def uuid(self, gpu: int) -> str:
        """Return the UUID of a card."""
        return self.read_text(gpu, "uuid")

    def read_text(self, gpu: int, name: str) -> str:
        """Return a text of a card."""
        found: bytes = self.state.cards[gpu].texts[TEXTS.index(name)].value
        return found.decode(errors="replace")

    def run_process(self, gpu: int, *processes: tuple[int, int]) -> None:
        """Have these (pid, bytes) compute on a card."""
        self.processes(gpu, [Process(pid, memory) for pid, memory in processes])

    def processes(self, gpu: int, processes: Sequence[Process], *, stride: int = 0) -> None:
        """Have these on a card; `stride` is the size of the rows that a driver writes against its own header."""
        card = self.state.cards[gpu]
        card.process_stride = stride
        for place, process in enumerate(processes):
            card.pids[place], card.process_memory[place] = process.pid, process.memory
            card.process_kinds[place] = sum(KINDS[kind] for kind in process.kinds)
            card.process_gi[place], card.process_ci[place] = process.gi, process.ci
            card.process_share[place], card.process_sampled[place] = process.share, process.sampled
        self.set(gpu, processes=len(processes))

    def lose(self, gpu: int, code: int = 15) -> None:
        """Let a card fall off the bus: every call answers `code`, and its handles are dead."""
        self.state.cards[gpu].dead_uses = 0
        self.state.cards[gpu].lost = code

    def find(self, gpu: int) -> None:
        """Have a lost card back."""
        self.state.cards[gpu].lost = 0

    def dead_uses(self, gpu: int) -> int:
        """Return how often a handle of a lost card was used."""
        return int(self.state.cards[gpu].dead_uses)

    def abort_on_dead_handle(self, uses: int) -> None:
        """Abort the process that uses the handle of a lost card more often than this."""
        self.state.dead_uses_allowed = uses

    # --- one function ---------------------------------------------------------------------------------------------------

    def answer(self, function: str, code: int, gpu: int | None = None) -> None:
        """Have a function answer this code (0: work) until told otherwise; `gpu` None: for all cards and none."""
        for rule in self._rules(function, gpu):
            rule.code = code

    def answer_all(self, code: int, gpu: int | None = None) -> None:
        """Have every function that takes a handle answer this code."""
        for function in FUNCTIONS:
            if function.startswith("nvmlDevice") and function != "nvmlDeviceGetCount":
                self.answer(function, code, gpu)

    def fail(self, function: str, code: int, gpu: int | None = None, call: int = 1, times: int = 1) -> None:
        """Have the `call`-th call from now, and those after it up to `times` in all, answer this code."""
        for rule in self._rules(function, gpu):
            rule.fail_code, rule.fail_more, rule.fail_in = code, times - 1, call

    def failing(self, function: str, gpu: int | None = None) -> bool:
        """Return whether an armed failure has not come up yet."""
        return any(rule.fail_in for rule in self._rules(function, gpu))

    def field(self, gpu: int, number: int, code: int) -> None:
        """Set the nvmlReturn of one field value (0: as its value says)."""
        self.state.cards[gpu].field_codes[number] = code

    def delay(self, seconds: float, function: str | None = None, gpu: int | None = None) -> None:
        """Have every call, or one function, take this long."""
        if function is None:
            self.state.delay_ns = int(seconds * 1e9)
            return
        for rule in self._rules(function, gpu):
            rule.delay_ns = int(seconds * 1e9)

    def hang(self, gpu: int | None, function: str | None = None) -> None:
        """Have every call to a card, or one function, not return until `release`."""
        self._hang(gpu, function, 1)

    def release(self, gpu: int | None, function: str | None = None) -> None:
        """End what `hang` began with the same arguments."""
        self._hang(gpu, function, 0)

    def crash(self, function: str, gpu: int | None = None, *, on: bool = True) -> None:
        """Have a function abort the process that calls it."""
        for rule in self._rules(function, gpu):
            rule.crash = int(on)

    # --- what happened --------------------------------------------------------------------------------------------------

    def calls(self, function: str | None = None, gpu: int | None = None) -> int:
        """Return the calls so far: all, of one function, or of one function for one card."""
        if function is None:
            return int(self.state.total_calls)
        return sum(rule.calls for rule in self._rules(function, gpu))

    def tally(self) -> dict[str, int]:
        """Return the calls so far by function, without those that were never called."""
        return {function: calls for function in FUNCTIONS if (calls := self.calls(function))}

    def inside(self) -> tuple[float, float]:
        """Return the seconds spent inside the library by all threads: wall clock (with its delays) and CPU."""
        return self.state.inside_ns / 1e9, self.state.inside_cpu_ns / 1e9

    @property
    def inits(self) -> int:
        """Successful calls of nvmlInit."""
        return int(self.state.inits)

    @property
    def shutdowns(self) -> int:
        """Calls of nvmlShutdown."""
        return int(self.state.shutdowns)

    # --- within -----------------------------------------------------------------------------------------------------------

    def _rules(self, function: str, gpu: int | None) -> list[Rule]:
        rules = self.state.rules[FUNCTIONS.index(function)]
        return list(rules) if gpu is None else [rules[gpu]]

    def _hang(self, gpu: int | None, function: str | None, on: int) -> None:
        if function is not None:
            for rule in self._rules(function, gpu):
                rule.hang = on
        elif gpu is not None:
            self.state.cards[gpu].hang = on
        else:
            for card in self.state.cards:
                card.hang = on

    def _fill(self, card: int, model: str) -> None:
        """Give a card the values of its model, and an identity of its own (invented)."""
        bus = 0x17 + 0x0E * card if card < 16 else card
        address = f"0000{card // 16:04X}:{bus & 0xFF:02X}:00.0"
        texts: dict[str, str | None] = {
            "uuid": f"GPU-{card:08x}-feed-4bee-a000-{card:012x}",
            "serial": f"13200000{card:05d}",
            "part_number": "900-2G133-0000-000",
            "vbios": "94.02.5C.00.02",
            "inforom": "G133.0200.00.05",
            "bus_id": address,
            "bus_id_legacy": address[4:],
        }
        values: dict[str, int | None] = dict.fromkeys(VALUES, 0)
        values |= {"minor": card, "domain": card // 16, "bus": bus & 0xFF, "device": 0, **BASE}
        for name, value in MODELS[model].items():
            if name in TEXTS:
                assert not isinstance(value, int)
                texts[name] = value
            else:
                assert not isinstance(value, str)
                values[name] = value
        total, reserved, used = (values[f"memory_{name}"] or 0 for name in ("total", "reserved", "used"))
        values["memory_free"] = total - reserved - used
        self.set(card, **values)
        self.no_memory_errors(card, SINCE_AMPERE if values["ecc_current"] else ())
        self.text(card, **{name: (text or "").encode() for name, text in texts.items()})

    def _list(self) -> None:
        """Write the driver's own list of GPUs."""
        folder = Path(self.proc) / "driver/nvidia/gpus"
        shutil.rmtree(folder, ignore_errors=True)
        for card in self.state.order[: self.state.count]:
            address, uuid, name = (self.read_text(card, text) for text in ("bus_id_legacy", "uuid", "name"))
            if address:
                place = folder / address.lower()
                place.mkdir(parents=True)
                facts = {
                    "Model": name,
                    "IRQ": "143",
                    "GPU UUID": uuid,
                    "Video BIOS": "94.02.5c.00.02",
                    "Bus Location": place.name,
                    "Device Minor": str(self.get(card, "minor")),
                    "GPU Excluded": "No",
                }
                (place / "information").write_text("".join(f"{key}: \t {value}\n" for key, value in facts.items()))
