"""The short outputs of nvidia-smi (--query-gpu CSV, the default table, nvlink -s) as captures with the paths of -q -x."""

import re

from tests.fakes.nvml import FakeNvml
from tests.fakes.smi_capture import Capture, Seen

COLUMNS = {  # of --query-gpu: the path in XML, and the unit where the column has none
    "name": ("product_name", ""),
    "temperature.gpu": ("temperature/gpu_temp", " C"),
    "utilization.gpu": ("utilization/gpu_util", " %"),
    "utilization.memory": ("utilization/memory_util", " %"),
    "memory.used": ("fb_memory_usage/used", " MiB"),
    "power.draw": ("power_readings/power_draw", " W"),
    "power.limit": ("power_readings/power_limit", " W"),
    "power.default_limit": ("power_readings/default_power_limit", " W"),
    "power.max_limit": ("power_readings/max_power_limit", " W"),
    "fan.speed": ("fan_speed", " %"),
    "pstate": ("performance_state", ""),
    "clocks.current.graphics": ("clocks/graphics_clock", " MHz"),
    "clocks.current.memory": ("clocks/mem_clock", " MHz"),
}
TABLE = re.compile(
    r"\|\s*(?P<index>\d+)\s+(?P<name>.+?)\s+(?:On|Off)\s+\|\s*(?P<bus>[0-9A-F:.]+) .*\n"
    r"\|\s*(?P<fan>\S+)\s+(?P<temperature>\S+)\s+(?P<state>\S+)\s+(?P<power>\S+) */ *(?P<limit>\S+)\s*\|"
    r"\s*(?P<used>\S+) */ *(?P<total>\S+)\s*\|\s*(?P<share>\S+)"
)
UNITS = re.compile(r"^(\d+)(C|W|MiB|%)$")
LINK = re.compile(r"Link (\d+): (?:<(inactive)>|([\d.]+) GB/s)")


def from_csv(text: str, columns: list[str] | None = None) -> Capture:
    """Read rows; `columns` where the file has no header."""
    lines = [line for line in text.splitlines() if line.strip()]
    names = columns or [cell.strip().partition(" [")[0] for cell in lines.pop(0).split(",")]
    cards = []
    for number, line in enumerate(lines):
        facts = {}
        for name, cell in zip(names, (cell.strip() for cell in line.split(",")), strict=True):
            if name in COLUMNS:
                path, unit = COLUMNS[name]
                facts[path] = cell + unit if re.fullmatch(r"[\d.]+", cell) else cell
        cards.append(Seen(f"00000000:{number + 1:02X}:00.0", facts))
    return Capture("", cards)


def from_table(text: str, why: str = "ERR!") -> Capture:
    """Read the default table; `why` is what a query says of the cells that show ERR!."""
    cards = []
    for row in TABLE.finditer(text):
        cells = {name: why if cell == "ERR!" else UNITS.sub(r"\1 \2", cell) for name, cell in row.groupdict().items()}
        facts = {
            "product_name": cells["name"],
            "fan_speed": cells["fan"],
            "temperature/gpu_temp": cells["temperature"],
            "performance_state": cells["state"],
            "gpu_power_readings/instant_power_draw": cells["power"],
            "gpu_power_readings/current_power_limit": cells["limit"],
            "fb_memory_usage/used": cells["used"],
            "fb_memory_usage/total": cells["total"],
            "utilization/gpu_util": cells["share"],
        }
        cards.append(Seen(cells["bus"], facts))
    return Capture("", cards)


def link_up(text: str, fake: FakeNvml) -> list[list[bool]]:
    """Give the cards of a fake the links of `nvlink -s`; return which are up, by card."""
    found: list[list[bool]] = []
    for card, part in enumerate(re.split(r"^GPU \d+: ", text, flags=re.MULTILINE)[1:]):
        links = LINK.findall(part)
        speeds = {float(speed) for _, inactive, speed in links if not inactive}
        fake.set(card, nvlinks=len(links), nvlink_speed=round(1000 * max(speeds)), nvlink_version=2)
        for number, inactive, _ in links:
            fake.turn(card, int(number), inactive or "active")
        found.append([not inactive for _, inactive, _ in links])
    return found
