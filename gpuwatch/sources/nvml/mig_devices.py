"""Finding the MIG devices of a GPU, and what each of them says: who it is, and its memory.

A MIG handle may come to mean another device (nvml.md 1.1), so none is kept from one look to the next; a UUID stays with its
device for as long as that exists.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gpuwatch.catalogue.mig import MIG_MEMORY_SIZE, MIG_MEMORY_USED
from gpuwatch.sources.nvml import bindings, verdicts
from gpuwatch.sources.nvml.amounts import Amounts
from gpuwatch.sources.nvml.answers import memory_amount
from gpuwatch.sources.nvml.bounds import plausible
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, Library

MOST = 64  # MIG devices of one GPU; seven today
TRIES = 2  # looks at one index: what vanishes between two calls is looked for once more
VANISHED = frozenset((verdicts.INVALID_ARGUMENT, verdicts.NOT_FOUND, verdicts.NOT_READY))  # failure-modes.md 5.16
PROFILE = re.compile(r"\bMIG (\S+)$")  # "NVIDIA A100-SXM4-40GB MIG 3g.20gb"


class Device(msgspec.Struct, frozen=True):
    """One MIG device: a compute instance within a GPU instance."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    profile: str  # "" where its name does not say it

    def __str__(self) -> str:
        return f"{self.profile or 'instance'} {self.gpu_instance}/{self.compute_instance}"


Found = Mapping[int, tuple[Device, Amounts]]  # by NVML's index of MIG devices, which has gaps


def find(library: Library, handle: Any, known: Mapping[int, Device]) -> Found:
    """Return the devices there are now; raises GpuGoneError and DriverGoneError.

    `known` are those of the last look: of one that does not answer for a reason of its own it is not said that it is gone.
    """
    found: dict[int, tuple[Device, Amounts]] = {}
    read: dict[int, Amounts] = {}
    for index in range(count(library, handle, known)):
        one = at(library, handle, index, known.get(index), read)
        if one is not None:
            found[index] = one
    return found


def count(library: Library, handle: Any, known: Mapping[int, Device]) -> int:
    """Return how many indexes are to be asked."""
    try:
        return min(MOST, int(library.named("nvmlDeviceGetMaxMigDeviceCount", handle)))
    except CallError as error:
        if type(error) is not CallError:
            raise
        return max(known, default=-1) + 1  # those that were there may still be


def at(
    library: Library, handle: Any, index: int, before: Device | None, read: dict[int, Amounts]
) -> tuple[Device, Amounts] | None:
    """Return the device at this index, None for a gap; `read` is the memory of GPU instances, which is read once for each."""
    found: tuple[Device, Amounts] | None = None
    for _ in range(TRIES):
        found = None
        try:
            part = library.named("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        except CallError as error:
            if type(error) is not CallError:
                raise
            return None if error.code in VANISHED or before is None else (before, failed(error.code))
        try:
            device = identify(library, part, before)
        except PartError as error:
            if error.code not in VANISHED:
                return None if before is None else (before, failed(error.code))
            continue
        try:
            instance = device.gpu_instance
            if instance not in read:
                read[instance] = memory(library, part)
            return device, read[instance]
        except PartError as error:
            found = device, failed(error.code)
            if error.code not in VANISHED:
                break
    return found


class PartError(Exception):
    """A MIG device answers with an error. Whether the GPU itself is lost is for its own calls to say."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML answers {code}")
        self.code = code


def ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call with the handle of a MIG device; raises PartError and DriverGoneError."""
    try:
        return call(*arguments)
    except DriverGoneError:
        raise
    except CallError as error:
        raise PartError(error.code) from None


def identify(library: Library, part: Any, before: Device | None) -> Device:
    """Ask a device who it is; all but the UUID only where that is another than before."""
    uuid = str(ask(library.call, bindings.text, library.find("nvmlDeviceGetUUID"), part))
    if before is not None and before.uuid == uuid:
        return before
    profile = PROFILE.search(str(ask(library.text, "nvmlDeviceGetName", part)))
    return Device(
        uuid=uuid,
        gpu_instance=int(ask(library.named, "nvmlDeviceGetGpuInstanceId", part)),
        compute_instance=int(ask(library.named, "nvmlDeviceGetComputeInstanceId", part)),
        profile=profile[1] if profile else "",
    )


def memory(library: Library, part: Any) -> Amounts:
    """Read the memory of a device's GPU instance. Nothing of it is reserved, so that the call of all drivers tells it right."""
    answer = ask(library.named, "nvmlDeviceGetMemoryInfo", part)
    why = memory_amount(answer)
    if why is not None:
        return dict.fromkeys((MIG_MEMORY_USED, MIG_MEMORY_SIZE), why)
    amounts = {MIG_MEMORY_USED: float(answer.used), MIG_MEMORY_SIZE: float(answer.total)}
    return {metric: plausible(metric, value) for metric, value in amounts.items()}


def failed(code: int) -> Amounts:
    """Return why there is no memory to tell of."""
    return dict.fromkeys((MIG_MEMORY_USED, MIG_MEMORY_SIZE), verdicts.absence(code))
