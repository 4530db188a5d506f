"""Every mistake in the configuration is named by file, key, what was found and what was expected."""

import os
import re
import typing
from pathlib import Path

import msgspec
import pytest

from gpuwatch import config
from gpuwatch.config import Config, ConfigError
from gpuwatch.model.quantity import Duration, Size
from gpuwatch.places import Places, places


@pytest.fixture
def where(tmp_path: Path) -> Places:
    """Folders of a user of this test."""
    return Places(tmp_path / "etc", tmp_path / "state", tmp_path / "run")


def write(where: Places, text: str, name: str = "gpuwatch.toml") -> Path:
    """Write a configuration file."""
    path = where.config / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_any_file_everything_has_a_default(where: Places) -> None:
    found = config.load(None, where)
    assert found.http.listen == "127.0.0.1:9843"
    assert found.http.socket == str(where.runtime / "gpuwatch.sock")
    assert found.store.url == f"sqlite:///{where.state / 'gpuwatch.db'}"
    assert found.host.name
    assert [found.sources.nvml.every, found.sources.nvml.every_normal, found.sources.smart.every] == [1.0, 10.0, 600.0]


def test_a_full_file_is_read(where: Places) -> None:
    write(
        where,
        """
        [http]
        listen = ""
        [host]
        name = "vision-07"
        labels = { rack = "A3" }
        [gpus."0000:65:00.0"]
        label = "slot 3"
        [inventory]
        gpus = 8
        [store]
        max_size = "2GiB"
        [sources.nvml]
        every = "500ms"
        deadline = "5s"
        [rules.gpu_overheating]
        threshold = 85
        [[receivers]]
        name = "oncall"
        kind = "webhook"
        [[routes]]
        match = { severity = "critical" }
        receivers = ["oncall"]
        continue = true
        """,
    )
    found = config.load(None, where)
    assert found.http.listen == ""
    assert found.host.labels == {"rack": "A3"}
    assert found.gpus["0000:65:00.0"].label == "slot 3"
    assert found.inventory.gpus == 8
    assert found.store.max_size == 2 << 30
    assert found.sources.nvml.every == 0.5
    assert found.rules == {"gpu_overheating": {"threshold": 85}}
    assert found.receivers == [{"name": "oncall", "kind": "webhook"}]
    assert found.routes[0].continue_


def test_a_gpu_may_be_named_in_any_spelling_of_its_address_but_once(where: Places) -> None:
    write(where, '[gpus."65:00.0"]\nlabel = "slot 3"\n[gpus."00000000:CA:00.0"]\nlabel = "slot 7"')
    found = config.load(None, where)
    assert {place: gpu.label for place, gpu in found.gpus.items()} == {"0000:65:00.0": "slot 3", "0000:ca:00.0": "slot 7"}
    write(where, '[gpus."65:00.0"]\nlabel = "slot 3"\n[gpus."0000:65:00.0"]\nlabel = "slot 7"')
    with pytest.raises(ConfigError, match="is the same GPU as another one"):
        config.load(None, where)


def test_conf_d_is_merged_in_name_order(where: Places) -> None:
    write(where, '[host]\nname = "a"\nlabels = { rack = "A1" }\n[[receivers]]\nname = "one"\nkind = "webhook"')
    write(where, '[host]\nname = "b"\nlabels = { row = "7" }\n[[receivers]]\nname = "two"\nkind = "webhook"', "conf.d/20.toml")
    write(where, '[host]\nname = "c"', "conf.d/10.toml")
    found = config.load(None, where)
    assert found.host.name == "b"
    assert found.host.labels == {"rack": "A1", "row": "7"}
    assert [receiver["name"] for receiver in found.receivers] == ["one", "two"]


MERGED = """
[host]
labels = { rack = "A1" }
[rules.gpu_overheating]
threshold = 85
critical.threshold = 92
[[rules.gpu_overheating.only]]
model = "A40"
[[receivers]]
name = "one"
[[routes]]
receivers = ["one"]
"""


