"""A 32-bit counter goes on over its wraps, and a counter that starts anew is taken as it is."""

from gpuwatch.sources.host.wrap import WIDTH, Unwrapped


def test_a_counter_goes_on_over_its_wraps() -> None:
    counters = Unwrapped()
    seen = [counters.follow("sda", raw) for raw in (WIDTH - 1000, WIDTH - 1, 500, 1500, WIDTH - 10, 5)]
    assert seen == [WIDTH - 1000, WIDTH - 1, WIDTH + 500, WIDTH + 1500, 2 * WIDTH - 10, 2 * WIDTH + 5]


def test_a_disk_that_was_plugged_in_again_starts_anew() -> None:
    counters = Unwrapped()
    assert [counters.follow("sda", raw) for raw in (90_000, 20, 40)] == [90_000, 20, 40]


def test_each_counter_is_followed_by_its_name_until_it_is_gone() -> None:
    counters = Unwrapped()
    for name in ("sda", "sdb"):
        counters.follow(name, WIDTH - 1)
    assert counters.follow("sda", 1) == WIDTH + 1
    counters.keep(frozenset({"sda"}))
    assert counters.follow("sda", 2) == WIDTH + 2
    assert counters.follow("sdb", 1) == 1
