"""What detectors make of the readings: presence and state of GPUs, accumulated counters, facts of the host."""

from gpuwatch.catalogue.gpu import GPU, GPUS
from gpuwatch.catalogue.host import HOST
from gpuwatch.model.metric import Keep, counter, gauge, states

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
BUSY_SECONDS = counter(GPU, "busy", "seconds", help="Utilisation summed over time.")
UNEXPECTED_REBOOT = gauge(
    HOST,
    "unexpected_reboot_timestamp",
    "seconds",
    keep=Keep.LAST,
    help="When this host came back from a reboot that nobody asked for; absent after a clean one.",
)
