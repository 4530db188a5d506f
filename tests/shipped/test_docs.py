"""What the documentation says is what the program does."""

import json
import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from gpuwatch import config, shipped
from gpuwatch.cli import COMMANDS, main
from gpuwatch.cli import config as configuration
from gpuwatch.client import Client
from gpuwatch.config import reference
from gpuwatch.daemon.standing import STATES
from gpuwatch.export import api
from gpuwatch.export.families import FAMILIES
from gpuwatch.export.process import ProcessText
from gpuwatch.notify import dispatch
from gpuwatch.notify.receivers import RECEIVERS
from gpuwatch.places import Places
from gpuwatch.rules import load as rules
from tests.fakes.until import PATIENCE
from tests.fakes.web import Answers, serving

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_of_metrics_is_made_from_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--markdown"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_the_page_of_options_is_made_from_their_declarations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "options"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_recipe_for_prometheus_finds_an_alert_in_every_state_that_is_not_over() -> None:
    found = re.search(r'^gpuwatch_alert_state\{state=~"([a-z|]+)"\} == 1 unless ', README, re.MULTILINE)
    assert found is not None
    assert found[1].split("|") == [state.value for state in STATES]


def test_the_page_of_receivers_has_the_times_that_groups_wait() -> None:
    page = (ROOT / "docs" / "receivers.md").read_text(encoding="utf-8")
    waits = [f"{dispatch.WAIT:.0f} s", f"{dispatch.WAIT_CRITICAL:.0f} s", f"{dispatch.INTERVAL / 60:.0f} minutes"]
    repeats = [f"{seconds / 3600:.0f} hours" for seconds in dispatch.REPEAT.values()]
    told = page.partition("\n## When\n")[2].partition("\n## ")[0]
    assert [words for words in (*waits, *repeats) if words not in told] == []


def test_every_option_has_its_sentence_and_no_sentence_is_of_none() -> None:
    made = {table: list(reference.options(kind)) for table, kind in reference.tables(config.Config, "")}
    assert {"http", "paths", "processes", "sources.dcgm", "sources.nvml", "gpus", "routes"} <= made.keys()
    keys = [f"{table}.{field.encode_name}" for table, fields in made.items() for field, _ in fields]
    assert sorted(reference.SENTENCES) == sorted(keys)
    assert all(reference.TABLES[table] for table in made)


def test_every_family_of_the_page_is_listed_and_what_a_library_adds_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    listed = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert [family.name for family in FAMILIES if f"| `{family.name}` |" not in listed] == []
    ours = re.findall(r"^# TYPE (\S+)", ProcessText().text(openmetrics=False), re.MULTILINE)
    assert {name for name in ours if name != "python_info" and not name.startswith("process_")} == set()
    assert "`python_info`, and `process_*`" in listed
    assert main(["metrics", "--subject", "build"]) == 0
    assert capsys.readouterr().out == "gpuwatch_build_info{version=..., python=...}\n    info. This gpuwatch.\n"
    assert main(["metrics", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {family.name for family in FAMILIES} == {one["family"] for one in found}
    assert {tuple(one) for one in found} == {tuple(found[0])}


def test_the_first_screen_of_the_readme_installs_runs_and_tests() -> None:
    screen = "\n".join(README.splitlines()[:25])
    commands = re.findall(r"```sh\n(.*?)\n```", screen, re.DOTALL)
    assert len(commands) == 2
    assert all("\n" not in command for command in commands)
    install, test = commands
    assert "gpuwatch run" in install
    assert test == "tests/run"
    assert test in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1]


@pytest.mark.parametrize("sudo", [True, False])
def test_the_first_command_of_the_readme_runs_with_sudo_and_as_root_without(tmp_path: Path, *, sudo: bool) -> None:
    command = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)[0]
    for name in ("sh", "sudo") if sudo else ("sh",):
        (tmp_path / name).write_text('#!/bin/sh\necho "${0##*/} $1"\n')
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", command], env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "sudo sh\n" if sudo else "sh -c\n", "")


