"""ULIDs sort in the order in which they were made."""

import threading

from gpuwatch.store.ulid import RANDOM_BITS, Ulid, decode, encode
from tests.fakes.clock import FakeClock
from tests.fakes.until import PATIENCE


def test_a_known_number_has_its_known_text() -> None:
    """The example of the ULID specification."""
    assert encode(int("01563E3AB5D3D6764C61EFB99302BD5B", 16)) == "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_text_becomes_the_number_it_was_made_of() -> None:
    number = (1 << 128) - 12345
    assert decode(encode(number)) == number


def test_ids_of_one_millisecond_go_up(clock: FakeClock) -> None:
    make = Ulid(clock)
    ids = [make() for _ in range(1_000)]
    assert ids == sorted(set(ids))


def test_an_id_tells_its_time(clock: FakeClock) -> None:
    number = decode(Ulid(clock)())
    assert number is not None
    assert number >> RANDOM_BITS == int(clock.wall() * 1000)


def test_ids_go_up_when_the_clock_steps_back_an_hour(clock: FakeClock) -> None:
    make = Ulid(clock)
    before = make()
    clock.step(-3600)
    assert make() > before


def test_ids_go_on_above_those_of_an_earlier_run_whose_clock_was_ahead(clock: FakeClock) -> None:
    clock.step(5 * 365 * 86400)
    old = Ulid(clock)()
    clock.step(-5 * 365 * 86400)
    make = Ulid(clock)
    make.follow(old)
    first, second = make(), make()
    assert old < first < second


def test_what_is_no_ulid_is_not_followed(clock: FakeClock) -> None:
    make, plain = Ulid(clock), Ulid(clock)
    for text in ("", "x" * 26, "8" + "Z" * 25, "01ARZ3NDEKTSV4RRFFQ69G5FAVA", "01ARZ3NDEKTSV4RRFFQ69G5FAU"):
        make.follow(text)
    assert make()[:10] == plain()[:10]


def test_threads_never_get_the_same_id(clock: FakeClock) -> None:
    make, ids = Ulid(clock), list[str]()
    threads = [threading.Thread(target=lambda: ids.extend(make() for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(set(ids)) == 2_000
