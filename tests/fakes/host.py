"""A small fake of /proc, /sys, /dev and / of a GPU server, built under a temporary folder, and an Answer that remembers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuwatch.config import Config, Host, Paths
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Subject
from gpuwatch.model.reading import Reading

GPU_CONFIG = b"\xde\x10\x04\x22" + b"\0" * 60


class Answers:
    """What a source answered, in order."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.items: list[str] = []
        self.ends = 0
        self.events: list[Event] = []

    def reading(self, reading: Reading) -> None:
        """Remember a reading."""
        self.readings.append(reading)

    def event(self, event: Event) -> None:
        """Remember an event."""
        self.events.append(event)

    def working(self, item: str) -> None:
        """Remember what is about to be touched."""
        self.items.append(item)

    def restart(self, reason: str) -> None:
        """None of the host-side sources needs a new process."""
        raise AssertionError(reason)

    def failed(self, words: str) -> None:
        """None of this has a bug to tell of."""
        raise AssertionError(words)

    def done(self, busy: Sequence[str] = ()) -> None:
        """Count the ends; none of these sources leaves a call behind."""
        assert not busy
        self.ends += 1

    def of(self, subject: Subject, key: str = "") -> Reading:
        """Return the one reading of a target."""
        (found,) = [one for one in self.readings if one.target.subject is subject and one.target.key == key]
        return found

    def keys(self, subject: Subject) -> list[str]:
        """Return the keys of the targets of one subject, in the order of the answers."""
        return [one.target.key for one in self.readings if one.target.subject is subject]


