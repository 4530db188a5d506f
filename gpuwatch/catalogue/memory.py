"""Errors in the memories of a GPU by where they are, and what is left to replace a bad row with."""

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.metric import Keep, Kind, Members, gauge, members

ECC_LOCATION_ERRORS = Members(
    {
        name: metric
        for name, metric in members(
            GPU,
            "ecc_location_errors",
            kind=Kind.COUNTER,
            type=("corrected", "uncorrected"),
            lifetime=("volatile", "aggregate"),
            location=("dram", "sram", "l1", "l2", "register", "texture", "cbu"),
            help="ECC errors by memory: dram and sram from Ampere on, dram and the single memories before it.",
        ).items()
        if name not in ("corrected_volatile_cbu", "corrected_aggregate_cbu")  # of which no driver tells
    }
)
ECC_SRAM_SOURCES = members(
    GPU,
    "ecc_sram_uncorrected",
    kind=Kind.COUNTER,
    source=("l2", "sm", "pcie", "microcontroller", "other"),
    help="Uncorrected ECC errors in SRAM ever, by the unit that it belongs to.",
)
ECC_SRAM_THRESHOLD = gauge(
    GPU,
    "ecc_sram_threshold_exceeded",
    keep=Keep.LAST,
    help="1 once the SRAM has had so many uncorrected errors that the card is for return.",
)
ROW_REMAP_BANKS = members(
    GPU,
    "row_remap_banks",
    keep=Keep.LAST,
    availability=("max", "high", "partial", "low", "none"),
    help="Memory banks by how many spare rows they have left.",
)
MEMORY_UNREPAIRABLE = gauge(
    GPU, "memory_unrepairable", keep=Keep.LAST, help="1 once memory is bad that can no longer be repaired (R590 and later)."
)
