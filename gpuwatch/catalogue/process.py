"""Who uses the GPUs: processes, their loaders, users and jobs.

`holder` is what NVML lists, without names: one process on one GPU (or MIG instance). The jobs source makes of it `process_gpu`
(the same with its owner, command and job), `process` (what it does on the CPU) and `job`, and of those beyond the cap of
[processes] limit `rest`: what they have together, by owner, job and GPU (or instance); the usage detector `user_gpu` and
`job_gpu`. Series of single processes are on the page only where `[processes] series` says so; in history they always are.
"""

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.own import OWN
from gpuwatch.model.metric import Keep, Kind, Members, Metric, Subject, counter, declare, gauge

HOLDER = Subject("holder", ("pid", "ticks", "gpu", "uuid", "gi", "ci"), brief=True)
PROCESS = Subject("process", ("pid", "start", "command", "job", "role", "gpu", "uuid"), brief=True)
PROCESS_GPU = Subject("process_gpu", ("pid", "start", "command", "job", "role", "gpu", "uuid"), brief=True)
REST = Subject("rest", ("job", "gpu", "uuid"), brief=True)
JOB = Subject("job", ("scheduler", "job"), brief=True)
JOB_GPU = Subject(
    "job_gpu",
    ("scheduler", "job", "gpu", "uuid"),
    prefix="gpuwatch_job",
    info=("user", "name", "namespace", "container", "unit"),
    brief=True,
    help="A job that holds a GPU: whose it is, and what it is called.",
)
USER_GPU = Subject("user_gpu", ("user", "gpu", "uuid"), prefix="gpuwatch_user", brief=True)

# What NVML lists
GPU_PROCESSES = Members(  # `members` cannot name a label `kind`
    {
        kind: declare(
            GPU,
            "processes",
            kind=Kind.GAUGE,
            keep=Keep.MAX,
            labels=(("kind", kind),),
            help="Processes that the driver lists on this GPU; one may be in several kinds.",
        )
        for kind in ("compute", "graphics", "mps")
    }
)
GPU_PROCESSES_HIDDEN = gauge(
    GPU,
    "processes_hidden",
    keep=Keep.MAX,
    help="Processes on this GPU that cannot be seen from here (another PID namespace, ended).",
)
GPU_PROCESSES_DROPPED = gauge(GPU, "processes_dropped", internal=True, help="Processes of this GPU over the cap of the list.")
HOLDER_MEMORY = gauge(HOLDER, "memory", "bytes", internal=True, help="GPU memory of this process on this GPU.")
HOLDER_UTILIZATION = gauge(
    HOLDER,
    "utilization",
    "ratio",
    internal=True,
    help="Share of time in which a kernel of this process ran, since the last look.",
)

# What the host knows of them
PROCESS_GPU_MEMORY = gauge(PROCESS_GPU, "memory", "bytes", help="GPU memory of this process on this GPU.")
PROCESS_GPU_UTILIZATION = gauge(
    PROCESS_GPU, "utilization", "ratio", help="Share of time in which a kernel of this process ran on this GPU."
)
REST_MEMORY = gauge(REST, "memory", "bytes", internal=True, help="GPU memory of these processes together.")
REST_UTILIZATION = gauge(REST, "utilization", "ratio", internal=True, help="Their shares of time together, 1 at most.")
PROCESS_CPU = counter(PROCESS, "cpu", "seconds", help="CPU time of a GPU process or of one that loads data for it.")
PROCESS_IO_WAIT = counter(
    PROCESS, "io_wait", "seconds", help="Time for which it waited for disks; only with the kernel's task_delayacct."
)
PROCESS_RESIDENT = gauge(PROCESS, "resident", "bytes", help="Memory of it that is in RAM.")
PROCESS_BLOCKED = gauge(
    PROCESS, "blocked", help="1 while it is in uninterruptible sleep; one look proves nothing, the mean is a share of time."
)
PROCESS_WORKERS = gauge(
    PROCESS,
    "worker_threads",
    help="Threads of a GPU process, beside its first, that used at least a tenth of a core in the last minute or so; without"
    " those of CUDA, NCCL and autograd, which wait by spinning. Absent where they use less than a core together.",
)
PROCESS_WORKERS_FULL = gauge(PROCESS, "worker_threads_full", help="Those of them that used at least 90 % of a core.")
PROCESS_WORKERS_BUSY = gauge(PROCESS, "worker_threads_busy", "ratio", help="Share of a core that they used, on average.")
PROCESSES_DROPPED = gauge(
    OWN,
    "process_series_dropped",
    keep=Keep.MAX,
    help="Processes on GPUs, or loaders of them, over the cap of [processes] limit; and those of over 1000 threads.",
)
JOB_CPU = counter(JOB, "cpu", "seconds", help="CPU time of the job's control group.")
JOB_CPU_THROTTLED = counter(JOB, "cpu_throttled", "seconds", help="Time for which its quota stopped it.")
JOB_CPU_ALLOWED = gauge(
    JOB,
    "cpu_allowed_cores",
    keep=Keep.LAST,
    help="Cores that it may use: affinity, cpuset and quota together.",
)

JOB_GPU_ACCESS_MISSING = gauge(
    JOB,
    "gpu_access_missing",
    keep=Keep.LAST,
    help="1 where the device rules of this container lack its GPUs: it has lost them, or will when systemd reloads.",
)


def usage(subject: Subject) -> tuple[Metric, ...]:
    """Declare what is counted by user and by job alike."""
    whose = subject.name.removesuffix("_gpu")
    return (
        gauge(subject, "gpu_memory", "bytes", help=f"GPU memory of this {whose} on this GPU."),
        counter(subject, "gpu_busy", "seconds", help=f"Time in which kernels of this {whose} ran on this GPU."),
        counter(
            subject,
            "gpu_held",
            "seconds",
            help=f"Time for which this {whose} held this GPU: 3,600 are a GPU-hour; on MIG, its part of the GPU.",
        ),
        counter(subject, "gpu_idle_held", "seconds", help="The part of it in which the GPU did nothing."),
        counter(subject, "gpu_energy", "joules", help=f"Energy of this GPU while this {whose} held it, shared by use."),
    )


USER_GPU_MEMORY, USER_GPU_BUSY, USER_GPU_HELD, USER_GPU_IDLE, USER_GPU_ENERGY = usage(USER_GPU)
JOB_GPU_MEMORY, JOB_GPU_BUSY, JOB_GPU_HELD, JOB_GPU_IDLE, JOB_GPU_ENERGY = usage(JOB_GPU)
GPU_IDLE_ALLOCATED = counter(
    GPU, "idle_allocated", "seconds", help="Time in which a compute process held this GPU and it did nothing."
)
OOM_SUSPECTED = counter(GPU, "oom_suspected", help="Processes that ended while this GPU's memory was at least 97 % full.")