class HostTree:
    """The trees. Every method adds something; a test may write over or remove any file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proc, self.sys, self.dev, self.root = (folder / name for name in ("proc", "sys", "dev", "root"))
        for tree in (self.proc, self.sys, self.dev, self.root):
            tree.mkdir(parents=True, exist_ok=True)  # a fake NVML has made its own already

    @property
    def config(self) -> Config:
        """A configuration that looks at these trees."""
        return Config(
            host=Host(name="vision-07", labels={"rack": "A3", "site": "north"}),
            paths=Paths(proc=str(self.proc), sys=str(self.sys), dev=str(self.dev), root=str(self.root)),
        )

    def write(self, path: Path, text: str | bytes) -> Path:
        """Write one file, with the folders above it. One that is there is written in place and at once, as the kernel's are.

        ext4 sends a file that is emptied and written anew to the disk when it is closed, which takes a busy disk 0.3 ms each.
        """
        data = text if isinstance(text, bytes) else text.encode()
        if path.is_file():
            with path.open("r+b", buffering=0) as file:
                file.truncate(file.write(data))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return path

    def link(self, path: Path, target: Path) -> Path:
        """Make a link to a folder, which is made too."""
        target.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        return target

    def files(self, folder: Path, **texts: str) -> Path:
        """Write files of one line each, as sysfs has them; `__` in a name is a slash."""
        for name, text in texts.items():
            self.write(folder / name.replace("__", "/"), f"{text}\n")
        return folder

    def kernel(self) -> "HostTree":
        """Add what every host has: two cores, a little memory, pressure, the name of its system, an empty kernel log."""
        self.write(self.dev / "kmsg", "")
        self.write(
            self.proc / "stat",
            "cpu  1000 20 300 40000 50 6 7 8 0 0\ncpu0 500 10 150 20000 25 3 3 4 0 0\ncpu1 500 10 150 20000 25 3 4 4 0 0\n"
            "intr 12345 0 9 0\nctxt 99\nbtime 1700000000\nprocesses 77\n",
        )
        self.write(self.proc / "loadavg", "1.50 2.25 3.00 2/900 12345\n")
        self.write(
            self.proc / "meminfo",
            "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nBuffers:           1 kB\n"
            "SwapCached:        0 kB\nSwapTotal:       400 kB\nSwapFree:        300 kB\n",
        )
        for number, resource in enumerate(("cpu", "io", "memory"), 1):
            self.write(
                self.proc / "pressure" / resource,
                f"some avg10=0.00 avg60=0.00 avg300=0.00 total={number}000000\n"
                f"full avg10=0.00 avg60=0.00 avg300=0.00 total={number}00000\n",
            )
        self.files(
            self.proc / "sys/kernel", osrelease="5.15.0-122-generic", random__boot_id="11111111-2222-3333-4444-555555555555"
        )
        self.write(self.root / "etc/os-release", 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\nVERSION_ID="22.04"\n')
        return self

    def diskstats(self, *lines: str) -> None:
        """Write /proc/diskstats: `name reads_sectors writes_sectors busy_ms` each."""
        rows = [line.split() for line in lines]
        self.write(
            self.proc / "diskstats",
            "".join(
                f"   8       0 {name} 10 0 {read} 5 20 0 {write} 6 0 {busy} 9 0 0 0 0 0 0\n" for name, read, write, busy in rows
            ),
        )

    def net(self, *names: str) -> None:
        """Write /proc/net/dev, with counters that tell the columns apart."""
        head = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs\n"
        rows = "".join(f"{name:>6}: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\n" for name in names)
        self.write(self.proc / "net/dev", head + rows)

    def interface(self, name: str, *, real: bool = True, **files: str) -> Path:
        """Add an interface to sysfs; a real one has a device."""
        folder = self.files(self.sys / "class/net" / name, **({"operstate": "up", "carrier_changes": "3"} | files))
        if real:
            self.link(folder / "device", self.sys / f"devices/virtual/dev-of-{name}")
        return folder

    def disk(self, name: str, place: str, device: str, **files: str) -> Path:
        """Add a whole disk at a place in the tree of devices; `device` is its parent there. `device__x` writes to that."""
        parent = self.sys / place / device
        block = parent / "block" / name
        texts = {"size": "1000", "removable": "0", "hidden": "0"} | files
        self.files(block, **{file: text for file, text in texts.items() if not file.startswith("device__")})
        self.files(parent, **{file[8:]: text for file, text in texts.items() if file.startswith("device__")})
        self.link(block / "device", parent)
        self.link(self.sys / "block" / name, block)
        return block

    def nvme(self, number: int = 0, **files: str) -> Path:
        """Add an NVMe disk."""
        texts = {
            "wwid": f"eui.00253851004{number:05d}",
            "device__model": "SAMSUNG MZVL21T0HCLR-00B00             ",
            "device__serial": f"S000000000000{number}      ",
            "device__firmware_rev": "GXA7801Q",
            "queue__rotational": "0",
        }
        place = f"devices/pci0000:00/0000:00:01.1/0000:0{number + 1}:00.0/nvme"
        return self.disk(f"nvme{number}n1", place, f"nvme{number}", **(texts | files))

    def sata(self, name: str = "sda", **files: str) -> Path:
        """Add a SATA disk."""
        texts = {
            "device__vendor": "ATA     ",
            "device__model": "ST4000NM0035-1V4 ",
            "device__wwid": f"naa.5000c5000000{ord(name[-1]):04x}",
            "queue__rotational": "1",
        }
        return self.disk(name, f"devices/pci0000:00/0000:00:17.0/ata1/host0/{name}", "0:0:0:0", **(texts | files))

    def usb(self, name: str = "sdu", **files: str) -> Path:
        """Add a stick."""
        texts = {"device__vendor": "SanDisk ", "device__model": "Ultra", "removable": "1", "queue__rotational": "1"}
        return self.disk(name, "devices/pci0000:00/0000:00:14.0/usb2/2-1/host6", "6:0:0:0", **(texts | files))

    def virtio(self, name: str = "vda", **files: str) -> Path:
        """Add the disk of a virtual machine."""
        return self.disk(name, "devices/pci0000:00/0000:00:04.0", "virtio1", **({"serial": "asked"} | files))

    def gpu(self, address: str, texts: Mapping[str, str] = {}, *, driver: str = "nvidia", config: bytes = GPU_CONFIG) -> Path:
        """Add a GPU to the PCI bus; `texts` are files of its own."""
        usual = {
            "vendor": "0x10de",
            "device": "0x2204",
            "class": "0x030000",
            "current_link_speed": "2.5 GT/s PCIe",
            "max_link_speed": "16.0 GT/s PCIe",
            "current_link_width": "8",
            "max_link_width": "16",
            "aer_dev_correctable": "RxErr 1\nBadTLP 4\nTOTAL_ERR_COR 5",
            "aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 0",
            "aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL 1",
        }
        folder = self.files(self.sys / "bus/pci/devices" / address, **(usual | dict(texts)))
        self.write(folder / "config", config)
        if driver:
            self.link(folder / "driver", self.sys / "bus/pci/drivers" / driver)
        return folder

    def hwmon(self, number: int, name: str, device: str = "", **files: str) -> Path:
        """Add a chip; `device` is its place in the tree of devices."""
        folder = self.files(self.sys / "class/hwmon" / f"hwmon{number}", name=name, **files)
        if device:
            self.link(folder / "device", self.sys / device)
        return folder

    def mounts(self, *lines: str, process: str = "1", prefix: str = "") -> None:
        """Write a mountinfo: `major:minor path fstype origin options superblock` each, what is left out is usual."""
        rows = []
        for number, line in enumerate(lines, 20):
            words = line.split()
            device, path, fstype, origin, options, superblock = words + ["/dev/x", "rw,relatime", "rw"][len(words) - 3 :]
            rows.append(f"{number} 1 {device} / {prefix}{path} {options} shared:1 - {fstype} {origin} {superblock}\n")
        self.write(self.proc / process / "mountinfo", "".join(rows))