@pytest.mark.parametrize(
    ("later", "changed"),
    [
        ("receivers = []\nroutes = []\nhost = {}\n[rules.gpu_overheating]\nonly = []", {}),  # adds nothing, takes nothing away
        ('[[receivers]]\nname = "two"', {"receivers": [{"name": "one"}, {"name": "two"}]}),
        ('receivers = [{ name = "two" }]', {"receivers": [{"name": "one"}, {"name": "two"}]}),
        ('[[routes]]\nreceivers = ["one", "two"]', {"routes": [["one"], ["one", "two"]]}),  # names in a route are no tables
        ("[[routes]]\nreceivers = []", {"routes": [["one"], []]}),
        ('[host.labels]\nrow = "7"', {"labels": {"rack": "A1", "row": "7"}}),
        ('[host]\nlabels = { rack = "" }', {"labels": {"rack": ""}}),
        ("[rules.gpu_overheating]\nthreshold = 80", {"threshold": 80}),
        ("[rules.gpu_overheating.critical]\nclear = 89", {"critical": {"threshold": 92, "clear": 89}}),
        ('[[rules.gpu_overheating.only]]\nuuid = "GPU-1"', {"only": [{"model": "A40"}, {"uuid": "GPU-1"}]}),
        ("[rules.gpu_dropped]\nenabled = false", {"rules": ["gpu_dropped", "gpu_overheating"]}),
    ],
)
@pytest.mark.parametrize("names", [("gpuwatch.toml", "conf.d/10.toml"), ("conf.d/10.toml", "conf.d/20.toml")])
def test_tables_merge_arrays_of_tables_append_and_of_the_rest_the_later_one_counts(
    where: Places, names: tuple[str, str], later: str, changed: dict[str, object]
) -> None:
    for name, text in zip(names, (MERGED, later), strict=True):
        write(where, text, name)
    found = config.load(None, where)
    before = {
        "labels": {"rack": "A1"},
        "threshold": 85,
        "critical": {"threshold": 92},
        "only": [{"model": "A40"}],
        "receivers": [{"name": "one"}],
        "routes": [["one"]],
        "rules": ["gpu_overheating"],
    }
    assert before | changed == {
        "labels": found.host.labels,
        **found.rules["gpu_overheating"],
        "receivers": found.receivers,
        "routes": [route.receivers for route in found.routes],
        "rules": sorted(found.rules),
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('[receivers]\nname = "two"', "receivers: expected an array, found a table"),
        ("[routes]\nreceivers = []", "routes: expected an array, found a table"),
        ("receivers = 3", "receivers: expected an array, found 3"),
        ('[[host]]\nname = "b"', "host: expected a table, found an array"),
        ("host = []", "host: expected a table, found an array"),
        ("[host]\nlabels = []", "host.labels: expected a table, found an array"),
        ("[rules]\ngpu_overheating = []", "rules.gpu_overheating: expected a table, found an array"),
        ("[rules.gpu_overheating]\ncritical = 92", "rules.gpu_overheating.critical: expected a table, found 92"),
        ('[rules.gpu_overheating.only]\nuuid = "GPU-1"', "rules.gpu_overheating.only: expected an array, found a table"),
    ],
)
@pytest.mark.parametrize("last", ["", MERGED])
def test_a_table_in_place_of_an_array_of_tables_and_the_reverse_name_their_file_and_no_later_one_hides_them(
    where: Places, wrong: str, said: str, last: str
) -> None:
    write(where, MERGED)
    extra = write(where, wrong, "conf.d/10.toml")
    write(where, last, "conf.d/20.toml")
    with pytest.raises(ConfigError) as raised:
        config.load(None, where)
    assert str(raised.value) == f"{extra}: {said}"


