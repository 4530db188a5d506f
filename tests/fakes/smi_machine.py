"""A machine that nvidia-smi once looked at, as a fake NVML that would have made it print the same."""

import re
from pathlib import Path

from tests.fakes.nvml import FakeNvml, Process
from tests.fakes.nvml_layout import VALUES
from tests.fakes.smi_capture import Capture, Seen
from tests.fakes.smi_table import LOST, MIB, REASONS, ROWS, STATES, read, reasons

# The fake's libraries differ at these drivers; one between two is like the older one.
PROFILES = (418, 510, 515, 525, 535, 550, 570, 580, 590, 595)
ARCHITECTURES = {
    "Kepler": 2,
    "Maxwell": 3,
    "Pascal": 4,
    "Volta": 5,
    "Turing": 6,
    "Ampere": 7,
    "Ada Lovelace": 8,
    "Hopper": 9,
    "Blackwell": 10,
}
ALL_ONES = -1  # NVML_VALUE_NOT_AVAILABLE
HEALTH = {  # bits of the health mask: 1 it is so, 2 it is not
    "fabric/health/bandwidth": (0, {"Degraded": 1, "Full": 2}),
    "fabric/health/route_recovery_in_progress": (2, {"True": 1, "False": 2}),
    "fabric/health/route_unhealthy": (4, {"True": 1, "False": 2}),
    "fabric/health/access_timeout_recovery": (6, {"True": 1, "False": 2}),
    "fabric/health/incorrect_configuration": (8, {"None": 1}),
}
SUMMARY = {"Healthy": 1, "Unhealthy": 2, "Limited Capacity": 3}
# What a text in place of a number was the answer of: a function, or a field.
ASKED: dict[str, tuple[str | int, ...]] = {
    "fb_memory_usage/used": ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"),
    "utilization/gpu_util": ("nvmlDeviceGetUtilizationRates",),
    "temperature/gpu_temp": ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"),
    "temperature/gpu_temp_tlimit": ("nvmlDeviceGetMarginTemperature",),
    "gpu_power_readings/instant_power_draw": ("nvmlDeviceGetPowerUsage", 186),
    "gpu_power_readings/average_power_draw": (185,),
    "clocks/sm_clock": ("nvmlDeviceGetClockInfo",),
    "remapped_rows": ("nvmlDeviceGetRemappedRows", "nvmlDeviceGetRowRemapperHistogram", 142, 143, 144, 145),
    "fabric/state": ("nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetGpuFabricInfoV"),
    "fan_speed": ("nvmlDeviceGetFanSpeed_v2",),
    "power_readings/default_power_limit": ("nvmlDeviceGetPowerManagementDefaultLimit", 189),
}


def major(capture: Capture, path: Path) -> int:
    """Return the major version of the driver; a fragment has it in its name alone."""
    named = re.search(r"drv(\d+)", path.name)
    return int(capture.driver.partition(".")[0] or (named[1] if named else 580))


def machine(tmp_path: Path, capture: Capture, path: Path) -> FakeNvml:
    """Return the machine of a capture."""
    version = major(capture, path)
    profile = max(known for known in PROFILES if known <= max(version, PROFILES[0]))
    fake = FakeNvml(tmp_path, gpus=len(capture.cards), driver=capture.driver or f"{version}.0", profile=str(profile))
    for number, card in enumerate(capture.cards):
        fill(fake, number, card)
    fake.load(capture.driver or f"{version}.0")  # once more: with these cards
    return fake


