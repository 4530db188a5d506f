"""How a number that nvidia-smi prints is given to the fake NVML, and what gpuwatch must make of it: one row each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.fakes.smi_capture import Seen

MIB = 1 << 20
WORDS = {"Enabled": 1, "Disabled": 0, "Yes": 1, "No": 0, "Active": 1, "Not Active": 0}
ACTIONS = {"None": 0, "Reset": 1, "Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4}
MODES = {"Default": 0, "Exclusive_Thread": 1, "Prohibited": 2, "Exclusive_Process": 3}
FABRIC = {"Not Started": 1, "In Progress": 2, "Completed": 3}
NUMBER = re.compile(r"P?(-?\d+(?:\.\d+)?)(?: ?(?:%|C|W|MHz|MiB|KB/s|x|us|bank\(s\)))?$")
LOST = {"GPU is lost": 15, "[GPU requires reset]": 16, "[Unknown Error]": 999, "Unknown Error": 999, "ERR!": 999}


@dataclass(frozen=True)
class Row:
    """One number: the fake's value and the factor to it, the metric and the factor to it, and where captures have it.

    Paths joined by `+` are summed. `since` is the driver whose library has a way to ask.
    """

    value: str
    raw: float
    metric: str
    unit: float
    paths: tuple[str, ...]
    since: int = 0
    words: Mapping[str, int] = field(default_factory=dict)

    def printed(self, card: Seen) -> float | None:
        """Return the number as it was printed, None where there is none."""
        for path in self.paths:
            parts = path.split("+")
            if all(part in card.facts for part in parts):
                numbers = [found for part in parts if (found := read(card.facts[part], self.words)) is not None]
                if numbers:
                    return sum(numbers)
        return None


def read(text: str, words: Mapping[str, int]) -> float | None:
    """Return a printed number; N/A, errors and everything else that is none give None."""
    if text in words or text in WORDS:
        return float({**WORDS, **words}[text])
    found = NUMBER.match(text)
    return float(found[1]) if found else None


def row(
    value: str, metric: str, *paths: str, raw: float = 1.0, unit: float = 1.0, since: int = 0, **more: Mapping[str, int]
) -> Row:
    """Return a row."""
    return Row(value, raw, metric, unit, paths, since, more.get("words", {}))


def memory(value: str, metric: str, xml: str, text: str) -> Row:
    """Return a row of an amount in MiB."""
    return row(value, metric, xml, text, raw=MIB, unit=MIB)


def watts(value: str, metric: str, *paths: str) -> Row:
    """Return a row of a power."""
    return row(value, metric, *paths, raw=1000.0)


def ecc() -> list[Row]:
    """Return the rows of ECC errors by place and in all."""
    rows = []
    for lifetime in ("volatile", "aggregate"):
        xml, text = f"ecc_errors/{lifetime}/", f"ECC Errors/{lifetime.title()}/"
        corrected = f"{xml}sram_correctable", f"{text}SRAM Correctable"
        parts = (
            "{0}sram_uncorrectable_parity+{0}sram_uncorrectable_secded",
            "{0}SRAM Uncorrectable Parity+{0}SRAM Uncorrectable SEC-DED",
        )
        uncorrected = f"{xml}sram_uncorrectable", parts[0].format(xml), f"{text}SRAM Uncorrectable", parts[1].format(text)
        dram = {
            "corrected": (f"{xml}dram_correctable", f"{text}DRAM Correctable"),
            "uncorrected": (f"{xml}dram_uncorrectable", f"{text}DRAM Uncorrectable"),
        }
        sram = {"corrected": corrected, "uncorrected": uncorrected}
        for kind in ("corrected", "uncorrected"):
            for place, paths in (("dram", dram[kind]), ("sram", sram[kind])):
                name = f"{kind}_{lifetime}_{place}"
                rows.append(row(f"@{name}", f"ecc_location_errors_total_{name}", *paths))
            sums = [f"{one}+{dram[kind]['ECC' in one]}" for one in sram[kind]]
            rows.append(row(f"ecc_{kind}_{lifetime}", f"ecc_errors_total_{kind}_{lifetime}", *sums[::-1]))
    return rows


EVENTS = {"sw_power_cap": "power", "sync_boost": "sync", "sw_therm_slowdown": "sw_thermal", "hw_therm_slowdown": "hw_thermal"}
EVENTS["hw_power_brake"] = "hw_brake"
EVENT_METRICS = {"sw_therm_slowdown": "sw_thermal", "hw_therm_slowdown": "hw_thermal"}
EVENT_WORDS = {
    "sw_power_cap": "SW Power Capping",
    "sync_boost": "Sync Boost",
    "sw_therm_slowdown": "SW Thermal Slowdown",
    "hw_therm_slowdown": "HW Thermal Slowdown",
    "hw_power_brake": "HW Power Braking",
}
POWER, GPU_POWER = "Power Readings", "GPU Power Readings"
CEILING = f"{GPU_POWER}/GPU Ceiling Power Limit"  # driver 610 and later
ROWS: tuple[Row, ...] = (
    row("utilization", "utilization_ratio", "utilization/gpu_util", "Utilization/Gpu", "Utilization/GPU", unit=0.01),
    row("memory_activity", "memory_activity_ratio", "utilization/memory_util", "Utilization/Memory", unit=0.01),
    *(
        row(name, f"engine_utilization_ratio_{name}", f"utilization/{name}_util", f"Utilization/{text}", unit=0.01, since=since)
        for name, text, since in (
            ("encoder", "Encoder", 0),
            ("decoder", "Decoder", 0),
            ("jpeg", "JPEG", 535),
            ("ofa", "OFA", 535),
        )
    ),
    memory("memory_total", "memory_size_bytes", "fb_memory_usage/total", "FB Memory Usage/Total"),
    memory("memory_reserved", "memory_reserved_bytes", "fb_memory_usage/reserved", "FB Memory Usage/Reserved"),
    memory("memory_used", "memory_used_bytes", "fb_memory_usage/used", "FB Memory Usage/Used"),
    memory("memory_free", "memory_free_bytes", "fb_memory_usage/free", "FB Memory Usage/Free"),
    memory("bar1_total", "bar1_size_bytes", "bar1_memory_usage/total", "BAR1 Memory Usage/Total"),
    memory("bar1_used", "bar1_used_bytes", "bar1_memory_usage/used", "BAR1 Memory Usage/Used"),
    row("temperature", "temperature_celsius_core", "temperature/gpu_temp", "Temperature/GPU Current Temp"),
    row("temperature_memory", "temperature_celsius_memory", "temperature/memory_temp", "Temperature/Memory Current Temp"),
    row(
        "margin",
        "temperature_margin_celsius",
        "temperature/gpu_temp_tlimit",
        "Temperature/GPU T.Limit Temp",
        "Temperature/GPU Current T.Limit Temp",
        since=570,
    ),
    *(
        row(f"limit_{value}", f"temperature_limit_celsius_{metric}", f"temperature/{xml}_threshold", f"Temperature/{text} Temp")
        for value, metric, xml, text in (
            ("shutdown", "shutdown", "gpu_temp_max", "GPU Shutdown"),
            ("slowdown", "slowdown", "gpu_temp_slow", "GPU Slowdown"),
            ("gpu", "gpu_max", "gpu_temp_max_gpu", "GPU Max Operating"),
            ("memory", "mem_max", "gpu_temp_max_mem", "Memory Max Operating"),
        )
    ),
    *(
        row(
            f"offset_{value}",
            f"temperature_tlimit_offset_celsius_{metric}",
            f"temperature/{xml}_tlimit_threshold",
            f"Temperature/{text} T.Limit Temp",
            since=535,
        )
        for value, metric, xml, text in (
            ("shutdown", "shutdown", "gpu_temp_max", "GPU Shutdown"),
            ("slowdown", "slowdown", "gpu_temp_slow", "GPU Slowdown"),
            ("gpu", "gpu_max", "gpu_temp_max_gpu", "GPU Max Operating"),
            ("memory", "mem_max", "gpu_temp_max_mem", "Memory Max Operating"),
        )
    ),
    watts(
        "power",
        "power_watts",
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
        f"{GPU_POWER}/Instantaneous Power Draw",
        f"{POWER}/Power Draw",
    ),
    watts("power_average", "power_average_watts", "gpu_power_readings/average_power_draw", f"{GPU_POWER}/Average Power Draw"),
    watts(
        "power_enforced",
        "power_limit_watts_enforced",
        "gpu_power_readings/current_power_limit",
        "power_readings/enforced_power_limit",
        f"{GPU_POWER}/Current Power Limit",
        f"{CEILING}/Current Power Limit",
        f"{POWER}/Enforced Power Limit",
    ),
    watts(
        "power_requested",
        "power_limit_watts_requested",
        "gpu_power_readings/requested_power_limit",
        "power_readings/power_limit",
        f"{GPU_POWER}/Requested Power Limit",
        f"{CEILING}/Requested Power Limit",
        f"{POWER}/Power Limit",
    ),
    *(
        watts(
            f"power_{name}",
            f"power_limit_watts_{name}",
            f"gpu_power_readings/{name}_power_limit",
            f"power_readings/{name}_power_limit",
            f"{GPU_POWER}/{name.title()} Power Limit",
            f"{CEILING}/{name.title()} Power Limit",
            f"{POWER}/{name.title()} Power Limit",
        )
        for name in ("default", "min", "max")
    ),
    *(
        row(f"{value}_{domain}", f"{metric}_{domain}", f"{xml}/{short}_clock", f"{text}/{word}", unit=1e6)
        for value, metric, xml, text in (
            ("clock", "clock_hertz", "clocks", "Clocks"),
            ("clock_max", "clock_max_hertz", "max_clocks", "Max Clocks"),
        )
        for domain, short, word in (
            ("graphics", "graphics", "Graphics"),
            ("sm", "sm", "SM"),
            ("memory", "mem", "Memory"),
            ("video", "video", "Video"),
        )
    ),
    row("performance_state", "performance_state", "performance_state", "Performance State"),
    *(
        row(value, metric, f"pci/pci_gpu_link_info/{xml}", f"PCI/GPU Link Info/{text}", f"PCI/GPU Link Info/{old}")
        for value, metric, xml, text, old in (
            ("pcie_generation", "pcie_link_generation", "pcie_gen/current_link_gen", "PCIe Generation/Current", ""),
            ("pcie_generation_max", "pcie_link_generation_max", "pcie_gen/max_link_gen", "PCIe Generation/Max", ""),
            ("pcie_width", "pcie_link_width_lanes", "link_widths/current_link_width", "Link Width/Current", ""),
            ("pcie_width_max", "pcie_link_width_max_lanes", "link_widths/max_link_width", "Link Width/Max", ""),
        )
    ),
    row("pcie_replays", "pcie_replays_total", "pci/replay_counter", "PCI/Replays Since Reset", "PCI/Replays since reset"),
    row("pcie_rollovers", "pcie_replay_rollovers_total", "pci/replay_rollover_counter", "PCI/Replay Number Rollovers"),
    *(
        row(
            f"event_{value}",
            f"clock_event_seconds_total_{EVENT_METRICS.get(name, name)}",
            f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}",
            f"Clocks Event Reasons Counters/{EVENT_WORDS[name]}",
            raw=1000.0,
            unit=1e-6,
            since=575 if value.startswith(("sw_", "hw_")) else 0,
        )
        for name, value in EVENTS.items()
    ),
    row("persistence", "persistence_mode", "persistence_mode", "Persistence Mode"),
    row("ecc_current", "ecc_mode_current", "ecc_mode/current_ecc", "ECC Mode/Current", "Ecc Mode/Current"),
    row("ecc_pending", "ecc_mode_pending", "ecc_mode/pending_ecc", "ECC Mode/Pending", "Ecc Mode/Pending"),
    row("mig_mode", "mig_mode_current", "mig_mode/current_mig", "MIG Mode/Current"),
    row("mig_pending", "mig_mode_pending", "mig_mode/pending_mig", "MIG Mode/Pending"),
    *ecc(),
    *(
        row(
            f"sram_{name}",
            f"ecc_sram_uncorrected_total_{name}",
            f"ecc_errors/aggregate_uncorrectable_sram_sources/sram_{name}",
            f"ECC Errors/Aggregate Uncorrectable SRAM Sources/SRAM {text}",
            since=550,
        )
        for name, text in (
            ("l2", "L2"),
            ("sm", "SM"),
            ("pcie", "PCIE"),
            ("microcontroller", "Microcontroller"),
            ("other", "Other"),
        )
    ),
    row(
        "sram_threshold",
        "ecc_sram_threshold_exceeded",
        "ecc_errors/aggregate/sram_threshold_exceeded",
        "ECC Errors/Aggregate/SRAM Threshold Exceeded",
        since=550,
    ),
    row("unrepairable", "memory_unrepairable", "ecc_errors/unrepairable_memory", "ECC Errors/Unrepairable Memory", since=590),
    row(
        "retired_single",
        "retired_pages_total_single_bit",
        "retired_pages/multiple_single_bit_retirement/retired_count",
        "Retired Pages/Single Bit ECC",
    ),
    row(
        "retired_double",
        "retired_pages_total_double_bit",
        "retired_pages/double_bit_retirement/retired_count",
        "Retired Pages/Double Bit ECC",
    ),
    row(
        "retired_pending",
        "page_retirement_pending",
        "retired_pages/pending_retirement",
        "Retired Pages/Pending Page Blacklist",
    ),
    *(
        row(value, metric, f"remapped_rows/remapped_row_{xml}", f"Remapped Rows/{text}")
        for value, metric, xml, text in (
            ("remapped_correctable", "remapped_rows_total_correctable", "corr", "Correctable Error"),
            ("remapped_uncorrectable", "remapped_rows_total_uncorrectable", "unc", "Uncorrectable Error"),
            ("remap_pending", "row_remap_pending", "pending", "Pending"),
            ("remap_failure", "row_remap_failure", "failure", "Remapping Failure Occurred"),
        )
    ),
    *(
        row(
            f"banks_{name}",
            f"row_remap_banks_{name}",
            f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}",
            f"Remapped Rows/Bank Remap Availability Histogram/{text}",
        )
        for name, text in (("max", "Max"), ("high", "High"), ("partial", "Partial"), ("low", "Low"), ("none", "None"))
    ),
)
# Numbers of a state set or that are given in another way than by one metric
STATES = {
    "compute_mode": row("compute_mode", "", "compute_mode", "Compute Mode", words=MODES),
    "recovery_action": row("recovery_action", "", "gpu_recovery_action", "GPU Recovery Action", since=560, words=ACTIONS),
    "fabric_state": row("fabric_state", "", "fabric/state", "Fabric/State", since=525, words=FABRIC),
}
REASONS: Mapping[str, tuple[int, str, str]] = {  # name in the catalogue: bit, name in XML, words in text
    "gpu_idle": (0x1, "gpu_idle", "Idle"),
    "applications_clocks": (0x2, "applications_clocks_setting", "Applications Clocks Setting"),
    "sw_power_cap": (0x4, "sw_power_cap", "SW Power Cap"),
    "hw_slowdown": (0x8, "hw_slowdown", "HW Slowdown"),
    "sync_boost": (0x10, "sync_boost", "Sync Boost"),
    "sw_thermal": (0x20, "sw_thermal_slowdown", "SW Thermal Slowdown"),
    "hw_thermal": (0x40, "hw_thermal_slowdown", "HW Slowdown/HW Thermal Slowdown"),
    "hw_power_brake": (0x80, "hw_power_brake_slowdown", "HW Slowdown/HW Power Brake Slowdown"),
    "display": (0x100, "display_clocks_setting", "Display Clock Setting"),
}


def reasons(card: Seen) -> dict[str, bool]:
    """Return the clock event reasons that a capture names, and whether each is active."""
    found = {}
    for name, (_, xml, text) in REASONS.items():
        said = card.first(
            f"clocks_event_reasons/clocks_event_reason_{xml}",
            f"clocks_throttle_reasons/clocks_throttle_reason_{xml}",
            f"Clocks Event Reasons/{text}",
            f"Clocks Throttle Reasons/{text}",
        )
        if said in ("Active", "Not Active"):
            found[name] = said == "Active"
    return found