def test_conf_d_alone_is_enough(where: Places) -> None:
    write(where, '[host]\nname = "b"', "conf.d/20.toml")
    assert config.load(None, where).host.name == "b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[sources.nvml]\nevery = "5"', 'sources.nvml.every: expected a duration with a unit, such as "500ms"'),
        ("[sources.nvml]\nevery = 5", 'sources.nvml.every: expected a duration as a string with a unit, such as "10s", found 5'),
        ('[privacy]\nusers = "none"', 'privacy.users: expected one of name, uid, off, found "none"'),
        ("[privacy]\nusers = 3", "privacy.users: expected one of name, uid, off, found 3"),
        ('[sources.dcgm]\nmode = "page"', 'sources.dcgm.mode: expected one of exporter, dmon, found "page"'),
        ("[host]\nlabels = { rack = 3 }", "host.labels.rack: expected text, found 3"),
        ("[host]\nlabels = 3", "host.labels: expected a table, found 3"),
        ("[[routes]]\nreceivers = []\nmatch = { gpu = 3 }", "routes[0].match.gpu: expected text, found 3"),
        ('[[routes]]\nreceivers = ["a", 3]', "routes[0].receivers[1]: expected text, found 3"),
        ("[inventory]\ngpus = 1.5", "inventory.gpus: expected a whole number, found 1.5"),
        ('[sources.nvml]\nevry = "5s"', "sources.nvml.evry: is not a known key; did you mean every?"),
        ("[http]\nlisten = 9843", "http.listen: expected text, found 9843"),
        (
            '[http]\nsocket = "gpuwatch.sock"',
            'http.socket: expected the whole path of a file, such as "/run/gpuwatch/gpuwatch.sock", found "gpuwatch.sock"',
        ),
        ("receivers = 3", "receivers: expected an array, found 3"),
        ("http = 1", "http: expected a table, found 1"),
        ("[inventory]\ngpus = -1", "inventory.gpus: expected a whole number of at least 0, found -1"),
        ('[store]\nmax_size = "2GB"', 'store.max_size: expected a size with a unit, such as "512MiB" or "2GiB", found "2GB"'),
        ("[[routes]]\nmatch = {}", "routes[0].receivers: is missing, and it is required"),
        ("[[routes]]\nreceiver = []", "routes[0].receiver: is not a known key; did you mean receivers?"),
        ('[gpus."0000:65:00.0"]', "gpus.0000:65:00.0.label: is missing, and it is required"),
        ("[[receivers]]\nname = 1\n[sources.smart]\nenabled = 1", "sources.smart.enabled: expected true or false, found 1"),
        ("[store]\nkeep_raw = true", "store.keep_raw: expected a duration as a string with a unit"),
        ('[sources.nvml]\nevery = "0s"', 'sources.nvml.every: expected at least "50ms", found "0s"'),
        ('[sources.smart]\ndeadline = "0ms"', 'sources.smart.deadline: expected at least "50ms", found "0ms"'),
        ('[store]\nmax_size = "0B"', 'store.max_size: expected at least "16MiB", found "0B"'),
        ('[store]\nmax_size = "15MiB"', 'store.max_size: expected at least "16MiB", found "15MiB"'),
        ('[store]\nkeep_raw = "0s"', 'store.keep_raw: expected at least "1s", found "0s"'),
        ('[sources.host]\nevery_slow = "49ms"', 'sources.host.every_slow: expected at least "50ms", found "49ms"'),
        ('[sources.host]\nevery = "99999999999999999d"', "sources.host.every: expected a duration of at most 3650d"),
        ('[store]\nmax_size = "' + "9" * 400 + 'TiB"', "store.max_size: expected a size of at most 1048576TiB"),
        ('[store]\nkeep_raw = "' + "9" * 400 + 'd"', "store.keep_raw: expected a duration of at most 3650d"),
        ("[inventory]\ngpus = 1025", "inventory.gpus: expected a whole number of at most 1024, found 1025"),
        ("[inventory]\ngpus = 1" + "0" * 32, "inventory.gpus: expected a number of at most 64 bits"),
        ("[inventory]\ngpus = 0x" + "F" * 5000, "inventory.gpus: expected a number of at most 64 bits"),
        ("[inventory]\ngpus = " + "9" * 5000, "a number in it is too large"),
        ('[host]\nname = "a\\u0000b"', "host.name: expected text without NUL characters"),
        ("x = " + "[" * 5000 + "]" * 5000, "is nested too deeply"),
        ("x = " + "{a = " * 5000 + "1" + "}" * 5000, "is nested too deeply"),
        (".".join("a" * 3000) + " = 1", "is nested too deeply"),
        ("[" + ".".join("a" * 3000) + "]", "is nested too deeply"),
        ('[gpus.3]\nlabel = "slot 3"', 'gpus.3: expected the PCI address of a GPU, such as "0000:65:00.0"'),
        ("listen = 1", "listen: is not a known key"),
        ("[http", "is not valid TOML"),
    ],
)
def test_a_mistake_is_named_by_file_key_found_and_expected(where: Places, text: str, said: str) -> None:
    path = write(where, text)
    with pytest.raises(ConfigError) as raised:
        config.load(None, where)
    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        '[receivers]\nname = "oncall"\nurl = "https://hooks.example/geheim"',
        'receivers = ["https://hooks.example/geheim"]',
        '[receivers.oncall]\nurl = "https://hooks.example/geheim"',
        '[[routes]]\nreceivers = { url = "https://hooks.example/geheim" }',
        '[[routes]]\nreceivers = "https://hooks.example/geheim"',
        'receivers = "https://hooks.example/geheim"',
        'store = "postgresql://lena:geheim@db/x"',
    ],
)
def test_a_receiver_in_the_wrong_form_is_refused_without_its_secret(where: Places, text: str) -> None:
    write(where, text)
    with pytest.raises(ConfigError) as raised:
        config.load(None, where)
    assert "geheim" not in str(raised.value)
    assert re.search(r"found (a table|an array|text)$", str(raised.value))


