"""One thing of a Subject: this GPU, that disk."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwatch.model.metric import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing that is looked at. Equal by subject and key; labels and info may change during its life.

    Keys (rulings 2): a GPU's UUID, else its PCI address; a disk's WWN, else model and serial; a mount point; an interface.
    `labels` become the labels of its series (`gpu`, `uuid`); `info` is text that can change (driver, firmware, slot label).
    """

    subject: Subject
    key: str
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)
    info: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __hash__(self) -> int:
        return hash(self.key)  # of the few that share a key, each is of another subject; this is called a thousand times a beat

    def __str__(self) -> str:
        first = next(iter(self.labels.values()), self.key)
        return f"{self.subject.name} {first}" if first else self.subject.name
