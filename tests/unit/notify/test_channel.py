"""Receivers and routes: what is right is built, what is wrong is named."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch import notify
from gpuwatch.config import Config, ConfigError, Host, Route
from gpuwatch.model.alert import Incident, Severity
from gpuwatch.model.naming import Firing, Naming
from gpuwatch.notify.receivers.receiver import MistakeError
from gpuwatch.notify.receivers.secret import mode, secret
from tests.fakes.incidents import HOT, hot, worse

URL = "https://chat.example/hook/token-in-the-path"
ADDRESS = 'expected an address such as "https://host/path", found '


def config(*receivers: dict[str, Any], routes: list[Route] | None = None) -> Config:
    return Config(receivers=list(receivers), routes=routes or [])


def receiver(name: str = "oncall", **keys: Any) -> dict[str, Any]:
    return {"name": name, "kind": "webhook", "url": URL, **keys}


def hearing(channels: notify.Channels, incident: Incident) -> list[str]:
    return [channel.name for channel in channels.hearing(incident)]


def refused(found: Config) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        notify.build(found, "gpuwatch.toml")
    assert caught.value.place == "gpuwatch.toml"
    assert "token-in-the-path" not in str(caught.value)
    assert "hush-hush" not in str(caught.value)
    return caught.value.key, caught.value.problem


def without(table: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


def test_defaults_are_warning_and_resolved() -> None:
    channel = notify.build(config(receiver())).by_name["oncall"]
    assert (channel.min_severity, channel.send_resolved, channel.pace) == (Severity.WARNING, True, 0.0)


def test_a_pace_is_a_duration() -> None:
    assert notify.build(config(receiver(pace="3s"))).by_name["oncall"].pace == 3.0


def test_no_receiver_means_no_channel() -> None:
    assert notify.build(Config()).by_name == {}


def test_a_secret_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{URL}\n")
    table = without(receiver(url_file=str(file)), "url")
    assert getattr(notify.build(config(table)).by_name["oncall"].options, "url") == URL  # noqa: B009 - options are the kind's own


def test_no_repr_shows_a_secret() -> None:
    channels = notify.build(config(receiver(secret="hush-hush")))
    shown = f"{channels!r} {channels.by_name['oncall'].options}"
    assert [word for word in ("token", "hush", "chat.example") if word in shown] == []


@pytest.mark.parametrize(
    ("table", "key", "problem"),
    [
        (without(receiver(), "kind"), "kind", "is missing; known are webhook"),
        (receiver(kind="webhok"), "kind", 'expected a kind of receiver, found "webhok"; did you mean webhook?'),
        (receiver(kind="pigeon"), "kind", 'expected a kind of receiver, found "pigeon"; known are webhook'),
        (receiver(kind=["webhook"]), "kind", "expected a kind of receiver, found an array; did you mean webhook?"),
        (without(receiver(), "name"), "name", "is missing, and it is required"),
        (receiver(name="  "), "name", "is empty; it is what routes and messages call this receiver"),
        (receiver(urll=URL), "urll", "is not a known key; did you mean url?"),
        (without(receiver(), "url"), "url", "is missing, and so is url_file; one of them is required"),
        (receiver(url_file="/x"), "url", "is set together with url_file; keep one of them"),
        (receiver(secret="hush-hush", secret_file="/x"), "secret", "is set together with secret_file; keep one of them"),
        (receiver(secret=5), "secret", "expected text, found a value that is no text"),
        (receiver(url=["token-in-the-path"]), "url", "expected text, found an array"),
        (receiver(url="chat.example/token-in-the-path"), "url", f"{ADDRESS}text that does not begin with https:// or http://"),
        (
            receiver(url="ftp://chat.example/token-in-the-path"),
            "url",
            f"{ADDRESS}text that does not begin with https:// or http://",
        ),
        (receiver(url="https://"), "url", f"{ADDRESS}one without a host"),
        (receiver(url="https://host:99999/token-in-the-path"), "url", f"{ADDRESS}one whose host or port is none"),
        (receiver(url="https://host:0/token-in-the-path"), "url", f"{ADDRESS}one with port 0"),
        (receiver(url="https://host/a\x00b"), "url", f"{ADDRESS}one with a space or a character that is not printed"),
        (
            receiver(url="https://me:hush-hush@host/"),
            "url",
            "has a user or password in it, which is not supported; sign with secret instead",
        ),
        (receiver(secret="whsec_no base64!"), "secret", "begins with whsec_ but what follows is not base64"),
        (
            receiver(min_severity="warn"),
            "min_severity",
            'expected one of info, warning, critical, found "warn"',
        ),
        (receiver(send_resolved="no"), "send_resolved", 'expected true or false, found "no"'),
        (receiver(pace="2h"), "pace", "expected at most 1h between two messages, found 2h"),
        (receiver(ca_file="/nowhere/ca.pem"), "ca_file", "cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_receiver_is_refused_by_key(table: dict[str, Any], key: str, problem: str) -> None:
    assert refused(config(table)) == (f"receivers[0].{key}", problem)


def test_two_receivers_of_one_name_are_refused() -> None:
    assert refused(config(receiver(), receiver())) == (
        "receivers[1].name",
        'is the name of an earlier receiver, too: found "oncall" again, expected another',
    )


def test_a_missing_secret_file_is_named_by_its_key_alone_since_it_may_be_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "gone"
    assert refused(config(receiver(secret_file=str(file)))) == (
        "receivers[0].secret_file",
        "cannot be read: No such file or directory",
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"hush-hush\nsecond\n", "has more than one line"),
        (b"\xff\xfe", "is not UTF-8 text (byte 0)"),
        (b"x" * (1 << 20) + b"x", "is larger than 1 MiB"),
    ],
)
def test_a_secret_file_without_one_line_of_text_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    assert refused(config(receiver(secret_file=str(file)))) == ("receivers[0].secret_file", f'"{file}" {problem}')


@pytest.mark.parametrize("key", ["url_file", "secret_file", "ca_file"])
@pytest.mark.parametrize("kind", ["fifo", "/dev/zero"])
def test_a_file_that_would_be_waited_for_is_refused(tmp_path: Path, key: str, kind: str) -> None:
    file = tmp_path / "odd"
    if kind == "fifo":
        os.mkfifo(file)
    else:
        file.symlink_to(kind)
    table = without(receiver(**{key: str(file)}), "url" if key == "url_file" else "")
    assert refused(config(table)) == (f"receivers[0].{key}", f'"{file}" cannot be read: it is not a regular file')


@pytest.mark.parametrize(
    "wrong",
    [
        {"url_file": "https://hooks.example/hush-hush", "url": ""},
        {"ca_file": "hush-hush"},
        {"kind": "hush-hush"},
        {"min_severity": "hush-hush"},
        {"send_resolved": "hush-hush"},
        {"pace": "hush-hush"},
    ],
)
def test_no_value_of_a_receiver_is_shown_whatever_is_wrong_with_it(wrong: dict[str, Any]) -> None:
    assert "hush-hush" not in " ".join(refused(config(receiver(**wrong))))


def test_a_ca_file_without_certificates_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    assert refused(config(receiver(ca_file=str(file)))) == (
        "receivers[0].ca_file",
        f'"{file}" holds no certificate in PEM form',
    )


def as_nobody(call: Callable[[], object]) -> str:
    """Run a call as a user who is not root, and return what it raised."""
    if os.getuid() != 0:
        with pytest.raises(MistakeError) as caught:
            call()
        return str(caught.value)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            call()
        except BaseException as error:  # noqa: BLE001 - a child must not come back into pytest
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, encoding="utf-8") as stream:
        return stream.read()


def test_a_secret_file_that_may_not_be_read_says_its_mode_and_what_to_do() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: its parents let nobody else in
        file = Path(folder) / "secret"
        file.write_text("hush-hush")
        file.chmod(0)
        Path(folder).chmod(0o711)
        owner = file.stat()
        assert as_nobody(lambda: secret("secret", "", str(file))) == (
            f'secret_file: "{file}" cannot be read: Permission denied (it is ----------, uid {owner.st_uid}, '
            f"gid {owner.st_gid}); chgrp gpuwatch (the daemon's group) and chmod 0640 it"
        )


def test_a_secret_in_a_closed_folder_says_so() -> None:
    assert mode(Path("/proc/self/fd/none/secret")) == "; the folder should let the daemon's user in"


def test_a_route_to_nobody_is_refused_with_the_nearest_name() -> None:
    found = refused(config(receiver(), routes=[Route(receivers=["onkall"])]))
    assert found == ("routes[0].receivers[0]", 'expected the name of a receiver, found "onkall"; did you mean oncall?')


def test_a_route_without_any_receiver_configured_says_so() -> None:
    found = refused(config(routes=[Route(receivers=["oncall"])]))
    assert found == ("routes[0].receivers[0]", 'expected the name of a receiver, found "oncall"; there is none')


@pytest.mark.parametrize(
    ("route", "key"),
    [
        (Route(receivers=["oncall"], min_severity="critcal"), "min_severity"),
        (Route(receivers=["oncall"], match={"severity": "critcal"}), "match.severity"),
    ],
)
def test_a_severity_that_does_not_exist_is_refused_in_a_route(route: Route, key: str) -> None:
    found = refused(config(receiver(), routes=[route]))
    assert found == (f"routes[0].{key}", 'expected one of info, warning, critical, found "critcal"; did you mean critical?')


NAMING = Naming(
    (
        Firing(rule="gpu_dropped", severities=(Severity.CRITICAL,), labels=("gpu", "uuid")),
        Firing(rule="gpu_overheating", severities=(Severity.WARNING, Severity.CRITICAL), labels=("gpu", "uuid")),
        Firing(rule="host_rebooted", severities=(Severity.WARNING,), labels=()),
    ),
    {"rack": "A3"},
    off=frozenset({"host_rebooted"}),
)


@pytest.mark.parametrize(
    ("match", "key", "problem"),
    [
        ({"rule": "gpu_overheatng"}, "rule", '"gpu_overheatng" is not a rule; did you mean gpu_overheating?'),
        ({"rule": "x"}, "rule", '"x" is not a rule; known are gpu_dropped, gpu_overheating, host_rebooted'),
        (
            {"rule": "gpu_dropped", "user": "ann"},
            "user",
            '"user" is not a label of any alert; known are gpu, host, rack, rule, severity, uuid',
        ),
        ({"severity": "x"}, "severity", 'expected one of info, warning, critical, found "x"'),
        ({"device": "vda"}, "device", '"device" is not a label of any alert; known are gpu, host, rack, rule, severity, uuid'),
        (
            {"severity": "warning", "rule": "gpu_dropped"},
            "severity",
            "no alert of gpu_dropped has severity=warning; there is critical",
        ),
        (
            {"gpu": "3", "rule": "host_rebooted"},
            "gpu",
            "no alert of host_rebooted has a label gpu; they have host, rack, rule, severity",
        ),
    ],
)
def test_a_route_for_what_no_alert_can_be_is_refused(match: dict[str, str], key: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        notify.build(config(receiver(), routes=[Route(receivers=["oncall"], match=match)]), "gpuwatch.toml", NAMING)
    assert (caught.value.key, caught.value.problem) == (f"routes[0].match.{key}", problem)


@pytest.mark.parametrize("match", [{"rule": "host_rebooted"}, {"severity": "warning"}])
def test_a_route_whose_alerts_are_all_below_its_severity_is_refused(match: dict[str, str]) -> None:
    found = Route(receivers=["oncall"], match=match, min_severity="critical")
    with pytest.raises(ConfigError) as caught:
        notify.build(config(receiver(), routes=[found]), "gpuwatch.toml", NAMING)
    problem = "no alert that is meant is critical or worse; there is warning"
    assert (caught.value.key, caught.value.problem) == ("routes[0].min_severity", problem)


@pytest.mark.parametrize(
    "match",
    [
        {"rule": "gpu_dropped", "severity": "critical", "gpu": "3", "rack": "B7", "host": "vision-07"},  # hosts share a file
        {"rule": "host_rebooted"},  # which is off here
    ],
)
def test_a_route_for_a_rule_and_labels_that_there_are_is_taken(match: dict[str, str]) -> None:
    route = Route(receivers=["oncall"], match=match)
    assert notify.build(config(receiver(), routes=[route]), "gpuwatch.toml", NAMING).routes == (route,)


def test_without_routes_every_receiver_hears_of_warning_and_above() -> None:
    channels = notify.build(config(receiver("a"), receiver("b")))
    assert (hearing(channels, HOT), hearing(channels, worse(HOT))) == (["a", "b"], ["a", "b"])


def test_info_is_never_a_message_of_its_own() -> None:
    channels = notify.build(config(receiver(min_severity="info"), routes=[Route(receivers=["oncall"], min_severity="info")]))
    assert hearing(channels, replace(HOT, severity=Severity.INFO)) == []


def test_a_receiver_for_critical_does_not_hear_of_a_warning() -> None:
    channels = notify.build(config(receiver(min_severity="critical")))
    assert (hearing(channels, HOT), hearing(channels, worse(HOT))) == ([], ["oncall"])


def test_the_first_route_that_matches_decides() -> None:
    routes = [Route(receivers=["a"], match={"severity": "critical"}), Route(receivers=["b"])]
    channels = notify.build(config(receiver("a"), receiver("b"), routes=routes))
    assert (hearing(channels, worse(HOT)), hearing(channels, HOT)) == (["a"], ["b"])


def test_a_route_that_continues_adds_to_the_next() -> None:
    routes = [Route(receivers=["a"], match={"rule": "gpu_overheating"}, continue_=True), Route(receivers=["b"])]
    channels = notify.build(config(receiver("a"), receiver("b"), receiver("c"), routes=routes))
    assert (hearing(channels, HOT), hearing(channels, replace(HOT, rule="gpu_dropped"))) == (["a", "b"], ["b"])


def test_a_route_matches_on_all_of_its_labels() -> None:
    route = Route(receivers=["oncall"], match={"gpu": "3", "host": "vision-07"})
    channels = notify.build(config(receiver(), routes=[route]))
    assert (hearing(channels, hot(3)), hearing(channels, hot(4))) == (["oncall"], [])


def test_a_route_that_wants_a_label_the_alert_lacks_does_not_match() -> None:
    channels = notify.build(config(receiver(), routes=[Route(receivers=["oncall"], match={"mountpoint": "/"})]))
    assert hearing(channels, HOT) == []


def test_a_route_matches_on_the_labels_of_the_host() -> None:
    routes = [Route(receivers=["a"], match={"rack": "A3"}), Route(receivers=["b"])]
    tables = [receiver("a"), receiver("b")]
    racks = [Config(host=Host(labels={"rack": rack}), receivers=tables, routes=routes) for rack in ("A3", "B1")]
    assert [hearing(notify.build(found), HOT) for found in racks] == [["a"], ["b"]]


def test_a_route_below_its_severity_leaves_the_alert_to_the_next() -> None:
    routes = [Route(receivers=["a"], min_severity="critical"), Route(receivers=["b"])]
    channels = notify.build(config(receiver("a"), receiver("b"), routes=routes))
    assert hearing(channels, HOT) == ["b"]