@pytest.mark.parametrize("kind", ["a file", "a link to nothing"])
def test_a_conf_d_that_is_no_folder_is_an_error_and_not_an_absence(where: Places, kind: str) -> None:
    where.config.mkdir(parents=True)
    folder = where.config / "conf.d"
    if kind == "a file":
        folder.touch()
    else:
        folder.symlink_to("nowhere")
    with pytest.raises(ConfigError, match=f"{folder}: cannot be read: (Not a directory|No such file or directory)"):
        config.load(None, where)


@pytest.mark.parametrize("name", ["gpuwatch.toml", "conf.d/10.toml"])
@pytest.mark.parametrize("kind", ["fifo", "endless", "folder", "large"])
def test_only_a_small_regular_file_is_read(where: Places, name: str, kind: str) -> None:
    path = write(where, "", name)
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("#" * (1 << 20) + "\n")
    with pytest.raises(ConfigError, match=f"{path}: (cannot be read: it is not a regular file|is larger than 1 MiB)"):
        config.load(None, where)


def test_a_conf_d_that_may_not_be_looked_into_is_an_error_and_not_an_absence(where: Places) -> None:
    where.config.mkdir(parents=True)
    loop = where.config / "conf.d"
    loop.symlink_to(loop)  # ELOOP, which even root meets; EACCES goes the same way
    with pytest.raises(ConfigError, match=f"{loop}: cannot be read"):
        config.load(None, where)


def test_a_mistake_in_conf_d_names_that_file(where: Places) -> None:
    write(where, '[sources.nvml]\nevery = "1s"\n[[routes]]\nreceivers = []')
    extra = write(where, '[sources.nvml]\ndeadline = "x"', "conf.d/10.toml")
    with pytest.raises(ConfigError) as raised:
        config.load(None, where)
    assert raised.value.place == str(extra)


