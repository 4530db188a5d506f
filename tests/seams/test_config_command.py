"""`gpuwatch config` finds what `gpuwatch run` would refuse, and shows no secret."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.cli import config, main
from gpuwatch.config import open_all
from gpuwatch.model.quantity import size
from gpuwatch.places import Places
from tests.fakes.until import PATIENCE

SECRET = "geheim"


def command(tmp_path: Path, what: str, text: str) -> int:
    """Run the command on a file that says this."""
    file = tmp_path / "gpuwatch.toml"
    head = "" if "[store]" in text else f'[store]\nurl = "sqlite:///{tmp_path / "state" / "gpuwatch.db"}"\n'
    file.write_text(head + text)
    return main(["config", what, "--config", str(file)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[http]\nlisten = "localhost"', 'http.listen: expected an address such as "127.0.0.1:9843"'),
        (f'[store]\nurl = "{SECRET}"', "store.url: expected a file of SQLite"),
        (f'[store]\nurl = "mysql://lena:{SECRET}@db/x"', "gpuwatch.toml: store.url: expected a file of SQLite"),
        (
            f'[store]\nurl = "postgresql+pg8000://lena:{SECRET}@db/x"',
            "store.url: cannot be used: the Python package pg8000 is not installed",
        ),
        ('[http]\nweb_config = "/nowhere.yml"', "gpuwatch.toml: http.web_config: /nowhere.yml cannot be read: No such file"),
        (
            f'[store]\nurl = "postgresql://lena:{SECRET}@db:{SECRET}/x"',
            "store.url: cannot be used: the port in it",
        ),
        (f'[store]\nurl = "postgresql+none://lena:{SECRET}@db/x"', "store.url: cannot be used"),
        (
            '[sources.simulated]\nenabled = true\nscenario = "/nowhere.toml"',
            "gpuwatch.toml: sources.simulated.scenario: /nowhere.toml cannot be read: No such file",
        ),
    ],
)
def test_check_refuses_what_the_daemon_would_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert command(tmp_path, "check", text) == 2
    heard = capsys.readouterr()
    assert said in heard.err
    assert SECRET not in heard.err + heard.out


@pytest.mark.parametrize("text", ["junk", "x = 1", 'model = "none"'])
def test_a_scenario_with_a_mistake_is_refused_by_the_check_and_by_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(text)
    simulated = f'[sources.simulated]\nenabled = true\nscenario = "{scenario}"\n'
    assert command(tmp_path, "check", f'[http]\nlisten = ""\nsocket = "{tmp_path}/s"\n{simulated}') == 2
    checked = capsys.readouterr().err
    assert checked.startswith(f"{scenario}: ")
    done = subprocess.run(  # a process of its own: `run` takes the signals and the log
        [sys.executable, "-m", "gpuwatch", "run", "--config", str(tmp_path / "gpuwatch.toml")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, checked)


@pytest.mark.parametrize("key", ["url", "state"])
@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_store_that_is_no_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    url = place if key == "url" else tmp_path / "x.db"
    state = f'state = "{place}"\n' if key == "state" else ""
    assert command(tmp_path, "check", f'[store]\nurl = "sqlite:///{url}"\n{state}') == 2
    assert f"store.{key}: expected a file, {place} is none" in capsys.readouterr().err


def test_check_starts_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, "check", "") == 0
    said = capsys.readouterr()
    assert said.out == f"the configuration is right: {tmp_path / 'gpuwatch.toml'}\n"
    assert said.err == "warning: nobody will be told: no receiver is configured ([[receivers]])\n"
    assert [path.name for path in tmp_path.iterdir()] == ["gpuwatch.toml"]


def test_show_hides_every_secret_and_shows_where_it_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    receiver = f'[[receivers]]\nname = "a"\nkind = "webhook"\nurl = "https://x.example/{SECRET}"\nsecret = "{SECRET}"\n'
    assert command(tmp_path, "show", receiver) == 0
    shown = capsys.readouterr().out
    assert SECRET not in shown
    assert str(tmp_path / "state" / "gpuwatch.db") in shown


def test_the_address_of_a_database_server_is_hidden_since_a_password_may_stand_in_it() -> None:
    for address in (f"lena:{SECRET}@db/x", f"db/x?user=lena&password={SECRET}"):
        shown = config.hidden({"receivers": [], "store": {"url": f"postgresql://{address}"}})
        assert shown["store"] == {"url": "postgresql://(hidden)"}


def test_check_names_every_file_that_it_read_or_says_that_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conf.d").mkdir()
    for name in ("20.toml", "10.toml"):
        (tmp_path / "conf.d" / name).write_text("")
    assert command(tmp_path, "check", "") == 0
    read = ", ".join(str(tmp_path / name) for name in ("gpuwatch.toml", "conf.d/10.toml", "conf.d/20.toml"))
    assert capsys.readouterr().out == f"the configuration is right: {read}\n"
    nowhere = tmp_path / "nowhere"
    assert open_all(None, Places(nowhere, nowhere, nowhere)).files == ()


WEBHOOK = '[[receivers]]\nname = "a"\nkind = "webhook"\n'


@pytest.mark.parametrize("where", ["url_file", "secret_file", "inline"])
@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_check_warns_of_a_secret_that_everybody_may_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str, mode: int
) -> None:
    holder = tmp_path / ("gpuwatch.toml" if where == "inline" else "secret")
    holder.write_text("https://x.example/")
    text = (
        WEBHOOK
        + {
            "url_file": f'url_file = "{holder}"',
            "secret_file": f'url_file = "{tmp_path / "url"}"\nsecret_file = "{holder}"',
            "inline": 'url = "https://x.example/"',
        }[where]
    )
    (tmp_path / "url").write_text("https://x.example/")
    (tmp_path / "url").chmod(0o600)
    holder.chmod(mode)
    (tmp_path / "gpuwatch.toml").touch()
    if where != "inline":
        (tmp_path / "gpuwatch.toml").chmod(0o644)
    assert command(tmp_path, "check", text) == 0
    words = f"warning: {holder} holds a secret, and every user of this host may read it; {config.PRIVATE}\n"
    assert "chgrp gpuwatch" in config.PRIVATE  # who only takes the others' right away locks the daemon out
    assert capsys.readouterr().err == (words if mode == 0o644 else "")


def test_check_says_which_alerts_nobody_would_hear_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "url").write_text("https://x.example/")
    (tmp_path / "url").chmod(0o600)
    text = f'{WEBHOOK}url_file = "{tmp_path / "url"}"\n[[routes]]\nmatch = {{ severity = "critical" }}\nreceivers = ["a"]\n'
    assert command(tmp_path, "check", text) == 0
    words = "warning: warnings are sent to nobody: no route with a receiver that wants them matches\n"
    assert capsys.readouterr().err == words


def test_check_warns_of_folders_and_programs_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f'[paths]\ndev = "{tmp_path}/dev"\n[sources.smart]\nsmartctl = "{tmp_path}/smartctl"'
    assert command(tmp_path, "check", text) == 0
    heard = capsys.readouterr().err
    assert f"warning: paths.dev: {tmp_path}/dev is no folder that is there" in heard
    assert f"warning: sources.smart.smartctl: {tmp_path}/smartctl is no program" in heard
    assert "paths.proc" not in heard


def test_check_refuses_a_route_for_a_rule_that_does_not_exist_and_takes_one_that_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'{WEBHOOK}url = "https://x.example/"\n[[routes]]\nreceivers = ["a"]\nmatch = {{ rule = "RULE" }}\n'
    text += "[rules.gpu_dropped]\nenabled = false\n"
    assert command(tmp_path, "check", text.replace("RULE", "gpu_droped")) == 2
    assert 'match.rule: "gpu_droped" is not a rule; did you mean gpu_dropped or gpu_errors?' in capsys.readouterr().err
    assert command(tmp_path, "check", text.replace("RULE", "gpu_dropped")) == 0


@pytest.mark.parametrize(
    ("match", "said"),
    [
        ('device = "vda"', 'device: "device" is not a label of any alert; known are gpu, host, port, rule, severity, uuid'),
        ('severity = "info"', "severity: no alert of this host has severity=info; there is warning, critical"),
        (
            'rule = "gpu_dropped", severity = "warning"',
            "severity: no alert of gpu_dropped has severity=warning; there is critical",
        ),
        (
            'rule = "host_rebooted_unexpectedly", gpu = "3"',
            "gpu: no alert of host_rebooted_unexpectedly has a label gpu; they have host, rule, severity",
        ),
    ],
)
def test_check_refuses_a_route_for_what_no_shipped_rule_can_fire(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], match: str, said: str
) -> None:
    text = f'{WEBHOOK}url = "https://x.example/"\n[[routes]]\nreceivers = ["a"]\nmatch = {{ {match} }}\n'
    assert command(tmp_path, "check", text) == 2
    assert f"routes[0].match.{said}\n" in capsys.readouterr().err


def test_show_prints_clear_levels_only_tables_and_the_size_that_is_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
    [rules.gpu_overheating]
    threshold = 90
    [[rules.gpu_overheating.only]]
    model = "*3090*"
    threshold = 88
    [[rules.gpu_overheating.only]]
    uuid = "GPU-1"
    enabled = false
    """
    assert command(tmp_path, "show", text) == 0
    shown = json.loads(capsys.readouterr().out)
    rule = shown["rules"]["gpu_overheating"]
    assert (rule["warning"]["threshold"], rule["warning"]["clear"]) == (90.0, 85.0)
    assert rule["critical"]["clear"] == {"headroom": 6.0, "threshold": 95.0}
    off, other = rule["only"]
    assert off == {"uuid": "GPU-1", "enabled": False}
    assert (other["model"], other["warning"]["threshold"], other["warning"]["clear"]) == ("*3090*", 88.0, 83.0)
    space = os.statvfs(tmp_path)
    assert size(shown["store"]["max_size"]) == min(2 << 30, space.f_blocks * space.f_frsize // 20)
    assert shown["store"]["state"] == str(tmp_path / "state" / "state.db")
    assert command(tmp_path, "show", f'[store]\nurl = "sqlite:///{tmp_path}/x.db"\nmax_size = "100MiB"') == 0
    assert json.loads(capsys.readouterr().out)["store"]["max_size"] == "100MiB"


def test_show_writes_times_as_a_file_has_them_and_names_rules_that_are_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "show", "[rules.gpu_errors]\nenabled = false\n") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["sources"]["nvml"]["every"], shown["sources"]["smart"]["every"]) == ("1s", "10m")
    assert shown["rules"]["gpu_errors"] == {"enabled": False}
    assert shown["rules"]["gpu_overheating"]["critical"]["for"] == "30s"
    assert shown["rules"]["host_rebooted_unexpectedly"]["critical"] == {"day": "1d", "week": "7d"}


