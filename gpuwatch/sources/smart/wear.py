"""What vendors mean by their attributes: wear and lifetime bytes of SATA drives, keyed on attribute name and drive family.

Numbers alone mislead: 233 is wear on an Intel S4500, written LBAs on the same drive with Dell's firmware, and NAND GB on a
WD. smartctl's drive database names them; a drive that is not in it has default names, which are guesses, so it gets nothing.
"""

import re
from collections.abc import Callable, Iterable

from gpuwatch.sources.smart.facts import Attribute

SECTOR = 512
Percent = Callable[[Attribute], float | None]


def remaining(row: Attribute) -> float | None:
    """Normalised value = percent left."""
    return 100.0 - row.value


def raw_used(row: Attribute) -> float | None:
    """Raw count = percent used."""
    return None if row.count is None else float(row.count)


def raw_remaining(row: Attribute) -> float | None:
    """Raw count = percent left."""
    return None if row.count is None else 100.0 - row.count


# (attribute name, family, how to read it); the first that fits counts.
WEAR: tuple[tuple[str, str, Percent], ...] = (
    (r"Wear_Leveling_Count", r"Samsung", remaining),  # raw is the mean erase count
    (r"Percent_Life_Remaining", r"Intel|Solidigm|Dell", remaining),  # 245, Dell's firmware; 233 is LBAs there
    (r"Media_Wearout_Indicator", r"Intel|Solidigm", remaining),  # raw is 0
    (r"Percent_Lifetime_Remain|Perc_Rated_Life_Used|Percent_Lifetime_Used", r"Crucial|Micron", raw_used),
    (r"SSD_Life_Left", r"SandForce|hynix", remaining),
    (r"SSD_Life_Left", r"Phison|Kingston", raw_remaining),  # the value may stay at 100
    (r"Remaining_Lifetime_Perc", r"Silicon Motion|Transcend|Crucial", raw_remaining),
    (r"Media_Wearout_Indicator|Perc_Write/Erase_Ct.*|Perc_Write/Erase_Count", r"SanDisk|Western Digital|WD|Marvell", remaining),
)
UNITS = {"LBAs": SECTOR, "Sector": SECTOR, "32MiB": 32 << 20, "GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20}
# The unit is in the name; "LBAs" mean 512 bytes only where the vendor says so. NAND and flash writes are not the host's.
BYTES = re.compile(r"(?:Host|Lifetime|Total|Total_Host)_(?P<what>Writes|Reads)_(?P<unit>32MiB|GiB|GB|MiB)")
SECTORS = re.compile(r"Total_(?P<unit>LBAs)_(?P<what>Written|Read)|Total_Host_(?P<sector>Sector)_(?P<write>Write)")
SECTOR_FAMILIES = re.compile(r"Samsung|Crucial|Micron", re.IGNORECASE)


def percent_used(family: str, rows: Iterable[Attribute]) -> float | None:
    """Return the used share of the rated endurance in percent; None where the drive gives no number within 0 to 100.

    Micron drives on a Dell BOSS card hold 432 in 202: no percentage.
    """
    table = tuple(rows)
    for name, families, read in WEAR:
        if not re.search(families, family, re.IGNORECASE):
            continue
        for row in table:
            used = read(row) if re.fullmatch(name, row.name) else None
            if used is not None and 0 <= used <= 100:
                return used
    return None


def host_bytes(family: str, rows: Iterable[Attribute]) -> tuple[float | None, float | None]:
    """Return the bytes the host has read and written over the drive's life, None where the drive does not say so clearly."""
    found: dict[str, float] = {}
    for row in rows:
        match = BYTES.fullmatch(row.name)
        if match is None and SECTOR_FAMILIES.search(family):
            match = SECTORS.fullmatch(row.name)
        if match is None or row.count is None:
            continue
        groups = match.groupdict()
        unit = groups.get("unit") or groups.get("sector") or ""
        what = (groups.get("what") or groups.get("write") or "")[:1]
        found.setdefault(what, float(row.count) * UNITS[unit])
    return found.get("R"), found.get("W")