def test_a_mistake_in_an_appended_array_names_its_file(where: Places) -> None:
    write(where, "[[routes]]\nreceivers = []")
    extra = write(where, "[[routes]]\nreceivers = [1]", "conf.d/10.toml")
    with pytest.raises(ConfigError) as raised:
        config.load(None, where)
    assert (raised.value.place, raised.value.key) == (str(extra), "routes[1].receivers[0]")


def test_a_named_file_must_exist_and_be_text(where: Places, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        config.load(tmp_path / "none.toml", where)
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        config.load(path, where)


def test_a_default_file_that_may_not_be_looked_at_is_an_error_and_not_an_absence(where: Places) -> None:
    loop = where.config
    loop.symlink_to(loop)  # ELOOP, which even root meets; EACCES goes the same way
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(None, where)


def test_the_configuration_crosses_a_pipe_whole(where: Places) -> None:
    write(where, '[store]\nmax_size = "2GiB"\n[sources.nvml]\nevery = "2s"\n[gpus."0000:65:00.0"]\nlabel = "x"')
    found = config.load(None, where)
    crossed = msgspec.msgpack.decode(msgspec.msgpack.encode(config.plain(found)))
    assert config.from_plain(crossed) == found
    assert isinstance(config.from_plain(crossed).sources.nvml.every, Duration)
    assert isinstance(config.from_plain(crossed).store.max_size, Size)


def test_root_a_user_and_a_unit_have_their_own_folders() -> None:
    assert places({}, root=True) == Places(Path("/etc/gpuwatch"), Path("/var/lib/gpuwatch"), Path("/run/gpuwatch"))
    user = places({"HOME": "/home/lena", "XDG_RUNTIME_DIR": "/run/user/1000"}, root=False)
    assert user.config == Path("/home/lena/.config/gpuwatch")
    assert user.runtime == Path("/run/user/1000/gpuwatch")
    bare = places({"HOME": "/home/lena"}, root=False)
    assert bare.runtime == bare.state == Path("/home/lena/.local/state/gpuwatch")  # never a folder that others may make first
    unit = places({"STATE_DIRECTORY": "/var/lib/gpuwatch", "RUNTIME_DIRECTORY": "/run/gpuwatch"}, root=False)
    assert (unit.state, unit.runtime) == (Path("/var/lib/gpuwatch"), Path("/run/gpuwatch"))


def test_every_section_refuses_unknown_keys() -> None:
    def sections(kind: type[msgspec.Struct]) -> typing.Iterator[type[msgspec.Struct]]:
        yield kind
        for hint in typing.get_type_hints(kind).values():
            for part in (hint, *typing.get_args(hint)):
                if isinstance(part, type) and issubclass(part, msgspec.Struct):
                    yield from sections(part)

    found = set(sections(Config))
    assert len(found) > 10
    for section in found:
        assert section.__struct_config__.forbid_unknown_fields, section
        assert section.__struct_config__.frozen, section


@pytest.mark.parametrize(
    "url",
    [
        "",
        "dcgm:9400",
        "ftp://dcgm/metrics",
        "http://",
        "http://user:hunter2@dcgm:9400/",
        "http://a b/",
        "http://dcgm?token=hunter2",
    ],
)
def test_the_address_of_an_exporter_is_checked_and_never_shown(where: Places, url: str) -> None:
    write(where, f'[sources.dcgm]\nurl = "{url}"\n')
    with pytest.raises(ConfigError, match=r"sources\.dcgm\.url: expected a web address without a password") as caught:
        config.load(None, where)
    assert "hunter2" not in str(caught.value)


def test_dcgm_is_off_unless_it_is_asked_for(where: Places) -> None:
    found = config.load(None, where).sources.dcgm
    assert (found.enabled, found.mode, found.url) == (False, "exporter", "http://127.0.0.1:9400/metrics")
