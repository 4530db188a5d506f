"""One reading of everything, by a fresh worker: `gpuwatch read`."""

import queue
import threading
import time
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from gpuwatch.config import Config
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sampling import child
from gpuwatch.sampling.crew import setup
from gpuwatch.sampling.events import words_of
from gpuwatch.sources import wire

Frames = queue.SimpleQueue[Reading | wire.Working | wire.Done | wire.Failed | wire.Restart | str]
END = 2.0  # seconds for the worker to end
ENDED = "the worker process ended"
AGAIN = 0.2  # seconds until what has not come back is asked for again


class Once(msgspec.Struct, frozen=True):
    """What came, and what is in the way of the rest ("" when everything came)."""

    readings: list[Reading]
    problem: str
    busy: frozenset[str] = frozenset()  # what had not come back when the last round ended

    @property
    def untold(self) -> frozenset[str]:
        """What had not come back, and of which nothing says so yet."""
        return self.busy - {reading.target.key for reading in self.readings if reading.fault is not None}


def once(names: Sequence[str], config: Config, seconds: float, spawn: child.Spawn = child.worker) -> Once:
    """Ask a fresh worker for every tier of these sources, and take what comes within `seconds`.

    A round may end before what hangs has hung for its deadline (the library alone takes seconds to begin): it is asked for again
    until it comes, or is said to hang.
    """
    end = time.monotonic() + seconds
    try:
        process = spawn(f"gpuwatch-{names[0]}"[:15])
    except OSError as error:
        return Once([], f"the worker process could not be started: {error.strerror}")
    frames: Frames = queue.SimpleQueue()
    listener = threading.Thread(target=listen, args=(process, frames), name="once-pipe", daemon=True)
    try:
        listener.start()
    except RuntimeError as error:  # the system has no thread to spare
        finish(process)
        process.output.close()
        return Once([], f"the worker process could not be listened to: {error}")
    asks = [wire.Ask(number, tier) for number, tier in enumerate(Tier, 1)]
    process.send(wire.pack(setup(config, tuple(names))))
    for ask in asks:
        process.send(wire.pack(ask))  # one that does not take it ends its pipe, which is seen below
    found = gather(frames, {ask.number for ask in asks}, end)
    number = len(asks)
    while not found.problem and found.untold:
        listener.join(AGAIN)
        number += 1
        process.send(wire.pack(wire.Ask(number, Tier.FAST)))
        found = added(found, gather(frames, {number}, end))
    finish(process)
    listener.join(END / 2)
    found = replace(found, readings=latest(found.readings))
    status = process.poll()
    if found.problem == ENDED and status is not None:  # how it ended is known only now that it is reaped
        return replace(found, problem=f"{ENDED} ({words_of(status)})")
    return found


def added(found: Once, more: Once) -> Once:
    """Add to what was found what is new in a later round."""
    known = {(reading.tier, reading.target) for reading in found.readings}
    fresh = [one for one in more.readings if one.fault is not None or (one.tier, one.target) not in known]
    return replace(more, readings=[*found.readings, *fresh])


def latest(readings: Iterable[Reading]) -> list[Reading]:
    """Return the last reading of each target and tier: what fails amid a round is told again at once."""
    return list({(reading.tier, reading.target): reading for reading in readings}.values())


def listen(process: child.Process, frames: Frames) -> None:
    """Hand on the frames of the worker, and in the end why there are no more."""
    try:
        for body in wire.frames(process.output):
            frame = wire.from_worker(body)
            if not isinstance(frame, wire.Happened):  # one look is for numbers; what happens is for those who stay
                frames.put(wire.reading(frame) if isinstance(frame, wire.Got) else frame)
        frames.put(ENDED)
    except (wire.WireError, OSError) as error:
        frames.put(f"the worker process sent junk ({error})")
    process.output.close()


def gather(frames: Frames, waiting: set[int], end: float) -> Once:
    """Take frames until every Ask is answered, the worker ends, or the time is up."""
    readings: list[Reading] = []
    failed: dict[str, str] = {}
    left: set[str] = set()
    at = ""
    while waiting:
        try:
            frame = frames.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            return Once(readings, f"no answer in time{at and f', while reading {at}'}")
        match frame:
            case Reading():
                readings.append(frame)
            case wire.Working(_, source, item):
                at = f"{source} {item}".strip()
            case wire.Failed(_, source, words):
                failed[source] = words
            case wire.Done(number, busy):
                waiting.discard(number)
                left.update(busy)
            case wire.Restart(reason):
                return Once(readings, f"the worker process has to be replaced ({reason}); try again")
            case str():
                return Once(readings, frame)
    return Once(readings, "; ".join(f"{source} {words}" for source, words in failed.items()), frozenset(left))


def finish(process: child.Process) -> None:
    """End the worker; one that cannot be killed is left to the kernel."""
    process.dismiss()
    end = time.monotonic() + END
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
        if end - time.monotonic() < END / 2:
            process.kill()
