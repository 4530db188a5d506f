"""Prometheus' web-config file: TLS and passwords, in the format of exporter-toolkit, so that one file serves a host.

Keys that Prometheus knows and that we cannot honour are refused by name: a setting that is silently not in force is worse
than a daemon that says so. Nothing here puts a password, a hash or a header into an error or a log line.
"""

import logging
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch import plainfile
from gpuwatch.config import ConfigError, unknown

log = logging.getLogger(__name__)

VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
CLIENTS = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users")
TLS_KEYS = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version", "max_version")
# Valid for exporter-toolkit. The first two mean nothing to us: we choose among modern ciphers and speak HTTP/1.1.
WITHOUT_EFFECT = {"prefer_server_cipher_suites", "http2"}
NOT_OURS = {"cert", "key", "client_ca", "client_allowed_sans", "cipher_suites", "curve_preferences", "headers", "rate_limit"}
LIBRARY = re.compile(r"^\[\w+(: \w+)?\] | \(_ssl\.c:\d+\)$")
BCRYPT = re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}")


class Tls(msgspec.Struct):
    """Certificate and key, and the context that new connections use."""

    certificate: Path
    key: Path
    context: ssl.SSLContext
    seen: tuple[object, ...] = ()

    def refresh(self) -> None:
        """Load certificate and key again if they have changed: whoever renews certificates need not tell us.

        A pair that does not fit (one of the files is already new) leaves the old one in force; called on the loop.
        """
        now = (stamp(self.certificate), stamp(self.key))
        if now == self.seen:
            return
        self.seen = now
        try:
            # Tried aside first: a failed load into the live context would leave it with a certificate and no key.
            fresh_context().load_cert_chain(self.certificate, self.key, password="")
            self.context.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            log.warning("%s has changed and cannot be used, the old certificate stays: %s", self.certificate, said(error))
        else:
            log.info("%s has changed and is in use for new connections", self.certificate)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the file says: TLS or none, and users with their bcrypt hashes (empty: no password is asked)."""

    tls: Tls | None = None
    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def load(file: str) -> WebConfig:
    """Read the file, "" for none; relative paths in it count from its folder. Raises ConfigError."""
    if not file:
        return WebConfig()
    import yaml  # noqa: PLC0415 - only a host that has such a file pays its 1 MB and 12 ms

    try:
        table = yaml.safe_load(plainfile.text(file))
    except plainfile.UnreadableError as error:
        raise ConfigError(file, "", error.problem) from None
    except (ValueError, RecursionError):  # of int() and of deep nesting; yaml lets them through
        raise ConfigError(file, "", "is not valid YAML: a value in it cannot be used") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # its text quotes the line, and a line may hold a hash
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigError(file, "", f"is not valid YAML{where}") from None
    top = section(file, "", {} if table is None else table, SECTIONS)
    section(file, "http_server_config", top.get("http_server_config") or {}, ("http2",))
    tls = top.get("tls_server_config")
    return WebConfig(load_tls(file, tls) if tls else None, load_users(file, top.get("basic_auth_users") or {}))


def section(file: str, name: str, table: object, keys: tuple[str, ...]) -> dict[str, Any]:
    """Check that this is a mapping with keys that we honour; raises ConfigError."""
    if not isinstance(table, dict):
        raise ConfigError(file, name, f"expected a mapping, found {of_kind(table)}")
    for key in table:
        place = f"{name}.{key}" if name else str(key)
        if key in NOT_OURS:
            raise ConfigError(file, place, "is a setting of Prometheus that gpuwatch does not have; remove it for gpuwatch")
        if key not in keys and key not in WITHOUT_EFFECT:
            raise ConfigError(file, place, unknown(str(key), dict.fromkeys(keys)))
    return table


def load_tls(file: str, found: object) -> Tls:
    """Build the TLS context; raises ConfigError."""
    name = "tls_server_config"
    table = section(file, name, found, TLS_KEYS)
    folder = Path(file).resolve().parent
    for key in ("cert_file", "key_file"):
        if not isinstance(table.get(key), str) or not table[key]:
            raise ConfigError(file, f"{name}.{key}", "is missing, and it is required")
    context = fresh_context()
    context.minimum_version = chosen(file, f"{name}.min_version", table.get("min_version", "TLS12"), VERSIONS)
    if "max_version" in table:
        context.maximum_version = chosen(file, f"{name}.max_version", table["max_version"], VERSIONS)
    certificate, key = folder / table["cert_file"], folder / table["key_file"]
    readable(file, f"{name}.cert_file", certificate)
    readable(file, f"{name}.key_file", key)
    tls = Tls(certificate, key, context, (stamp(certificate), stamp(key)))
    try:
        context.load_cert_chain(certificate, key, password="")  # "": a key with a passphrase fails, and does not ask the terminal
    except OSError as error:
        raise ConfigError(file, f"{name}.cert_file", f"{certificate} with {key} cannot be used: {said(error)}") from None
    load_clients(file, table, folder, context)
    return tls


def readable(file: str, name: str, path: Path) -> None:
    """Refuse what is no small text file: the library would wait for whoever writes into a FIFO. Raises ConfigError."""
    try:
        plainfile.text(path)
    except plainfile.UnreadableError as error:
        raise ConfigError(file, name, f"{path} {error.problem}") from None


def load_clients(file: str, table: Mapping[str, Any], folder: Path, context: ssl.SSLContext) -> None:
    """Set which certificates clients must show; raises ConfigError."""
    name = "tls_server_config"
    authorities = table.get("client_ca_file")
    mode = chosen(file, f"{name}.client_auth_type", table.get("client_auth_type") or "NoClientCert", CLIENTS)
    if mode is ssl.CERT_NONE:
        if authorities:
            raise ConfigError(file, f"{name}.client_ca_file", "has no effect without client_auth_type")
        return
    if not isinstance(authorities, str):
        raise ConfigError(file, f"{name}.client_ca_file", "is missing, and this client_auth_type requires it")
    try:
        readable(file, f"{name}.client_ca_file", folder / authorities)
        context.load_verify_locations(folder / authorities)
    except OSError as error:
        raise ConfigError(file, f"{name}.client_ca_file", f"{folder / authorities} cannot be used: {said(error)}") from None
    context.verify_mode = mode


def load_users(file: str, found: object) -> dict[str, bytes]:
    """Check the users and their hashes; raises ConfigError that names the user and not the hash."""
    if not isinstance(found, dict):
        raise ConfigError(file, "basic_auth_users", f"expected a mapping of user to bcrypt hash, found {of_kind(found)}")
    users = {}
    for user, hashed in found.items():
        if not isinstance(hashed, str) or not BCRYPT.fullmatch(hashed):
            expected = "expected a bcrypt hash, as `htpasswd -nBC 10 USER` prints it"
            raise ConfigError(file, f"basic_auth_users.{user}", f"{expected}, found {of_kind(hashed)} that is none")
        users[str(user)] = hashed.encode()
    return users


def of_kind(found: object) -> str:
    """Return what kind of thing was found; itself it may be a secret."""
    return "text" if isinstance(found, str) else "a list" if isinstance(found, list) else "a value"


def chosen(file: str, name: str, found: object, known: Mapping[str, Any]) -> Any:
    """Return the meaning of a word; raises ConfigError with the words that are known."""
    if not isinstance(found, str) or found not in known:
        raise ConfigError(file, name, f"expected one of {', '.join(known)}, found {found!r}")
    return known[found]


def fresh_context() -> ssl.SSLContext:
    """Return an empty server context."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def stamp(path: Path) -> object:
    """Return what changes when a file is written or replaced, None where it is not there now."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def said(error: OSError) -> str:
    """Return why, without the library's names and source lines: `[SSL] PEM lib (_ssl.c:3926)`."""
    reason = str(getattr(error, "reason", None) or error.strerror or type(error).__name__)
    return LIBRARY.sub("", reason).replace("_", " ").lower()
