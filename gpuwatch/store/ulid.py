"""ULIDs: identities of incidents and deliveries that sort in the order in which they were made."""

import secrets
import threading

from gpuwatch.model.clock import Clock

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32, in ASCII order: text sorts as the numbers do
LENGTH = 26
RANDOM_BITS = 80  # below 48 bits of milliseconds since 1970
DIGITS = {char: value for value, char in enumerate(ALPHABET)}


def encode(number: int) -> str:
    """Return the 26 characters of a 128-bit number."""
    return "".join(ALPHABET[number >> shift & 31] for shift in range(5 * (LENGTH - 1), -1, -5))


def decode(text: str) -> int | None:
    """Return the number of a ULID, None where `text` is none."""
    if len(text) != LENGTH or text[0] > "7" or any(char not in DIGITS for char in text):
        return None
    number = 0
    for char in text:
        number = number << 5 | DIGITS[char]
    return number


class Ulid:
    """Makes ULIDs, each above all earlier ones, also when the wall clock steps back. May be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0
        self._lock = threading.Lock()

    def follow(self, newest: str) -> None:
        """Make every further id sort after `newest`, the newest one that an earlier run left; what is no ULID is ignored."""
        with self._lock:
            self._last = max(self._last, decode(newest) or 0)

    def __call__(self) -> str:
        """Return the next id."""
        fresh = int(self._clock.wall() * 1000) << RANDOM_BITS | secrets.randbits(RANDOM_BITS)
        with self._lock:
            # Within one millisecond and behind a future id the last one is counted up, as the ULID specification has it.
            self._last = fresh if fresh >> RANDOM_BITS > self._last >> RANDOM_BITS else self._last + 1
            return encode(self._last)