def fill(fake: FakeNvml, number: int, card: Seen) -> None:
    """Give a card of the fake what one of a capture has, and nothing else."""
    values: dict[str, int | None] = dict.fromkeys(VALUES, None)
    fake.no_memory_errors(number, ())
    for row in (*ROWS, *STATES.values()):
        printed = row.printed(card)
        if printed is not None and row.value.startswith("@"):
            fake.memory_errors(number, **{row.value[1:]: int(printed)})
        elif printed is not None:
            values[row.value] = round(printed * row.raw)
    domain, bus, device = address(card)
    values |= {"minor": minor(card, number), "domain": domain, "bus": bus, "device": device, "processes": 0, "gpm": 0}
    values["architecture"] = ARCHITECTURES.get(card.first("product_architecture", "Product Architecture"))
    values["mig_max"] = 7 if values["mig_mode"] is not None else None
    active = reasons(card)
    if active:
        values["reasons"] = sum(REASONS[name][0] for name, on in active.items() if on)
        values["reasons_supported"] = sum(REASONS[name][0] for name in active)
    if values["memory_total"] is not None:
        values |= {name: ALL_ONES for name in ("memory_used", "memory_free") if values[name] is None}
    fan = read(card.first("fan_speed", "Fan Speed"), {})
    has_fan = fan is not None or card.first("fan_speed") in LOST
    values |= {"fans": 1 if has_fan else None, "fan_speed": None if fan is None else int(fan)}
    fabric(values, card)
    fake.set(number, **values)
    if values["memory_reserved"] is None:  # only a library that does not tell it apart prints N/A
        fake.answer("nvmlDeviceGetMemoryInfo_v2", 3, gpu=number)
    texts(fake, number, card)
    for text, asked in ((card.first(path), asked) for path, asked in ASKED.items()):
        for call in asked if text in LOST else ():
            if isinstance(call, int):
                fake.field(number, call, LOST[text])
            else:
                fake.answer(call, LOST[text], gpu=number)
    divide(fake, number, card)
    held = [Process(pid, memory(used)) for pid, used in card.processes]
    fake.processes(number, held[:64])


def texts(fake: FakeNvml, number: int, card: Seen) -> None:
    """Give a card its name and numbers."""
    said = {
        "name": card.first("product_name", "Product Name"),
        "uuid": card.first("uuid", "GPU UUID"),
        "serial": card.first("serial", "Serial Number"),
        "part_number": card.first("board_part_number", "Board Part Number"),
        "vbios": card.first("vbios_version", "VBIOS Version"),
        "inforom": card.first("inforom_version/img_version", "Inforom Version/Image Version"),
        "bus_id": "{:08X}:{:02X}:{:02X}.0".format(*address(card)),
        "bus_id_legacy": "{:04X}:{:02X}:{:02X}.0".format(*address(card)),
    }
    fake.text(number, **{name: b"" if text == "N/A" else text.encode() for name, text in said.items()})


def divide(fake: FakeNvml, number: int, card: Seen) -> None:
    """Give a card its MIG instances; what it does not tell then is as the capture says."""
    for part in card.parts:
        size, used = (memory(part.facts[f"fb_memory_usage/{name}"]) for name in ("total", "used"))
        slices = int(part.facts["device_attributes/shared/multiprocessor_count"]) // 14
        fake.create(number, part.gpu_instance, f"{slices}g", size, compute=part.compute_instance, used=used)


def fabric(values: dict[str, int | None], card: Seen) -> None:
    """Add what a card says of its fabric."""
    if values["fabric_state"] is None:
        return
    mask = sum(known.get(card.first(path), 0) << bit for path, (bit, known) in HEALTH.items())
    summary = SUMMARY.get(card.first("fabric/health/summary"), 0)
    values |= {"fabric_status": int(card.first("fabric/status") != "Success"), "fabric_mask": mask, "fabric_summary": summary}


def memory(text: str) -> int:
    """Return an amount in bytes, -1 where it was not available."""
    found = read(text, {})
    return -1 if found is None else int(found) * MIB


def minor(card: Seen, number: int) -> int:
    """Return the number of the card's device node."""
    text = card.first("minor_number", "Minor Number")
    return int(text) if text.isdigit() else number


def address(card: Seen) -> tuple[int, int, int]:
    """Return domain, bus and device; old captures have four digits of the domain."""
    domain, bus, rest = card.bus_id.split(":")
    return int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16)
