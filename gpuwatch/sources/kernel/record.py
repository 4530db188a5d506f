"""One message of the log, and what a family of patterns found in one."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from gpuwatch.model.alert import Severity

NO_FACTS: Mapping[str, str] = MappingProxyType({})


class Dating(Enum):
    """What the times of a log count from."""

    WALL = "wall"  # 1970
    BOOT = "boot"  # a boot of which nothing is known
    NONE = "none"  # the log says no time: `at` is that of reading it


class Record(NamedTuple):
    """One message, perhaps of several lines. A tuple, since a log of an ordinary day makes a hundred thousand of them."""

    at: float  # on the clock that `dating` says
    text: str
    is_kernel: bool  # False: a program wrote it, and it may say whatever it likes
    seq: int | None = None  # of /dev/kmsg; the last one, where several records make the message
    first: int | None = None  # the first one, where several do
    program: str = ""  # who wrote it, where it is not the kernel and the form says so
    times: int = 1  # "message repeated 9 times"
    stamp: float = 0.0  # seconds on the log's own clock: what belongs to one second is folded
    dating: Dating = Dating.WALL


class Found(NamedTuple):
    """What a message says: an Event but for time, source and mark."""

    kind: str
    severity: Severity
    key: str = ""
    code: int | None = None
    facts: Mapping[str, str] = NO_FACTS
    words: str = ""  # "": the message itself
    times: int = 1  # of how many this tells


class Known(msgspec.Struct):
    """What earlier lines of a log say about later ones. Bounded: a host has few GPUs, a forged log may name many."""

    uuids: dict[str, str] = {}  # GPU address -> UUID
    gpus: set[str] = set()  # addresses that the kernel found to be NVIDIA's
    troubled: dict[str, str] = {}  # kind of event of disks -> what it was last told of
    is_dump: bool = False  # the log is what a crash left behind
    is_private: bool = False  # [privacy]: no user is named, by control groups neither

    def names(self, address: str, uuid: str) -> None:
        """Note the UUID of a GPU."""
        if len(self.uuids) < LIMIT:
            self.uuids[address] = uuid

    def finds(self, address: str) -> None:
        """Note an NVIDIA device."""
        if len(self.gpus) < LIMIT:
            self.gpus.add(address)


LIMIT = 256
