"""How a command finds the daemon that it asks: --socket, --host, the configuration, or where a daemon usually listens."""

import argparse
import os
from pathlib import Path

from gpuwatch import config
from gpuwatch.client import Client
from gpuwatch.places import places

SYSTEM = Path("/run/gpuwatch/gpuwatch.sock")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare where to ask."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file that names the socket")
    parser.add_argument("--socket", metavar="PATH", help="Unix socket of the daemon")
    parser.add_argument("--host", metavar="HOST:PORT", help="ask a daemon over TCP; a URL for TLS")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="file with USER:PASSWORD, for a daemon that wants one")
    parser.add_argument("--ca-file", type=Path, metavar="FILE", help="certificate authority of a daemon with TLS")


def client(args: argparse.Namespace) -> Client:
    """Return the client for the daemon that was named, or for the one of this user, or of this host."""
    where = args.host or (str(Path(args.socket).absolute()) if args.socket else nearest(args.config))
    try:
        return Client(where, password_file=args.password_file, ca_file=args.ca_file)
    except ValueError as error:
        raise config.ConfigError("--host" if args.host else "--socket", "", str(error)) from None


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
