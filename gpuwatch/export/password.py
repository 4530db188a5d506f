"""Basic auth: is this header one of the users? A good header is remembered, so that bcrypt is not paid on every scrape."""

import base64
import binascii
import hashlib
from collections.abc import Mapping

REMEMBER = 300.0  # seconds
MOST = 256  # headers remembered; a site has a few
# Compared with when the user is unknown, so that the time of the answer does not tell who exists. Nobody has its password.
NOBODY = b"$2b$10$" + b"." * 53


class Passwords:
    """Knows the users. `remembered` and `remember` are for the loop; `check` takes up to a second and is for the pool."""

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = dict(users)
        self._good: dict[bytes, tuple[str, float]] = {}

    @property
    def asked(self) -> bool:
        """Whether a password is asked at all."""
        return bool(self._users)

    def remembered(self, header: str, now: float) -> str | None:
        """Return the user of a header that was right within the last five minutes."""
        user, until = self._good.get(digest(header), ("", 0.0))
        return user if now < until else None

    def remember(self, header: str, user: str, now: float) -> None:
        """Keep a good header, by its hash alone."""
        if len(self._good) >= MOST:
            self._good = {key: kept for key, kept in self._good.items() if now < kept[1]}
        if len(self._good) < MOST:
            self._good[digest(header)] = (user, now + REMEMBER)

    def check(self, header: str) -> str | None:
        """Return the user whose name and password this header holds, None where it holds none. Slow."""
        found = credentials(header)
        if found is None:
            return None
        import bcrypt  # noqa: PLC0415 - only a host with passwords pays for it

        user, password = found
        # bcrypt looks at 72 bytes; its Python library refuses more, Go's cuts
        right = bcrypt.checkpw(password.encode()[:72], self._users.get(user, NOBODY))
        return user if right and user in self._users else None


def credentials(header: str) -> tuple[str, str] | None:
    """Read `Basic ...`; None where it is something else."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon and "\0" not in password else None


def digest(header: str) -> bytes:
    """Return the hash by which a header is remembered."""
    return hashlib.sha256(header.encode()).digest()
