"""MIG: a GPU that is divided into instances. What is of the whole card (power, temperature) is never repeated for them."""

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.metric import Keep, Subject, gauge, members

MIG = Subject(
    "mig",
    ("gpu", "uuid", "gpu_instance"),
    info=("mig_uuid", "compute_instance", "profile"),
    help="What a GPU instance is; several compute instances of one are in one line, with commas.",
    brief=True,
)

MIG_MODE = members(GPU, "mig_mode", keep=Keep.LAST, which=("current", "pending"), help="1 while MIG is on, now or after a reset.")
MIG_MEMORY_USED = gauge(MIG, "memory_used", "bytes", help="Memory in use in this GPU instance.")
MIG_MEMORY_SIZE = gauge(MIG, "memory_size", "bytes", keep=Keep.LAST, help="Size of this GPU instance's memory.")
MIG_SM_ACTIVE = gauge(
    MIG, "sm_active", "ratio", help="Share of time in which an SM of this GPU instance had a warp, averaged over its SMs."
)
MIG_SM_OCCUPANCY = gauge(MIG, "sm_occupancy", "ratio", help="Resident warps in this GPU instance as a share of those that fit.")
MIG_TENSOR_ACTIVE = gauge(
    MIG, "tensor_active", "ratio", help="Share of cycles in which the tensor pipes of this GPU instance were busy."
)
