"""One thing of a Subject: this GPU, that disk."""

from collections.abc import Mapping

import msgspec

from gpuwatch.model.metric import Subject


class Target(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One thing that is looked at. Equal by subject and key; labels and info may change during its life.

    Keys (rulings 2): a GPU's UUID, else its PCI address; a disk's WWN, else model and serial; a mount point; an interface.
    `labels` become the labels of its series (`gpu`, `uuid`); `info` is text that can change (driver, firmware, slot label).
    """

    subject: Subject
    key: str
    labels: Mapping[str, str] = {}
    info: Mapping[str, str] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Target):
            return NotImplemented
        return self.key == other.key and self.subject is other.subject

    def __hash__(self) -> int:
        return hash(self.key)  # of the few that share a key, each is of another subject; this is called a thousand times a beat

    def __str__(self) -> str:
        first = next(iter(self.labels.values()), self.key)
        return f"{self.subject.name} {first}" if first else self.subject.name
