"""The page is rendered once a beat, and does not outlive the beats."""

import gzip
import threading

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.export.page import OLDEST, Page
from gpuwatch.model.view import View
from tests.fakes import page_view
from tests.fakes.clock import FakeClock
from tests.fakes.until import PATIENCE


class Board:
    """Hands out the view, counts how often it was asked, and can fail or hold its answer back."""

    def __init__(self) -> None:
        self.watts, self.asked, self.broken = 100.0, 0, False
        self.open = threading.Event()
        self.open.set()

    def view(self) -> View:
        """Return the view of now."""
        self.asked += 1
        self.open.wait(PATIENCE)
        if self.broken:
            raise RuntimeError("the board fails")
        return page_view.view([page_view.entry(page_view.target(gpu.GPU), {gpu.POWER: self.watts})])


@pytest.fixture
def board() -> Board:
    """Return a board of one GPU."""
    return Board()


@pytest.fixture
def page(board: Board, clock: FakeClock) -> Page:
    """Return the page over that board."""
    return Page(board.view, clock)


def test_scrapes_within_a_beat_read_the_board_once_and_get_equal_bytes(page: Page, board: Board) -> None:
    assert page.get() == page.get()
    page.get(openmetrics=True)
    page.get(gzip=True)
    assert board.asked == 1


def test_a_new_beat_shows_on_the_next_scrape(page: Page, board: Board) -> None:
    before = page.get()
    board.watts = 250.0
    assert page.get() == before
    page.turn()
    assert b" 250\n" in page.get()
    assert board.asked == 2


def test_beats_that_nobody_scrapes_cost_no_rendering(page: Page, board: Board) -> None:
    for _ in range(100):
        page.turn()
    page.get()
    assert board.asked == 1


def test_when_the_beats_stop_the_page_does_not_serve_old_values_for_ever(page: Page, board: Board, clock: FakeClock) -> None:
    page.get()
    clock.forward(OLDEST - 0.1)
    page.get()
    assert board.asked == 1
    clock.forward(0.1)
    page.get()
    assert board.asked == 2


def test_a_board_that_fails_is_not_covered_up_by_the_page_before(page: Page, board: Board) -> None:
    page.get()
    page.turn()
    board.broken = True
    with pytest.raises(RuntimeError):
        page.get()
    with pytest.raises(RuntimeError):
        page.get()
    board.broken = False
    assert b"gpuwatch_gpu_power_watts" in page.get()


def test_twenty_scrapes_at_once_render_once(page: Page, board: Board) -> None:
    """client_python#449: two Prometheus servers doubled the collection."""
    board.open.clear()
    pages: list[bytes] = []
    threads = [threading.Thread(target=lambda: pages.append(page.get(openmetrics=True, gzip=True))) for _ in range(20)]
    for thread in threads:
        thread.start()
    board.open.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert (len(pages), len(set(pages)), board.asked) == (20, 1, 1)


def test_the_json_is_written_once_a_beat_and_all_who_ask_share_its_bytes(page: Page, board: Board, clock: FakeClock) -> None:
    written: list[View] = []

    def encode(view: View) -> bytes:
        written.append(view)
        return b"{%d}" % len(written)

    first = page.json(encode)
    page.get()
    assert (page.json(encode) is first, len(written), board.asked) == (True, 1, 1)
    page.turn()
    assert (page.json(encode), board.asked) == (b"{2}", 2)
    clock.forward(OLDEST)
    assert (page.json(encode), board.asked) == (b"{3}", 3)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_the_compressed_page_is_the_plain_one(page: Page, openmetrics: bool) -> None:
    assert gzip.decompress(page.get(openmetrics=openmetrics, gzip=True)) == page.get(openmetrics=openmetrics)


def test_the_page_has_the_numbers_of_our_own_process(page: Page) -> None:
    for body in (page.get(), page.get(openmetrics=True)):
        for name in (b"process_cpu_seconds_total ", b"process_resident_memory_bytes ", b"process_open_fds ", b"python_info{"):
            assert b"\n" + name in body


def test_only_openmetrics_has_the_end_mark_and_has_it_once_and_last(page: Page) -> None:
    assert b"# EOF" not in page.get()
    body = page.get(openmetrics=True)
    assert (body.count(b"# EOF\n"), body.endswith(b"# EOF\n")) == (1, True)
