"""Prometheus' web-config file: what is honoured, what is refused, and that no secret shows."""

import ssl
from pathlib import Path

import bcrypt
import pytest

from gpuwatch.config import ConfigError
from gpuwatch.export import webconfig
from tests.fakes.certificate import Authority

HASH = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with server.pem and server.key, signed by ca.pem."""
    Authority(tmp_path).pair("server")
    return tmp_path


def load(folder: Path, text: str) -> webconfig.WebConfig:
    file = folder / "web.yml"
    file.write_text(text, encoding="utf-8")
    return webconfig.load(str(file))


TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"


@pytest.mark.parametrize("text", ["", "{}", "basic_auth_users: {}", "# nothing\n", "http_server_config:\n  http2: true\n"])
def test_a_file_that_asks_for_nothing_gives_nothing(folder: Path, text: str) -> None:
    assert load(folder, text) == webconfig.WebConfig()


def test_no_file_means_neither_tls_nor_passwords() -> None:
    assert webconfig.load("") == webconfig.WebConfig()


def test_paths_count_from_the_folder_of_the_file_and_tls_is_12_or_newer(folder: Path) -> None:
    tls = load(folder, TLS).tls
    assert tls is not None
    assert (tls.certificate, tls.context.minimum_version) == (folder / "server.pem", ssl.TLSVersion.TLSv1_2)


def test_versions_and_client_certificates_are_set_as_written(folder: Path) -> None:
    text = TLS + "  min_version: TLS13\n  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
    tls = load(folder, text).tls
    assert tls is not None
    assert (tls.context.minimum_version, tls.context.verify_mode) == (ssl.TLSVersion.TLSv1_3, ssl.CERT_REQUIRED)


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2y$"])
def test_users_with_each_kind_of_bcrypt_hash_are_taken(folder: Path, prefix: str) -> None:
    assert list(load(folder, f"basic_auth_users:\n  prom: {prefix}{HASH[4:]}\n").users) == ["prom"]


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("- a\n", "", "expected a mapping"),
        ("tls_sever_config: {}\n", "tls_sever_config", "did you mean tls_server_config?"),
        ("tls_server_config: 5\n", "tls_server_config", "expected a mapping"),
        ("tls_server_config:\n  cert_file: server.pem\n", "tls_server_config.key_file", "is missing"),
        ("tls_server_config:\n  key_file: server.key\n", "tls_server_config.cert_file", "is missing"),
        (TLS + "  min_version: TLS9\n", "tls_server_config.min_version", "expected one of TLS10"),
        (TLS + "  min_version: [1]\n", "tls_server_config.min_version", "expected one of TLS10"),
        (
            TLS + "  client_auth_type: RequireAnyClientCert\n",
            "tls_server_config.client_auth_type",
            "expected one of NoClientCert",
        ),
        (TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "tls_server_config.client_ca_file", "is missing"),
        (TLS + "  client_ca_file: ca.pem\n", "tls_server_config.client_ca_file", "has no effect"),
        (
            TLS + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: nope.pem\n",
            "tls_server_config.client_ca_file",
            "No such file",
        ),
        (
            TLS + "  cipher_suites: [X]\n",
            "tls_server_config.cipher_suites",
            "is a setting of Prometheus that gpuwatch does not have",
        ),
        (TLS + "  certfile: x\n", "tls_server_config.certfile", "did you mean cert_file?"),
        ("http_server_config:\n  headers: {}\n", "http_server_config.headers", "that gpuwatch does not have"),
        ("basic_auth_users: [a]\n", "basic_auth_users", "expected a mapping"),
        ("basic_auth_users:\n  prom: hunter2\n", "basic_auth_users.prom", "expected a bcrypt hash"),
        (TLS.replace("server.pem", "nope.pem"), "tls_server_config.cert_file", "No such file"),
        (TLS.replace("server.key", "ca.pem"), "tls_server_config.cert_file", "cannot be used"),
        ("basic_auth_users:\n  prom: 'hunter2\n", "", "is not valid YAML (line"),
        ("x: " + "[" * 5000 + "]" * 5000, "", "is not valid YAML"),
        ("x: " + "9" * 5000, "", "is not valid YAML"),
        (TLS.replace("server.pem", "/dev/zero"), "tls_server_config.cert_file", "is not a regular file"),
        (TLS.replace("server.key", "/dev/zero"), "tls_server_config.key_file", "is not a regular file"),
        ("basic_auth_users: !!python/object/apply:os.getpid []\n", "", "is not valid YAML"),
    ],
)
def test_mistakes_are_named_by_key_and_tell_no_secret(folder: Path, text: str, key: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    assert (caught.value.place, caught.value.key) == (str(folder / "web.yml"), key)
    assert problem in caught.value.problem
    assert "hunter2" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        webconfig.load(str(tmp_path / "none.yml"))
    (tmp_path / "latin.yml").write_bytes(b"a: \xe4\n")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        webconfig.load(str(tmp_path / "latin.yml"))


def test_a_key_with_a_passphrase_is_refused_and_does_not_ask_the_terminal(tmp_path: Path) -> None:
    Authority(tmp_path).pair("server", passphrase="hunter2")
    with pytest.raises(ConfigError, match="cannot be used"):
        load(tmp_path, TLS)


def test_hashes_do_not_show_when_the_configuration_is_printed(folder: Path) -> None:
    assert HASH not in repr(load(folder, f"basic_auth_users:\n  prom: {HASH}\n"))