@pytest.mark.parametrize("label", ["gpu", "uuid", "severity", "rule", "host"])
def test_a_label_of_the_host_that_alerts_have_of_themselves_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], label: str
) -> None:
    assert command(tmp_path, "check", f'[host]\nlabels = {{ {label} = "x", rack = "7" }}') == 2
    problem = f"host.labels.{label}: is a label that alerts have of themselves: take another name"
    assert capsys.readouterr().err == f"{tmp_path / 'gpuwatch.toml'}: {problem}\n"
    assert command(tmp_path, "check", '[host]\nlabels = { rack = "7" }') == 0


ANY, GPU_3, CRITICAL = "", 'match = { gpu = "3" }\n', 'min_severity = "critical"\n'


@pytest.mark.parametrize(
    ("first", "second", "is_reached"),
    [
        (ANY, GPU_3, False),
        (GPU_3, GPU_3 + CRITICAL, False),
        (GPU_3, 'match = { gpu = "3", rule = "gpu_dropped" }\n', False),
        ("continue = true\n", GPU_3, True),
        (CRITICAL, ANY, True),
        (GPU_3, ANY, True),
        (GPU_3, 'match = { gpu = "4" }\n', True),
    ],
)
def test_check_warns_of_a_route_that_no_alert_gets_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: str, second: str, *, is_reached: bool
) -> None:
    route = '[[routes]]\nreceivers = ["a"]\n'
    url = tmp_path / "url"
    url.write_text("https://x.example/")
    url.chmod(0o600)
    assert command(tmp_path, "check", f'{WEBHOOK}url_file = "{url}"\n{route}{first}{route}{second}') == 0
    words = "warning: routes[1] is never reached: routes[0], without `continue = true`, takes all that it would\n"
    assert (words in capsys.readouterr().err) is not is_reached


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('every = "20s"', "nvml.every: 20 s is longer than every_normal, 10 s: raise that, too"),
        ('every_slow = "5s"', "nvml.every_normal: 10 s is longer than every_slow, 5 s: raise that, too"),
        ('every = "20s"\nevery_normal = "20s"', ""),
        ('every = "2s"', ""),
    ],
)
def test_check_warns_of_a_period_longer_than_that_of_what_changes_less_often(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert command(tmp_path, "check", f"[sources.nvml]\n{text}\n") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "every" in line]
    assert lines == ([f"warning: {tmp_path / 'gpuwatch.toml'}: sources.{said}"] if said else [])


