"""What joins a GPU to others: NVLink, the NVSwitch fabric, C2C. Each link is a target of its own.

A GPU with 18 links has 36 numbers of them by themselves, and nobody looks at them while all is well: the page has three of the
GPU in their place, those of the links only with `[sources.nvml] per_link`. Board, rules, history and JSON always have state and
speed of the links; their bytes and errors are read only with that option.
"""

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.metric import Keep, Kind, Subject, counter, gauge, members, states

NVLINK = Subject("gpu_nvlink", ("gpu", "uuid", "link"))

NVLINK_UP = gauge(NVLINK, "up", keep=Keep.LAST, help="1 while this link is active or asleep, 0 while it is inactive.")
NVLINK_SPEED = gauge(
    NVLINK, "speed", "bytes_per_second", keep=Keep.LAST, help="Speed of this link in one direction, while it is up."
)

# All links together
NVLINKS = members(
    GPU,
    "nvlinks",
    keep=Keep.LAST,
    state=("up", "down"),
    help="NVLinks of this GPU that are active or asleep (up), and that are inactive (down), which unused ones always are.",
)
NVLINKS_SPEED = gauge(
    GPU,
    "nvlinks_speed",
    "bytes_per_second",
    keep=Keep.LAST,
    help="Speed of all NVLinks that are up, together, in one direction.",
)
NVLINK_TRANSMIT = counter(GPU, "nvlink_transmit", "bytes", help="Bytes sent by the GPU over all its NVLinks.")
NVLINK_RECEIVE = counter(GPU, "nvlink_receive", "bytes", help="Bytes received by the GPU over all its NVLinks.")
ERROR_TYPES = ("replay", "recovery", "crc", "ecc", "symbol", "recovery_failed")
NVLINK_ERRORS = members(
    GPU,
    "nvlink_errors",
    kind=Kind.COUNTER,
    type=ERROR_TYPES,
    help="Errors on all NVLinks together; symbol and recovery_failed are those of NVLink 5, the others of those before it.",
)

# Each link by itself, read only with [sources.nvml] per_link. Families of their own: none mixes a total with its parts.
LINK_TRANSMIT = counter(NVLINK, "link_transmit", "bytes", help="Bytes sent by the GPU over this link.")
LINK_RECEIVE = counter(NVLINK, "link_receive", "bytes", help="Bytes received by the GPU over this link.")
LINK_ERRORS = members(
    NVLINK,
    "link_errors",
    kind=Kind.COUNTER,
    type=tuple(kind for kind in ERROR_TYPES if kind != "ecc"),  # which has no field with a link of one's choice
    help="Errors on this link.",
)

FABRIC_STATE = states(
    GPU,
    "fabric_state",
    "state",
    ("not_started", "in_progress", "completed", "failed"),
    help="How far the GPU has come in joining its NVSwitch fabric; CUDA works on such a host only when it has.",
)
FABRIC_HEALTHY = gauge(
    GPU, "fabric_healthy", keep=Keep.LAST, help="1 while the fabric of this GPU has its full bandwidth and all its routes."
)
C2C_ERRORS = members(
    GPU, "c2c_errors", kind=Kind.COUNTER, type=("crc", "replay"), help="Errors on the links between GPU and CPU (Grace)."
)
