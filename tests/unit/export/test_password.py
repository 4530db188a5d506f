"""Basic auth: who is let in, and for how long that is remembered."""

import base64

import bcrypt
import pytest

from gpuwatch.export.password import MOST, NOBODY, REMEMBER, Passwords

GOOD = "correct horse"
LONG = "x" * 100


def hashed(password: str) -> bytes:
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4))


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def passwords() -> Passwords:
    """Return three users: a plain one, one with a colon and Chinese in the password, one with more than 72 bytes."""
    return Passwords({"prom": hashed(GOOD), "zh": hashed("密:码"), "long": hashed(LONG)})


@pytest.mark.parametrize(
    ("header", "user"),
    [
        (basic("prom", GOOD), "prom"),
        (basic("prom", GOOD).replace("Basic", "bAsIc"), "prom"),
        (basic("zh", "密:码"), "zh"),
        (basic("long", LONG), "long"),
        (basic("prom", "wrong"), None),
        (basic("prom", ""), None),
        (basic("prom", GOOD + "\0"), None),
        (basic("nobody", GOOD), None),
        (basic("", ""), None),
        ("Bearer abc", None),
        ("Basic ???", None),
        ("Basic " + base64.b64encode(b"\xff\xfe:x").decode(), None),
        ("Basic " + base64.b64encode(b"nocolon").decode(), None),
        ("Basic", None),
        ("", None),
    ],
)
def test_only_a_known_user_with_the_right_password_is_let_in(passwords: Passwords, header: str, user: str | None) -> None:
    assert passwords.check(header) == user


def test_the_hash_for_unknown_users_is_a_valid_one() -> None:
    """bcrypt would raise for a malformed one, and an unknown user would become our mistake."""
    assert not bcrypt.checkpw(b"anything", NOBODY)


def test_a_good_header_is_remembered_for_five_minutes_by_its_hash_alone(passwords: Passwords) -> None:
    header = basic("prom", GOOD)
    assert passwords.remembered(header, 0.0) is None
    passwords.remember(header, "prom", 0.0)
    assert passwords.remembered(header, REMEMBER - 1) == "prom"
    assert passwords.remembered(basic("prom", "wrong"), 0.0) is None
    assert passwords.remembered(header, REMEMBER) is None
    assert header not in repr(passwords._good)


def test_memory_for_headers_is_bounded_and_old_ones_make_room(passwords: Passwords) -> None:
    for index in range(2 * MOST):
        passwords.remember(basic("prom", str(index)), "prom", 0.0)
    assert len(passwords._good) == MOST
    passwords.remember(basic("prom", "new"), "prom", REMEMBER + 1)
    assert passwords.remembered(basic("prom", "new"), REMEMBER + 2) == "prom"
    assert len(passwords._good) == 1


def test_without_users_no_password_is_asked() -> None:
    assert (Passwords({}).asked, Passwords({"a": b""}).asked) == (False, True)
