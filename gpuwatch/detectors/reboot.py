"""Whether this host came back from a reboot that nobody asked for: a new boot id, and no mark of a clean stop in the last boot.

The mark is ours: written at SIGTERM, so at every orderly shutdown, reboot, kexec and upgrade. What the store last knew goes
into the alert's text, since after a power failure no log has a line, and so does what the kernel left in pstore: a panic, Xids
(operator.md S10). A machine check is logged by the boot after it.
"""

from datetime import datetime

import msgspec

from gpuwatch.catalogue.derived import PREVIOUS_REBOOT, UNEXPECTED_REBOOT
from gpuwatch.catalogue.host import BOOT_TIME, HOST
from gpuwatch.detectors.detector import derived
from gpuwatch.model.finding import Evidence, Findings
from gpuwatch.model.view import View

EARLY = 300.0  # seconds after a boot in which the kernel logs what the hardware kept of the one before


class Before(msgspec.Struct, frozen=True):
    """What was known when gpuwatch last lived: in which boot, whether it was stopped in order, and its last stored sample."""

    boot_id: str
    clean: bool
    at: float  # wall clock of the last sample
    power_watts: float | None = None  # of all GPUs together
    temperature_celsius: float | None = None  # of the hottest GPU
    crash: str = ""  # how the kernel died, in its own words
    errors: tuple[str, ...] = ()  # grave ones of GPUs that were told in the minutes before, and in what the kernel left
    machine_check: bool = False  # among them
    unread: str = ""  # why what the kernel left could not be read
    has_place: bool = True  # where a dying kernel could have left something
    unheard: str = ""  # why what was told before could not be read
    unsampled: str = ""  # and why the last sample


class State(msgspec.Struct):
    """The boot that was judged, and the last unexpected reboot. It is told for good: rules look at its age."""

    boot_id: str = ""
    at: float | None = None
    previous: float | None = None  # the one before it
    numbers: dict[str, float] = {}
    words: dict[str, str] = {}
    crash: str = ""
    errors: list[str] = []
    machine_check: bool = False
    unread: str = ""
    has_place: bool = True
    unheard: str = ""
    present: bool = False  # `at` is the start of this very boot


class Reboot:
    """The detector; `before` is None on a first start."""

    name = "reboot"
    version = 1

    def __init__(self, before: Before | None) -> None:
        self.before = before

    def initial(self) -> State:
        """Return that nothing has happened."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Judge each boot once."""
        host = next(iter(view.of(HOST)), None)
        boot_id = host.target.info.get("boot_id", "") if host else ""
        if host is None or not boot_id:
            return state, Findings()
        if state.boot_id != boot_id:
            before = self.before
            state.present = before is not None and bool(before.boot_id) and before.boot_id != boot_id and not before.clean
            if before is not None and state.present:
                up = host.values.get(BOOT_TIME, wall)
                state.previous, state.at = state.at, up
                state.numbers, state.words = last_sample(before), {"down": down(before.at, up), "last_sample": sample(before)}
                state.crash, state.errors, state.unread = before.crash, list(before.errors), before.unread
                state.machine_check, state.has_place, state.unheard = before.machine_check, before.has_place, before.unheard
            state.boot_id = boot_id
        elif state.present:  # the kernel moves the time of its boot along with a clock that was wrong at the start
            state.at = host.values.get(BOOT_TIME, state.at)
        if state.at is None:
            return state, Findings()
        if state.present and any(event.kind == "mce" and event.at - state.at < EARLY for event in view.events):
            state.machine_check = True
        evidence = Evidence(numbers=state.numbers, words=state.words | {"left": left(state), "advice": advice(state)})
        values = {UNEXPECTED_REBOOT: state.at}
        if state.previous is not None:
            values[PREVIOUS_REBOOT] = state.previous
        reading = derived(host.target, values, {}, wall)
        return state, Findings((reading,), {(host.target, UNEXPECTED_REBOOT): evidence})


def last_sample(before: Before) -> dict[str, float]:
    """Return the numbers of the last stored sample."""
    found = {"last_power_watts": before.power_watts, "last_temperature_celsius": before.temperature_celsius}
    return {name: value for name, value in found.items() if value is not None}


def sample(before: Before) -> str:
    """Say what the last stored sample showed."""
    if before.unsampled:
        return f"last stored sample unknown: {before.unsampled}"
    watts = "" if before.power_watts is None else f"{before.power_watts:.0f} W"
    heat = "" if before.temperature_celsius is None else f"GPU max {before.temperature_celsius:.0f} C"
    return f"last stored sample: {', '.join(part for part in (watts, heat) if part) or 'nothing of GPUs'}"


def down(last: float, up: float) -> str:
    """Say from when to when the host was down, with the date where it was not one day."""
    start, end = (datetime.fromtimestamp(at).astimezone() for at in (last, up))
    form = "%H:%M:%S" if start.date() == end.date() else "%Y-%m-%d %H:%M:%S"
    return f"down {start:{form}}-{end:{form}}"


def left(state: State) -> str:
    """Say what logs, hardware and the dying kernel told of."""
    parts = [
        ", ".join(state.errors) or ("" if state.unheard else "no Xid"),
        "a machine check" if state.machine_check else "" if state.unheard else "no MCE",
        f"Xid and MCE before it unknown: {state.unheard}" if state.unheard else "",
    ]
    if state.crash:
        parts.append(f"in pstore: {state.crash}")
    elif not state.has_place:
        parts.append("no pstore here")
    elif state.unread:
        parts.append(f"pstore unknown: {state.unread}")
    else:
        parts.append("pstore empty")
    return ", ".join(filter(None, parts))


def advice(state: State) -> str:
    """Say where to look first."""
    if state.errors:
        return "that GPU and its power first"
    if state.machine_check:
        return "CPU, memory and their power first"
    if state.crash:
        return "the kernel and its drivers first"
    if not state.has_place:
        return "power supply or breaker first, or a kernel that could leave nothing"
    if state.unread:
        return "power supply or breaker first, if pstore has nothing"
    return "power supply or breaker first" + (", as far as is known" if state.unheard else "")
