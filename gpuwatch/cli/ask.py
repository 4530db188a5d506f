"""How a command finds the daemon that it asks, and what it makes of answers that it did not ask for.

The daemon is named by --socket, --host or the configuration, or is where a daemon usually listens.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from gpuwatch import config, plainfile
from gpuwatch.cli import CALLERS_MISTAKE, NOT_REACHABLE, OUR_FAULT
from gpuwatch.client import Client, Reply, Unreachable, UnusableFile
from gpuwatch.model.escape import printable
from gpuwatch.places import places

SYSTEM = Path("/run/gpuwatch/gpuwatch.sock")
OF_DEMO = "gpuwatch-demo-"  # how the folder of a demo begins
PATIENCE = 10.0  # seconds for an answer to a change: the daemon gives its disk three
WRONG: Mapping[int, int] = MappingProxyType({400: CALLERS_MISTAKE})  # the question makes no sense
OPTIONS: Mapping[str, str] = MappingProxyType(  # what the daemon calls a part of a question -> what the commands call it
    {
        "seconds": "--for",
        "comment": "--comment",
        "matchers": "LABEL=VALUE",
        "since": "--since",
        "until": "--until",
        "limit": "--limit",
        "gpu": "--gpu",
        "target": "--target",
        "metric": "METRIC",
    }
)
IN_TIME = 504  # the daemon goes on with what it could not answer in time
STRANGE = (ValueError, KeyError, TypeError, AttributeError)  # what reading the answer of something else raises
STRANGER = "what answers there is no gpuwatch, or one of another version"

Wanted = TypeVar("Wanted")


class DeclinedError(Exception):
    """The daemon did not give what was asked for; the words say why, to a person."""

    def __init__(self, words: str, status: int, code: int) -> None:
        super().__init__(words)
        self.status, self.code = status, code  # of HTTP; of the command


def granted(
    args: argparse.Namespace, place: str, reply: Reply, *, changes: bool = False, plain: Mapping[int, int] = WRONG
) -> Reply:
    """Return an answer that is one; raises ConfigError where a password is wanted, else DeclinedError.

    Who `changes` something hears the daemon's own words and may be refused (exit code 1); who reads hears them where the
    status is one of `plain`, which have the exit codes; any other answer is as good as none.
    """
    if reply.status == 200:
        return reply
    if reply.status == 401:
        raise config.ConfigError(place, "", denied(args))
    said = printable(reply.body.decode("utf-8", "replace").strip(), 400) if changes or reply.status in plain else ""
    code = plain.get(reply.status, OUR_FAULT if changes and reply.status < 500 else NOT_REACHABLE)
    raise DeclinedError(by_option(said) or f"the daemon answered {reply.status}", reply.status, code)


def by_option(said: str) -> str:
    """Return the daemon's words with the option of the command in front, where they begin with what the daemon calls it."""
    name, colon, rest = said.partition(": ")
    return f"{OPTIONS[name]}: {rest}" if colon and name in OPTIONS else said


def conversation(place: str, talk: Callable[[], Wanted], doubt: str = "") -> Wanted | int:
    """Return what a talk with a daemon gives; the exit code where it gave nothing, which is said.

    `doubt` is said where what was asked for may have been done all the same. Raises ConfigError.
    """
    try:
        return talk()
    except Unreachable as error:
        print(f"{place}: {error}", file=sys.stderr)
        code, in_doubt = CALLERS_MISTAKE if isinstance(error, UnusableFile) else NOT_REACHABLE, error.asked
    except DeclinedError as error:
        print(f"{place}: {error}", file=sys.stderr)
        code, in_doubt = error.code, error.status == IN_TIME
    except STRANGE:
        print(f"{place}: {STRANGER}", file=sys.stderr)
        return NOT_REACHABLE
    if doubt and in_doubt:
        print(f"{place}: {doubt}", file=sys.stderr)
    return code


def add(parser: argparse.ArgumentParser) -> None:
    """Declare where to ask."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file that names the socket")
    parser.add_argument("--socket", metavar="PATH", help="Unix socket of the daemon")
    parser.add_argument("--host", metavar="HOST:PORT", help="ask a daemon over TCP; a URL for TLS")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="file with USER:PASSWORD, for a daemon that wants one")
    parser.add_argument("--ca-file", type=Path, metavar="FILE", help="certificate authority of a daemon with TLS")


def client(args: argparse.Namespace) -> Client:
    """Return the client for the daemon that was named, or for the one of this user, or of this host."""
    named = [name for name in ("socket", "host", "config") if getattr(args, name)]
    if len(named) > 1:
        raise config.ConfigError(f"--{named[0]}", "", f"names a daemon, and so does --{named[1]}: one is asked")
    where = args.host or (str(Path(args.socket).absolute()) if args.socket else nearest(args.config))
    if args.ca_file:  # also where no TLS will ask for it
        try:
            plainfile.text(args.ca_file)
        except plainfile.UnreadableError as error:
            raise config.ConfigError("--ca-file", "", f"{args.ca_file} {error.problem}") from None
    otherwise = "" if args.host or args.socket or args.config else demo()
    try:
        return Client(where, password_file=args.password_file, ca_file=args.ca_file, otherwise=otherwise)
    except ValueError as error:
        raise config.ConfigError("--host" if args.host else "--socket", "", str(error)) from None


def demo() -> str:
    """Say where a demo of ours is reached, "" where there is none: on any other host nobody should hear of it."""
    import tempfile  # noqa: PLC0415 - only who names no daemon needs it

    try:
        found = sorted(Path(tempfile.gettempdir()).glob(f"{OF_DEMO}*/gpuwatch.sock"))
    except OSError:  # it ends just now
        return ""
    sockets = [f"--socket {one}" for one in found if is_ours(one) and answers(one)]
    return f" There is a demo: {' or '.join(sockets)}" if sockets else ""


def is_ours(file: Path) -> bool:
    """Whether a file is of this user."""
    try:
        return file.lstat().st_uid == os.geteuid()
    except OSError:  # it ends just now
        return False


def answers(file: Path) -> bool:
    """Whether somebody listens on a Unix socket: a demo that was killed leaves its file behind."""
    import socket  # noqa: PLC0415 - as above

    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(file))
        except BlockingIOError:  # all its places are taken: somebody has it
            return True
        except OSError:
            return False
    return True


def denied(args: argparse.Namespace) -> str:
    """Say what a daemon wants that answered 401."""
    if args.password_file:
        return f"the daemon does not accept the user and password in {args.password_file} (--password-file)"
    return "the daemon wants a user and password: name a file with USER:PASSWORD by --password-file"


def nearest(file: Path | None) -> str:
    """Return the socket of the configuration: the named one, or this user's, or the system's where the user has no daemon."""
    where = places(os.environ, root=os.geteuid() == 0)
    if file is not None:
        return config.load(file, where).http.socket
    own = where.runtime / "gpuwatch.sock"
    if os.path.exists(own) or not os.path.exists(SYSTEM):  # noqa: PTH110 - Path.exists raises for a folder that we may not enter
        try:
            return config.load(None, where).http.socket
        except config.ConfigError:
            return str(own)  # a broken file must not hide a daemon that runs
    return str(SYSTEM)
