"""What detectors make of the readings: presence and state of GPUs, accumulated counters, facts of the host."""

from collections.abc import Mapping
from types import MappingProxyType

from gpuwatch.catalogue.events import ERRORS_OPEN, PORT_ERRORS_OPEN
from gpuwatch.catalogue.gpu import GPU, GPUS
from gpuwatch.catalogue.host import HOST
from gpuwatch.model.metric import Keep, Metric, counter, gauge, states

EXPECTED = gauge(GPUS, "expected", keep=Keep.LAST, help="GPUs this host should have: configured, else learned.")
UP = gauge(GPU, "up", keep=Keep.LAST, help="1 while the GPU gives readings; kept at 0 while it is in the inventory.")
STATE = states(
    GPU,
    "state",
    "state",
    ("ok", "degraded", "reset_required", "lost", "hung", "missing"),
    help="How the GPU is; absent while the driver as a whole is down.",
)
DOWN_REASON = states(
    GPU,
    "down_reason",
    "reason",
    ("lost", "reset_required", "hung", "missing", "unknown_error", "no_permission", "driver", "late", "released"),
    help="Why a GPU gives no readings; absent while it does.",
)
LAST_SEEN = gauge(GPU, "last_seen_timestamp", "seconds", keep=Keep.LAST, help="When the GPU last gave a reading.")
TEMPERATURE_HEADROOM = gauge(
    GPU,
    "temperature_headroom",
    "celsius",
    help="Degrees left until the hardware slows the GPU down; only where the driver tells that limit or the margin to it.",
)
BUSY_SECONDS = counter(GPU, "busy", "seconds", help="Utilisation summed over time.")
UNEXPECTED_REBOOT = gauge(
    HOST,
    "unexpected_reboot_timestamp",
    "seconds",
    keep=Keep.LAST,
    help="When this host last came back from a reboot that nobody asked for.",
)
PREVIOUS_REBOOT = gauge(
    HOST,
    "previous_unexpected_reboot_timestamp",
    "seconds",
    keep=Keep.LAST,
    help="When this host came back from the unexpected reboot before that one.",
)

# The words of `Evidence` that detectors give beside a metric: the texts of rules that look at it may use them.
DROPPED_WORDS = ("cause", "last_seen", "held_by", "remedy", "reported")
WORDS: Mapping[Metric, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys((STATE["lost"], STATE["missing"], STATE["reset_required"]), DROPPED_WORDS),
        **dict.fromkeys(ERRORS_OPEN.values(), ("cause", "code", "count", "also", "action", "line")),
        **dict.fromkeys(PORT_ERRORS_OPEN.values(), ("port", "gpus", "cause", "code", "count", "also", "action", "line")),
        UNEXPECTED_REBOOT: ("down", "last_sample", "left", "advice"),
    }
)
