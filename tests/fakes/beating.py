"""A beat with one stand-in for all rooms around it."""

from collections.abc import Callable, Sequence
from typing import Any

from gpuwatch.daemon.beat import Beat
from gpuwatch.daemon.inbox import Inbox
from gpuwatch.model.reading import Reading
from gpuwatch.sampling.board import Board
from tests.fakes.clock import FakeClock

Report = Callable[[float], Sequence[Reading]]


def around(
    rooms: Any, board: Board, inbox: Inbox, clock: FakeClock, *, reports: Sequence[Report], turning: Sequence[Report]
) -> Beat:
    """Return a beat in which `rooms` is every room but board and inbox."""
    return Beat(
        clock=clock,
        board=board,
        inbox=inbox,
        detectors=rooms,
        engine=rooms,
        incidents=rooms,
        store=rooms,
        notifier=rooms,
        page=rooms,
        reports=reports,
        turning=turning,
    )