@pytest.mark.parametrize("receiver", ['min_severity = "critcal"', 'url_file = "/nowhere/url"', 'url_file = "FOLDER"'])
def test_check_names_the_file_and_the_key_of_a_receiver(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], receiver: str
) -> None:
    url = "" if "url" in receiver else 'url = "https://x.example/"\n'
    assert command(tmp_path, "check", f"{WEBHOOK}{url}{receiver.replace('FOLDER', str(tmp_path))}\n") == 2
    key = receiver.partition(" ")[0]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path / 'gpuwatch.toml'}: receivers[0].{key}: ")
    assert line.endswith('critical, found "critcal"' if key == "min_severity" else ("No such file or directory", "regular file"))


def test_the_file_may_be_named_without_its_option_but_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, "check", "") == 0
    said, file = capsys.readouterr().out, str(tmp_path / "gpuwatch.toml")
    assert (main(["config", "check", file]), capsys.readouterr().out) == (0, said)
    assert main(["config", "check", file, "--config", file]) == 2
    assert capsys.readouterr().err == "gpuwatch config: FILE: give the file once, here or by --config\n"
    assert main(["config", "options", file]) == 2
    assert capsys.readouterr().err == "gpuwatch config: FILE: `options` reads no file\n"


def test_check_warns_of_a_warning_beyond_the_critical_alert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = '[rules.gpu_overheating]\nthreshold = 105\n[[rules.gpu_overheating.only]]\nmodel = "*3090*"\nthreshold = 101\n'
    assert command(tmp_path, "check", numbers) == 0
    heard = capsys.readouterr().err
    for place, number in (("rules.gpu_overheating", 105), ('rules.gpu_overheating.only (model = "*3090*")', 101)):
        assert f"{place}: threshold = {number} of warning is above the 100 of critical, which then comes first\n" in heard
    assert command(tmp_path, "check", "[rules.gpu_overheating]\nthreshold = 99\n") == 0
    assert "threshold" not in capsys.readouterr().err