def test_every_page_that_the_readme_and_the_docs_link_to_is_there() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_command_that_the_readme_shows_exists_and_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    named = set(re.findall(r"gpuwatch (\w+)", README))
    assert {"run", "status", "demo", "read", "metrics", "config"} <= named
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        assert f"example: gpuwatch {name}" in capsys.readouterr().out


def test_the_configuration_that_the_readme_shows_is_right_with_the_files_that_it_makes(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)\n```", README, re.DOTALL)
    (making,) = [block for block in re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL) if "/etc/gpuwatch/secrets" in block]
    making = making.replace("/etc/gpuwatch", str(tmp_path)).replace("sudo ", "").replace("-g gpuwatch", f"-g {os.getgid()}")
    subprocess.run(["/bin/sh", "-ec", making], timeout=PATIENCE, check=True)
    found_modes = {one.name: oct(one.stat().st_mode & 0o777) for one in (tmp_path / "secrets", *(tmp_path / "secrets").iterdir())}
    assert found_modes == {"secrets": "0o750", "oncall-url": "0o640", "oncall-secret": "0o640"}
    path = tmp_path / "gpuwatch.toml"
    path.write_text(shown.replace("/etc/gpuwatch", str(tmp_path)))
    found = config.load(path, Places(tmp_path, tmp_path, tmp_path))
    built = configuration.check(found)
    assert list(built.channels.by_name) == ["oncall"]
    assert built.unheard == []  # the example loses no alert


def test_the_silence_that_the_page_of_http_shows_can_be_made(tmp_path: Path) -> None:
    (wish,) = re.findall(r"-d '(\{.*?\})'", (ROOT / "docs" / "http.md").read_text(encoding="utf-8"), re.DOTALL)
    with serving(tmp_path) as served:
        reply = Client(str(served.path)).post("/api/v1/silences", wish.encode())
        assert (reply.status, json.loads(reply.body)["silence"]["of"]) == (200, "rule=gpu_overheating, gpu=3")


def test_every_key_of_a_receiver_is_on_its_page() -> None:
    page = (ROOT / "docs" / "receivers.md").read_text(encoding="utf-8")
    for kind, receiver in RECEIVERS.items():
        assert f'`"{kind}"`' in page
        assert [field.name for field in msgspec.structs.fields(receiver.keys) if f"`{field.name}`" not in page] == []


def test_every_rule_that_ships_is_in_the_readme() -> None:
    for rule in rules.load(shipped.folder("alerts"), {}, "none"):
        assert f"| `{rule.name}` |" in README


def test_every_dependency_has_its_line() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (block,) = re.findall(r"^dependencies = \[\n(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    names = {name.lower() for name in re.findall(r'^    "([A-Za-z0-9-]+)', block, re.MULTILINE)}
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").lower()
    assert len(names) >= 10
    assert {name for name in names if f"| {name}" not in page} == set()


def test_nothing_in_the_repository_names_this_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    wrong = re.compile(r"/wo" + r"rk/|pyp" + r"i-mirror|/root/\.")
    for name in listed.stdout.splitlines():
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace") if (ROOT / name).is_file() else ""
        assert wrong.search(text) is None, name


def test_every_path_and_every_command_that_asks_is_on_the_page_of_http() -> None:
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    paths = {(route.method, route.path) for route in api.routes(Answers())}
    assert {one for one in paths if f"`{one[0]} {one[1]}`" not in page} == {("GET", "/")}
    (listed,) = re.findall(r"## The commands\n\n(.*?) ask the daemon", page, re.DOTALL)
    asking = {name for name in COMMANDS if "ask.add(parser)" in (ROOT / f"gpuwatch/cli/{name}.py").read_text(encoding="utf-8")}
    assert {"status", "events", "history"} <= asking
    assert set(re.findall(r"`(?:gpuwatch )?(\w+)`", listed)) == asking - {"apt"}  # which no person calls
