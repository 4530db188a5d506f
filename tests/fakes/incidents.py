"""Incidents for tests of telling: one of a GPU that is too hot, with every field to change."""

from typing import Any

from msgspec.structs import replace

from gpuwatch.model.alert import AlertState, Incident, Severity

WALL = 1_700_000_000.0
HOT = Incident(
    id="01HF0000000000000000000001",
    rule="gpu_overheating",
    subject="gpu",
    key="GPU-00000000-0000-0000-0000-000000000003",
    labels={
        "rule": "gpu_overheating",
        "gpu": "3",
        "uuid": "GPU-00000000-0000-0000-0000-000000000003",
        "host": "vision-07",
    },
    info={"name": "Model X", "pci_bus_id": "0000:65:00.0", "label": "slot 3", "serial": "0000000000000"},
    severity=Severity.WARNING,
    highest=Severity.WARNING,
    state=AlertState.FIRING,
    since=WALL - 120,
    fired_at=WALL,
    changed_at=WALL,
    ended_at=None,
    value=88.0,
    summary="vision-07 GPU 3 (slot 3) at 88 C, limit 85",
    numbers={"temperature_celsius_core": 88.0, "threshold": 85.0},
    words={"next": "check the fans and the air"},
)


def hot(number: int = 1, **changes: Any) -> Incident:
    """Return an incident of GPU `number`, of its own identity."""
    uuid = f"GPU-00000000-0000-0000-0000-{number:012d}"
    labels = {"rule": HOT.rule, "gpu": str(number), "uuid": uuid, "host": "vision-07"}
    own = {"id": f"01HF{number:022d}", "key": uuid, "labels": labels, "summary": f"vision-07 GPU {number} at 88 C, limit 85"}
    return replace(HOT, **{**own, **changes})


def ended(incident: Incident, at: float = WALL + 600) -> Incident:
    """Return the incident at its end."""
    return replace(incident, state=AlertState.INACTIVE, ended_at=at, changed_at=at)


def stale(incident: Incident, at: float = WALL + 300) -> Incident:
    """Return the incident once its data stopped."""
    return replace(incident, state=AlertState.STALE, changed_at=at)


def worse(incident: Incident, at: float = WALL + 60) -> Incident:
    """Return the incident at critical."""
    return replace(incident, severity=Severity.CRITICAL, highest=Severity.CRITICAL, changed_at=at)


def milder(incident: Incident, at: float = WALL + 90) -> Incident:
    """Return the incident at warning."""
    return replace(incident, severity=Severity.WARNING, changed_at=at)
