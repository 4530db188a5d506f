"""The bounded queue."""

import threading

from gpuwatch.sampling.mailbox import Mailbox
from tests.fakes.until import PATIENCE


def test_things_come_out_in_their_order() -> None:
    box: Mailbox[int] = Mailbox(3)
    box.put(1)
    box.put(2)
    assert [box.get(0), box.get(0), box.get(0)] == [1, 2, None]


def test_a_full_queue_drops_the_oldest_and_counts() -> None:
    box: Mailbox[int] = Mailbox(3)
    for number in range(10):
        box.put(number)
    assert (box.dropped, [box.get(0) for _ in range(4)]) == (7, [7, 8, 9, None])


def test_the_one_who_waits_is_woken() -> None:
    box: Mailbox[int] = Mailbox(3)
    timer = threading.Timer(0.01, box.put, (5,))
    timer.start()
    assert box.get(10) == 5
    timer.join(PATIENCE)
