"""Whose work is on the simulated GPUs: every card that has memory in use has one process of a Slurm job, two cards a job.

These are readings of the source `jobs`, since there is no process of which /proc could tell. The people are invented.
"""

from collections.abc import Iterable, Iterator

from gpuwatch.catalogue.process import PROCESS_GPU, PROCESS_GPU_MEMORY, PROCESS_GPU_UTILIZATION
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources.simulated.physics import Card

CARDS = 2  # of a job
PEOPLE = ("ann", "ben", "cleo", "dan")
FIRST_UID, FIRST_JOB, FIRST_PID = 2001, 4101, 30_000


def readings(cards: Iterable[Card], gpus: Iterable[Target], privacy: str, at: float, booted: float) -> Iterator[Reading]:
    """Yield what NVML and the jobs source would say of the processes on these cards together.

    On a card that is lost nobody is any more; of one that hangs nothing is said.
    """
    for card, gpu in zip(cards, gpus, strict=True):
        if card.hung:
            continue
        values = {
            PROCESS_GPU_MEMORY: float(round(card.memory_used)),
            PROCESS_GPU_UTILIZATION: round(card.utilization, 2),
        }
        target = process(card, gpu, privacy, booted)
        yield Reading(source="jobs", tier=Tier.NORMAL, target=target, at=at, took=0.0, values=values if card.is_held else {})


def process(card: Card, gpu: Target, privacy: str, booted: float) -> Target:
    """Return who is on a card, as far as `[privacy] users` lets that be known."""
    number = card.index // CARDS
    job, pid, whose = str(FIRST_JOB + number), str(FIRST_PID + card.index), number % len(PEOPLE)
    info = {"scheduler": "slurm", "key": f"slurm/{job}", "kinds": "compute"}
    if privacy != "off":
        uid = str(FIRST_UID + whose)
        user = PEOPLE[whose] if privacy == "name" else uid
        info |= {"user": user, "uid": uid, "users": user}
    labels = {"pid": pid, "start": str(int(booted)), "command": "python", "job": job, "role": "gpu", **gpu.labels}
    return Target(subject=PROCESS_GPU, key=f"{gpu.key}///{pid}", labels=labels, info=info)
