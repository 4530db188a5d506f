"""A system that has no thread to spare: the stack that one would get is more than there are addresses."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

TOO_MUCH = 1 << 46  # bytes


@contextmanager
def threadless() -> Iterator[None]:
    """Let no thread of this process start meanwhile."""
    before = threading.stack_size(TOO_MUCH)
    try:
        yield
    finally:
        threading.stack_size(before)
