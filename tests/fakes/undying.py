"""A process at the supervisor's seam that survives SIGKILL, as one does whose thread is stuck in the driver."""

import os
from typing import BinaryIO


class Undying:
    """Takes what is sent, answers nothing, and is there until the test lets it go."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.kills = 0
        self.is_dismissed = False
        self.status: int | None = None
        read, self._write = os.pipe()
        self.output: BinaryIO = os.fdopen(read, "rb")

    def send(self, data: bytes) -> bool:
        """Take it."""
        return True

    def dismiss(self) -> None:
        """Note it."""
        self.is_dismissed = True

    def kill(self) -> None:
        """Note it; nothing else happens."""
        self.kills += 1

    def poll(self) -> int | None:
        """Return None until it was let go."""
        return self.status

    def let_go(self) -> None:
        """End, as it does when the driver's call returns at last."""
        if self.status is None:
            self.status = -9
            os.close(self._write)
