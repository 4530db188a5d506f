"""The sockets that HTTP listens on: taken ports, stale files, and what systemd hands over."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.cli import demo, main
from gpuwatch.client import Client
from gpuwatch.config import ConfigError, Http
from gpuwatch.export import sockets
from gpuwatch.export.sockets import ListenError, address, listen_tcp, listen_unix
from tests.fakes.until import PATIENCE
from tests.fakes.web import serving


@pytest.fixture
def taken() -> Iterator[int]:
    """Return a port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9843", ("127.0.0.1", 9843)),
        ("[::1]:9843", ("::1", 9843)),
        (":9843", ("", 9843)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_addresses_are_read(text: str, expected: tuple[str, int]) -> None:
    assert address(text) == expected


@pytest.mark.parametrize(
    "text", ["9843", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "::1:9843", "[::1]", "a:65536", "a:-1", "a:٣"]
)
def test_what_is_no_address_is_refused_with_what_was_found(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listen_tcp(text)
    assert (caught.value.key, text in caught.value.problem) == ("http.listen", True)


def test_a_taken_port_is_said_with_its_address_and_what_to_do(taken: int) -> None:
    with pytest.raises(ListenError) as caught:
        listen_tcp(f"127.0.0.1:{taken}")
    words = str(caught.value)
    assert words.startswith(f"127.0.0.1:{taken}: is taken")
    assert f"ss -ltnp sport = :{taken}" in words
    assert "[http] listen" in words


def test_the_demo_on_a_taken_port_or_a_wrong_one_names_its_own_option(capsys: pytest.CaptureFixture[str]) -> None:
    with listen_tcp("127.0.0.1:0") as taken:
        done = subprocess.run(  # a process of its own: it takes the signals and the log
            [sys.executable, "-m", "gpuwatch", "demo", "--listen", f"127.0.0.1:{taken.getsockname()[1]}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, "set --listen to a free address" in done.stderr, "[http]" in done.stderr) == (1, True, False)
    assert "gpuwatch status --socket" not in done.stderr  # nobody is sent to where nobody listens
    assert main(["demo", "--listen", "9850"]) == 2
    assert capsys.readouterr().err.startswith("gpuwatch demo: --listen: expected an address such as ")


@pytest.mark.parametrize(
    ("listen", "said"), [("127.0.0.1:0", "http://127.0.0.1:{}/metrics, "), (":0", "http://localhost:{}/metrics, "), ("", "")]
)
def test_the_demo_says_at_which_port_its_page_is(tmp_path: Path, listen: str, said: str) -> None:
    made = sockets.sockets(Http(listen=listen, socket=str(tmp_path / "a.sock")), {}, os.getpid())
    with contextlib.ExitStack() as stack:
        for one in made:
            stack.enter_context(one)
        assert demo.page(listen, made) == said.format(made[0].getsockname()[1] if listen else "")


def test_an_address_that_this_host_does_not_have_is_said(taken: int) -> None:
    with pytest.raises(ListenError, match="this host does not have that address"):
        listen_tcp(f"192.0.2.1:{taken}")


def test_a_name_that_does_not_exist_is_said() -> None:
    with pytest.raises(ListenError, match="cannot be resolved"):
        listen_tcp("no-such-host.invalid:9843")


def test_every_interface_means_ipv4_too() -> None:
    with listen_tcp(":0") as listening, socket.create_connection(("127.0.0.1", listening.getsockname()[1]), 5):
        assert listening.family in {socket.AF_INET6, socket.AF_INET}


def test_ipv6_loopback_is_listened_on_alone() -> None:
    try:
        listening = listen_tcp("[::1]:0")
    except ListenError:
        pytest.skip("this machine has no IPv6 loopback")
    with listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("::1", port), 5):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)


def test_the_port_is_free_again_at_once_after_a_stop(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        port = served.port
        assert Client(served.address).get("/-/healthy").status == 200
    listen_tcp(f"127.0.0.1:{port}").close()


def test_the_unix_socket_is_open_to_every_user_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "run" / "gpuwatch" / "gpuwatch.sock"
    with listen_unix(path):
        assert (path.stat().st_mode & 0o777, path.is_socket()) == (0o666, True)


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.sock"
    listen_unix(path).close()
    assert path.is_socket()
    with listen_unix(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_the_file_of_our_own_socket_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.sock"
    with listen_unix(path) as ours:
        sockets.remove([ours])
        assert not path.exists()
        sockets.remove([ours])


def test_the_file_of_somebody_elses_socket_stays(tmp_path: Path) -> None:
    path, kept = tmp_path / "gpuwatch.sock", tmp_path / "kept.sock"
    with listen_unix(path) as ours, socket.socket(socket.AF_UNIX) as handed, socket.create_server(("127.0.0.1", 0)) as tcp:
        path.rename(kept)  # its number is not given to another file meanwhile
        handed.bind(str(path))
        sockets.remove([ours, handed, tcp])
        assert path.is_socket()


def test_a_start_that_fails_leaves_no_socket_file(tmp_path: Path) -> None:
    file, path = tmp_path / "gpuwatch.toml", tmp_path / "gpuwatch.sock"
    file.write_text(f'[http]\nlisten = ""\nsocket = "{path}"\n[rules.none]\nenabled = false\n')
    command = [sys.executable, "-m", "gpuwatch", "run", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr.startswith(f"{file}: "), path.exists()) == (2, True, False)


def test_a_living_daemon_keeps_its_socket(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        with pytest.raises(ListenError, match="another gpuwatch is running and answers there"):
            listen_unix(served.path)
        assert Client(str(served.path)).get("/-/healthy").status == 200


def test_a_daemon_that_is_too_busy_to_accept_keeps_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "busy.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(ListenError, match="another gpuwatch is running"):
            listen_unix(path)
    assert path.is_socket()


def test_what_is_not_a_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ListenError, match="is not a socket"):
        listen_unix(path)
    assert path.read_text() == "mine"


def test_a_path_that_is_too_long_or_has_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="too long"):
        listen_unix(tmp_path / ("x" * 120))
    (tmp_path / "file").write_text("")
    with pytest.raises(ListenError, match="cannot listen: "):
        listen_unix(tmp_path / "file" / "gpuwatch.sock")


def test_nothing_stays_open_when_the_second_of_two_fails(tmp_path: Path, taken: int) -> None:
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ListenError):
        sockets.sockets(Http(listen=f"127.0.0.1:{port}", socket=str(tmp_path / "file")), {}, os.getpid())
    listen_tcp(f"127.0.0.1:{port}").close()


def test_tcp_is_switched_off_by_an_empty_address(tmp_path: Path) -> None:
    [only] = sockets.sockets(Http(listen="", socket=str(tmp_path / "a.sock")), {}, os.getpid())
    with only:
        assert only.family == socket.AF_UNIX


@pytest.mark.parametrize("environ", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_PID": "x"}])
def test_sockets_for_another_process_are_not_touched(environ: dict[str, str]) -> None:
    assert sockets.inherited(environ, os.getpid()) == {}


CHILD = """
import os, sys
from gpuwatch.config import Http
from gpuwatch.export import sockets
given, path = [int(number) for number in sys.argv[1].split(",")], sys.argv[2]
moved = [os.dup(number) for number in given]
for place, number in enumerate(moved, 3):
    os.dup2(number, place)
    os.set_inheritable(place, True)  # as systemd leaves them
environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(given)), "LISTEN_FDNAMES": sys.argv[3]}
found = sockets.inherited(environ, os.getpid())
print({name: [(s.family.name, s.fileno(), os.get_inheritable(s.fileno())) for s in group] for name, group in found.items()})
for group in found.values():
    for handed in group:
        handed.detach()
made = sockets.sockets(Http(listen="127.0.0.1:0", socket=path), environ, os.getpid())
print([(s.family.name, s.fileno() in (3, 4)) for s in made])
"""


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ("web:local", "{'web': [('AF_INET', 3, False)], 'local': [('AF_UNIX', 4, False)]}"),
        ("gpuwatch.socket:gpuwatch.socket", "{'gpuwatch.socket': [('AF_INET', 3, False), ('AF_UNIX', 4, False)]}"),
        ("", "{'unknown': [('AF_INET', 3, False), ('AF_UNIX', 4, False)]}"),
    ],
)
def test_sockets_from_systemd_are_taken_by_name_and_stand_in_place_of_our_own(tmp_path: Path, names: str, shown: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, listen_unix(tmp_path / "handed.sock") as unix:
        fds = (tcp.fileno(), unix.fileno())
        command = [sys.executable, "-c", CHILD, f"{fds[0]},{fds[1]}", str(tmp_path / "own.sock"), names]
        done = subprocess.run(command, pass_fds=fds, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout.splitlines(), done.stderr) == ([shown, "[('AF_INET', True), ('AF_UNIX', True)]"], "")
    assert not (tmp_path / "own.sock").exists()
