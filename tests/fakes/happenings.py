"""Events as the sources tell them."""

from gpuwatch.catalogue.events import KINDS
from gpuwatch.catalogue.xids import xid as known
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event


def xid(code: int, key: str, at: float, *, source: str = "kernel", count: int = 1, mark: str = "", **facts: str) -> Event:
    """Return an Xid; the kernel names the GPU by its address, NVML by its UUID."""
    severity = known(code).severity
    if code == 154:
        severity = {"0": Severity.INFO, "": Severity.WARNING}.get(facts.get("recovery", ""), Severity.CRITICAL)
    if "fatal" in facts:
        severity = Severity.CRITICAL if facts["fatal"] == "yes" else Severity.WARNING
    return Event(
        source=source,
        kind="xid",
        severity=severity,
        at=at,
        words=f"NVRM: Xid (PCI:{key}): {code}" if source == "kernel" else f"Xid {code}",
        subject="gpu",
        key=key,
        code=code,
        facts=facts,
        count=count,
        mark=mark,
    )


def told(kind: str, severity: Severity, at: float, key: str = "", *, count: int = 1, mark: str = "", **facts: str) -> Event:
    """Return an event of another kind, from the kernel log."""
    subject = KINDS[kind].subject
    return Event(
        source="kernel",
        kind=kind,
        severity=severity,
        at=at,
        words=f"{kind} {key}",
        subject=subject,
        key=key,
        facts=facts,
        count=count,
        mark=mark,
    )
