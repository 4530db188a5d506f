"""gpuwatch's own numbers: collectors, rules, messages, store, cost."""

from gpuwatch.model.metric import Keep, Kind, Subject, counter, gauge, members, states

OWN = Subject("own", prefix="gpuwatch")
BUILD = Subject("build", info=("version", "python"), help="This gpuwatch.")
COLLECTOR = Subject("collector", ("collector",))
ALERT = Subject("alert", ("rule", "severity"))  # beside them the labels of the alert's target
ALERTS = Subject("alerts", ("rule", "severity"))
CHANNEL = Subject("channel", ("channel",), prefix="gpuwatch")
QUEUE = Subject("queue", ("queue",))

START_TIME = gauge(OWN, "start_time", "seconds", keep=Keep.LAST, help="When this daemon started.")
COLLECTOR_SUCCESS = gauge(COLLECTOR, "success", keep=Keep.LAST, help="1 if the last round of this source gave readings.")
COLLECTOR_DURATION = gauge(COLLECTOR, "duration", "seconds", help="How long its last round took.")
COLLECTOR_LAST_SUCCESS = gauge(
    COLLECTOR, "last_success_timestamp", "seconds", keep=Keep.LAST, help="When it last gave a reading."
)
COLLECTOR_HUNG = gauge(COLLECTOR, "hung", keep=Keep.LAST, help="1 while it does not answer.")
COLLECTOR_RESTARTS = members(
    COLLECTOR,
    "restarts",
    kind=Kind.COUNTER,
    reason=("hang", "crash", "driver_change"),
    help="Times its worker process was replaced.",
)
PERMANENT = {3, 13, 26}  # what a device or driver will never have is no error
NVML_ERROR_CODES = tuple(str(code) for code in (*range(1, 31), 999) if code not in PERMANENT)
NVML_ERRORS = members(
    OWN,
    "nvml_errors",
    kind=Kind.COUNTER,
    code=NVML_ERROR_CODES,
    help="Errors that NVML answered, by code; not counting 3, 13 and 26.",
)

ALERT_STATE = states(
    ALERT,
    "state",
    "state",
    ("pending", "firing", "recovering", "stale", "muted", "acknowledged"),
    help="Where each alert that is not inactive stands.",
)
MAINTENANCE_MODE = gauge(
    OWN, "maintenance_mode", keep=Keep.LAST, help="1 while a silence of the whole host is active: nobody is told of its alerts."
)
ALERTS_FIRED = counter(ALERTS, "fired", help="Alerts that fired.")

NOTIFICATIONS = members(
    CHANNEL,
    "notifications",
    kind=Kind.COUNTER,
    result=("sent", "retried", "failed", "dropped", "suppressed"),
    help="Attempts to tell somebody, by result.",
)
NOTIFICATION_QUEUE_LENGTH = gauge(CHANNEL, "notification_queue_length", keep=Keep.LAST, help="Messages not yet delivered.")
NOTIFICATION_QUEUE_OLDEST = gauge(
    CHANNEL, "notification_queue_oldest_timestamp", "seconds", keep=Keep.LAST, help="When the oldest of them was decided."
)
NOTIFICATION_LAST_SUCCESS = gauge(
    CHANNEL, "notification_last_success_timestamp", "seconds", keep=Keep.LAST, help="When this channel last took a message."
)

DATABASE_SIZE = gauge(OWN, "database_size", "bytes", keep=Keep.LAST, help="Size of the history database with its log.")
DATABASE_OLDEST = members(
    OWN,
    "database_oldest_sample_timestamp",
    "seconds",
    keep=Keep.LAST,
    resolution=("raw",),
    help="Time of the oldest sample kept.",
)
DATABASE_WRITES = members(
    OWN,
    "database_writes",
    kind=Kind.COUNTER,
    result=("ok", "failed", "dropped"),
    help="Transactions of alert memory and history.",
)
DATABASE_WRITE_SECONDS = counter(OWN, "database_write", "seconds", help="Time spent in them.")
DATABASE_UP = gauge(OWN, "database_up", keep=Keep.LAST, help="1 while the history database takes writes.")

QUEUE_DROPPED = counter(QUEUE, "dropped", help="Things dropped from a full queue, oldest first.")
PROCESS_CPU = members(
    OWN, "process_group_cpu", "seconds", kind=Kind.COUNTER, process=("daemon", "nvml"), help="CPU time of our own processes."
)
PROCESS_RESIDENT = members(
    OWN,
    "process_group_resident",
    "bytes",
    keep=Keep.LAST,
    process=("daemon", "nvml"),
    help="Resident memory of our own processes.",
)
