"""The events that the fake NVML tells, and the MIG devices of its cards (nvml_events.h, nvml_mig.h): a part of FakeNvml."""

import ctypes
import platform

from tests.fakes.nvml_layout import EVENTS, MIG_DEVICES, State

FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]  # number of the system call
FUTEX_WAKE = 1
EVERYBODY = 0x7FFFFFFF
NO_INSTANCE = 0xFFFFFFFF
XID = 0x8
SHARES = ("utilization", "memory_activity", "encoder", "decoder", "jpeg", "ofa")  # what a divided card has not


class FakeParts:
    """Events and MIG of a fake."""

    state: State

    def set(self, gpu: int, **values: int | None) -> None:
        """Set values of a card."""
        raise NotImplementedError

    def xid(self, gpu: int, code: int, times: int = 1) -> None:
        """Have the driver report an Xid, so many times in a row."""
        self.event(gpu, XID, code, times=times)

    def event(self, gpu: int, kinds: int, data: int = 0, instance: int = NO_INSTANCE, times: int = 1) -> None:
        """Have something happen on a card, and wake all who wait for it. Who registers later does not get it."""
        head = self.state.event_head
        place = self.state.events[head % EVENTS]
        place.card, place.type, place.data, place.times = gpu, kinds, data, times
        place.gpu_instance, place.compute_instance = instance, NO_INSTANCE
        self.state.event_head = head + 1
        address = ctypes.addressof(self.state) + State.event_head.offset
        ctypes.CDLL(None, use_errno=True).syscall(FUTEX, ctypes.c_void_p(address), FUTEX_WAKE, EVERYBODY, None, None, 0)

    @property
    def event_sets(self) -> int:
        """Event sets that were created and not freed, of all processes there have been."""
        return int(self.state.event_sets)

    def divide(self, gpu: int, *, on: bool = True, pending: bool | None = None) -> None:
        """Switch MIG on or off; a change that waits for a reset is `pending`. Switching it off destroys all instances."""
        self.set(gpu, mig_mode=int(on), mig_pending=int(on if pending is None else pending))
        self.set(gpu, **dict.fromkeys(SHARES, None if on else 0))
        if not on:
            for index in range(MIG_DEVICES):
                self.state.cards[gpu].mig[index].present = 0

    def create(self, gpu: int, instance: int, profile: str, size: int, *, compute: int = 0, used: int = 0) -> str:
        """Create a GPU instance with a compute instance, at the first free MIG index; return its UUID."""
        for index in range(MIG_DEVICES):
            device = self.state.cards[gpu].mig[index]
            if not device.present:
                self.state.total_created += 1
                uuid = f"MIG-{gpu:08x}-0000-5000-8000-{self.state.total_created:012x}"
                device.gpu_instance, device.compute_instance, device.total, device.used = instance, compute, size, used
                device.uuid, device.name = uuid.encode(), f"NVIDIA A100-SXM4-40GB MIG {profile}".encode()
                device.present = 1
                return uuid
        raise AssertionError(f"card {gpu} has no MIG index left")

    def use(self, gpu: int, instance: int, used: int) -> None:
        """Have memory of a GPU instance in use."""
        for device in self.state.cards[gpu].mig:
            if device.present and device.gpu_instance == instance:
                device.used = used

    def destroy(self, gpu: int, instance: int) -> None:
        """Destroy a GPU instance with all on it."""
        for device in self.state.cards[gpu].mig:
            if device.gpu_instance == instance:
                device.present = 0
