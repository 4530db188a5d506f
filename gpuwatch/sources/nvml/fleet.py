"""All GPUs by key: which index each has now, which can be opened, and which are gone.

Handles are opened on threads of their own, since the first call to a GPU is the slow one (1 to 3 s without persistence
mode) and may hang. nvmlDeviceGetHandleByUUID is not used: it attaches other GPUs, and fails where any of them is lost.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.pci import Address, spelled
from gpuwatch.model.reading import Fault
from gpuwatch.sources.nvml import census, verdicts
from gpuwatch.sources.nvml.gpu import Gpu, Standing
from gpuwatch.sources.nvml.identity import Identity, identify, pci_address
from gpuwatch.sources.nvml.lane import Lane
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, Library

LAST_RETRY = 300.0  # seconds between attempts at a GPU that cannot be opened; the first comes with the next normal round

log = logging.getLogger(__name__)


class Opening:
    """One index that is being opened, on a lane that becomes the lane of the GPU found there."""

    def __init__(self, index: int, lane: Lane, life: int) -> None:
        self.index = index
        self.lane = lane
        self.life = life  # which initialisation of NVML its handle belongs to
        self.gpu: Gpu | None = None
        self.address: Address | None = None  # where the GPU says that it sits, once it has
        self.overdue = False


class Fleet:
    """The GPUs. `enumerate` is called by the session; the openings report from their lanes."""

    def __init__(
        self, library: Library, config: Config, clock: Clock, driver_gone: Callable[[int, int], None], standing: Standing
    ) -> None:
        self._library = library
        self._config = config
        self._clock = clock
        self._driver_gone = driver_gone
        self._standing = standing
        self._lock = threading.RLock()
        self._gpus: dict[str, Gpu] = {}
        self._openings: dict[int, Opening] = {}
        self._failed: dict[int, Fault] = {}
        self._said: dict[int, Address] = {}  # where GPUs sit that cannot be opened, by their own word
        self._retry: dict[int, tuple[float, float]] = {}  # index: when it may be tried again, and the wait before that
        self._number = 0
        self._life = 0
        self._count = -1  # not counted yet
        self._threadless: set[int] = set()  # indexes for which there was no thread: until there is, nothing is known of the list
        self._nameless: set[int] = set()
        self._twins: dict[str, str] = {}  # where cards sit that give the UUID of another one, and which

    def gpus(self) -> list[Gpu]:
        """Return all GPUs that are or have been there, by index."""
        with self._lock:
            return sorted(self._gpus.values(), key=lambda gpu: gpu.index)

    def openings(self) -> list[Opening]:
        """Return the openings that have not come back."""
        with self._lock:
            return list(self._openings.values())

    @property
    def count(self) -> int:
        """The number of GPUs at the last enumeration."""
        return self._count

    @property
    def life(self) -> int:
        """The number of the present initialisation of NVML."""
        return self._life

    def let_go(self) -> None:
        """Give up every handle, since NVML itself is gone; the next enumeration opens all anew."""
        with self._lock:
            for gpu in self._gpus.values():
                gpu.let_go()
            self._count = -1
            self._threadless.clear()
            self._life += 1
            self._retry.clear()

    def enumerate(self, count: int) -> None:
        """Open what is not open: every index after a change of the count, else those whose time to be tried again has come."""
        with self._lock:
            everything = count != self._count
            self._count = count
            if everything:
                self._number += 1
                self._failed.clear()
                self._said.clear()
                self._retry.clear()
                for opening in self._openings.values():
                    opening.overdue = False  # one that still hangs is this enumeration's too, and is said to hang anew
            lacking, self._threadless = self._threadless, set()
            alive = {gpu.index for gpu in self._gpus.values() if gpu.handle is not None}
            for index in range(count):
                is_wanted = everything or index in lacking or (index not in alive and self._due(index))
                if is_wanted and index not in self._openings:
                    self._start(index)
            if everything and not self._openings:
                self._conclude()

    def look_for_overdue(self, deadline: float) -> None:
        """Stop waiting for openings that do not come back; they may still do so later."""
        now = self._clock.mono()
        with self._lock:
            late = [opening for opening in self._openings.values() if not opening.overdue]
            late = [opening for opening in late if opening.lane.running(now) > deadline]
            for opening in late:
                opening.overdue = True
                self._failed[opening.index] = verdicts.HUNG
            if late and all(opening.overdue for opening in self._openings.values()):
                self._conclude()

    def _due(self, index: int) -> bool:
        return self._retry.get(index, (0.0, 0.0))[0] <= self._clock.mono()

    def _start(self, index: int) -> None:
        lane = Lane(f"nvml-gpu-{index}", self._clock)
        opening = Opening(index, lane, self._life)
        if lane.submit(lambda: self._open(opening)):
            self._openings[index] = opening
        else:
            self._threadless.add(index)

    def _open(self, opening: Opening) -> None:
        """Open one index; runs on the opening's lane, which logs what is a bug: that costs this GPU, as any error does."""
        code = verdicts.UNKNOWN
        found: tuple[Identity, Any] | None = None
        try:
            handle = self._library.named("nvmlDeviceGetHandleByIndex", opening.index)
            opening.address = pci_address(self._library, handle)  # first: a GPU that then says no more can be named by it
            found = identify(self._library, handle, opening.index, self._config, opening.address), handle
        except CallError as error:
            code = error.code
            if isinstance(error, DriverGoneError):
                self._driver_gone(code, opening.life)
        finally:
            self._came_back(opening, found, code)

    def _came_back(self, opening: Opening, found: tuple[Identity, Any] | None, code: int) -> None:
        """Take what an opening gave: who the GPU is and its handle, or the code that it ended with.

        What was begun before NVML was gone says nothing any more: where its index is counted again, it is opened anew.
        """
        with self._lock:
            del self._openings[opening.index]
            if opening.life != self._life:
                if opening.index < self._count:
                    self._start(opening.index)
            elif found is not None:
                self._opened(opening, *found)
            else:
                self._refuse(opening, verdicts.not_opened(code, self._library.describe(code)))
            if opening.gpu is None or opening.gpu.lane is not opening.lane:
                opening.lane.close()
            if all(other.overdue for other in self._openings.values()):
                self._conclude()

    def _refuse(self, opening: Opening, fault: Fault) -> None:
        """Note that an index cannot be opened, and when to try again."""
        self._failed[opening.index] = fault
        if opening.address is not None:
            self._said[opening.index] = opening.address
        before = self._retry.get(opening.index, (0.0, 0.0))[1]
        wait = min(LAST_RETRY, max(float(self._config.sources.nvml.every_normal), 2 * before))
        self._retry[opening.index] = (self._clock.mono() + wait, wait)

    def _opened(self, opening: Opening, identity: Identity, handle: Any) -> None:
        """Find the GPU that this identity belongs to, or meet a new one."""
        index = opening.index
        self._failed.pop(index, None)
        self._said.pop(index, None)
        self._retry.pop(index, None)
        identity = self._told_apart(identity)
        gpu = self._met(identity, index)
        self._drop_place_holder(gpu, identity)
        if gpu.handle is None:
            if gpu.lane is not None:
                gpu.lane.close()
            gpu.open(identity, index, handle, opening.lane)
        else:
            gpu.move(identity, index)
        gpu.listed = self._number
        opening.gpu = gpu

    def _told_apart(self, identity: Identity) -> Identity:
        """Return another name for one of two cards that give the same UUID: that of the higher PCI address is its address.

        So each has the same name whichever is opened first, in the next process too.
        """
        if identity.address is None:
            return identity
        place, gpu = spelled(identity.address), self._gpus.get(identity.key)
        other = None if gpu is None or gpu.handle is None or gpu.identity.address is None else spelled(gpu.identity.address)
        if gpu is not None and other is not None and other != place:
            self._twins[max(place, other)] = identity.key
            if other > place:
                del self._gpus[identity.key]
                gpu.move(msgspec.structs.replace(gpu.identity, key=other), gpu.index)
                self._gpus[other] = gpu
        return msgspec.structs.replace(identity, key=place) if self._twins.get(place) == identity.key else identity

    def _drop_place_holder(self, gpu: Gpu, identity: Identity) -> None:
        """Forget what stood for a GPU of this address while its UUID was not known."""
        address = "" if identity.address is None else spelled(identity.address)
        holder = self._gpus.get(address)
        if holder is not None and holder is not gpu and holder.handle is None:
            del self._gpus[address]

    def _conclude(self) -> None:
        """Give each index that cannot be opened a name and its fault; what no index led to is gone. Without NVML none is."""
        if self._count < 0 or self._threadless:
            return
        for index, fault in sorted(self._failed.items()):
            gpu = self._known(index) or self._place_holder(index)
            if gpu is not None:
                gpu.lose(fault)
                gpu.listed = self._number
        for gpu in self._gpus.values():
            if gpu.listed < self._number:
                gpu.lose(verdicts.unlisted(self._count))

    def _known(self, index: int) -> Gpu | None:
        """Return the GPU that had this index before, where no other index has led to it."""
        for gpu in self._gpus.values():
            if gpu.index == index and (gpu.handle is None or gpu.listed < self._number):
                return gpu
        return None

    def _place_holder(self, index: int) -> Gpu | None:
        """Return a GPU that was never opened, named by the driver's own list or the PCI bus."""
        nameless = [other for other in sorted(self._failed) if self._known(other) is None]
        listed = {gpu.index: gpu.identity.address for gpu in self._gpus.values() if gpu.listed == self._number}
        places = {other: address for other, address in (listed | self._said).items() if address is not None}
        identity = census.nameless(self._config, places, nameless, self._count).get(index)
        if identity is None:
            if index not in self._nameless:
                self._nameless.add(index)
                log.warning("GPU %d cannot be opened, and nothing says which card it is: %s", index, self._failed[index].words)
            return None
        return self._met(identity, index)

    def _met(self, identity: Identity, index: int) -> Gpu:
        """Return the GPU of this name, a new one where it is met for the first time."""
        gpu = self._gpus.get(identity.key)
        if gpu is None:
            before = self._standing.get(identity.key)
            gpu = self._gpus[identity.key] = Gpu(self._library, self._clock, identity, index, self._config, before=before)
        return gpu
