"""`gpuwatch history` and its page, over a real store and a real HTTP server."""

import http.server
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu, mig
from gpuwatch.cli import main
from gpuwatch.client import Client
from gpuwatch.model.alert import Severity
from gpuwatch.model.past import Past, Question, Series
from gpuwatch.model.target import Target
from gpuwatch.store import Store
from gpuwatch.store.history import Round
from tests.fakes.happenings import told, xid
from tests.fakes.store_home import Home, powers, run
from tests.fakes.store_nouns import gpu_target
from tests.fakes.until import PATIENCE, until
from tests.fakes.web import Answers, Served, serving

UUIDS = [gpu_target(index).key for index in range(2)]
KEYS = ", ".join(f"target={key} (gpu={index})" for index, key in enumerate(UUIDS))
BEGAN = 10.0 * (time.time() // 10 - 60)  # ten minutes ago


def moment(number: float) -> float:
    """Return the time of a round."""
    return BEGAN + number * 10


def clock(number: float) -> str:
    """Return how the time of a round is written."""
    return datetime.fromtimestamp(moment(number)).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006 - the host's zone is meant


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An open store with nothing in it."""
    home = Home(tmp_path / "store")
    found = home()
    run(found)
    yield found
    home.close()


@pytest.fixture
def served(tmp_path: Path, store: Store) -> Iterator[Served]:
    """A server that answers from the store."""
    answers = Answers()
    answers.past = store.past
    with serving(tmp_path, answers=answers) as served:
        yield served


def fill(store: Store) -> None:
    """Store two GPUs, of which the first is released for a while, and what happened meanwhile."""
    for number in [*range(4), *range(20, 24)]:
        rows = [(gpu_target(0), {"power_watts": 200.0 + number}), (gpu_target(1), {"power_watts": 0.0})]
        store._rounds.put(Round(moment(number), tuple(rows)))
    store._rounds.put(Round(moment(10), ((gpu_target(1), {"power_watts": 0.0}),)))
    store.record(
        [xid(79, UUIDS[0], moment(2.5)), xid(31, UUIDS[1], moment(2.6)), told("oom_kill", Severity.WARNING, moment(21.5))]
    )
    until(lambda: len(powers(store)) == 17 and len(store.events(0, 2e9)) == 3)


def command(served: Served, *words: str) -> list[str]:
    """Return the words of the command."""
    return ["history", "--socket", str(served.path), *words]


def test_values_and_what_happened_between_them_are_one_table(
    store: Store, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store)
    assert main(command(served, "power_watts", "--target", UUIDS[0])) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gpu.power_watts in watts, mean of 10 s",
        "time                 GPU 0",
        f"{clock(0)}    200",
        f"{clock(1)}    201",
        f"{clock(2)}    202",
        f"{clock(2.5)}  critical  gpu {UUIDS[0]}  Xid 79: GPU fell off the PCIe bus | NVRM: Xid (PCI:{UUIDS[0]}): 79",
        f"{clock(3)}    203",
        f"{clock(4)}      -",
        f"{clock(20)}    220",
        f"{clock(21)}    221",
        f"{clock(22)}    222",
        f"{clock(23)}    223",
    ]
    assert main(command(served, "power_watts", "--since", clock(2), "--until", f"{moment(3):.0f}")) == 0
    _, time_line, values, *events = capsys.readouterr().out.splitlines()
    assert (time_line, values) == ("time                 GPU 0  GPU 1", f"{clock(2)}    202      0")
    assert ["Xid 79" in events[0], "Xid 31" in events[1], len(events)] == [True, True, 2]


def test_a_longer_step_shows_the_lowest_and_highest_of_one_gpu(
    store: Store, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(60):
        store._rounds.put(Round(moment(number), ((gpu_target(0), {"power_watts": float(number)}),)))
    store._writer.wake()
    until(lambda: len(store.rows(gpu.GPU, [gpu.POWER], 0, 2e9)) == 60)
    assert main(command(served, "power_watts", "--gpu", "0", "--limit", "30")) == 0
    heading, _, *lines = capsys.readouterr().out.splitlines()
    assert heading == "gpu.power_watts in watts, mean of 30 s; lowest and highest in brackets"
    assert len(lines) in (20, 21)
    assert all(" (" in line and " to " in line for line in lines[1:-1])


def test_a_number_that_a_column_is_of_says_what_it_numbers(
    store: Store, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"gpu": "0", "uuid": UUIDS[0], "gpu_instance": "1"}
    half = Target(subject=mig.MIG, key=f"{UUIDS[0]}/1", labels=labels)
    store._rounds.put(Round(moment(0), ((half, {"memory_used_bytes": 1.0}),)))
    store._writer.wake()
    until(lambda: len(store.rows(mig.MIG, [mig.MIG_MEMORY_USED], 0, 2e9)) == 1)
    assert main(command(served, "mig.memory_used_bytes")) == 0
    assert capsys.readouterr().out.splitlines()[1] == "time                 GPU 0 instance 1"


def test_json_is_the_document_of_the_daemon(store: Store, served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    fill(store)
    asked = f"/api/v1/history?metric=gpu.power_watts&gpu=1&since={BEGAN - 5:.0f}&until={moment(30):.0f}"
    reply = Client(served.address).get(asked, PATIENCE)
    assert reply.status == 200
    words = ["gpu.power_watts", "--gpu", "1", "--since", f"{BEGAN - 5:.0f}", "--until", f"{moment(30):.0f}", "--json"]
    assert main(command(served, *words)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == reply.json()
    assert (document["step"], document["oldest"], document["truncated"]) == (10.0, BEGAN, [])
    assert [point[1] for point in document["series"][0]["points"] if point[1] is not None] == [0.0] * 9
    assert [event["code"] for event in document["events"]] == [31]


def test_more_series_than_a_table_is_wide_are_counted(store: Store, served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    came = (11, 10, 13, 12, 1, 0, *range(2, 10))  # driver and kernel tell of them in any order
    store._rounds.put(Round(moment(0), tuple((gpu_target(index), {"power_watts": 1.0}) for index in came)))
    store._writer.wake()
    until(lambda: len(store.rows(gpu.GPU, [gpu.POWER], 0, 2e9)) == 14)
    assert main(command(served, "power_watts")) == 0
    _, columns, *_, last = capsys.readouterr().out.splitlines()
    assert columns.split()[2::2] == [str(index) for index in range(12)]
    assert last == "2 more are not shown: choose with --gpu, --target or --label, or take --json"


def test_where_there_is_nothing_it_says_why(store: Store, served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(served, "power_watts", "--gpu", "0")) == 0
    assert capsys.readouterr().out.startswith("there is no history yet: ")
    fill(store)
    assert main(command(served, "utilization_ratio", "--gpu", "1")) == 0
    nothing, event = capsys.readouterr().out.splitlines()
    assert nothing.startswith("no value of utilization_ratio from ")
    assert nothing.endswith(f"; the history begins at {clock(0)}")
    assert "Xid 31" in event
    assert main(command(served, "gpu_nvlink.link_transmit_bytes_total")) == 0
    (nothing, *_) = capsys.readouterr().out.splitlines()
    assert nothing.endswith("; it is read only with [sources.nvml] per_link")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["power_wats"], "gpuwatch history: no metric is called 'power_wats'; did you mean power_watts"),
        (["power_watts", "--gpu", "7"], "gpuwatch history: the history has no gpu with gpu=7; it has gpu=0, gpu=1\n"),
        (
            ["power_watts", "--gpu", "0000:01:00.0"],
            "gpuwatch history: the history has no gpu with gpu=0000:01:00.0; it has gpu=0",
        ),
        (
            ["power_watts", "--target", "nope"],
            f"gpuwatch history: the history has no gpu with target=nope; it has {KEYS}\n",
        ),
        (
            ["power_watts", "--since", "yesterday"],
            "gpuwatch history: --since: expected a time ago such as 6h or 7d, seconds since 1970, or a time",
        ),
        (["power_watts", "--until", "9h"], "gpuwatch history: --until: expected a time after since\n"),
        (["power_watts", "--limit", "0"], "gpuwatch history: --limit: expected a number from 10 to 10000, got 0\n"),
        (
            ["power_watts", "--label", "gpu"],
            "gpuwatch history: --label: expected a label and its value, such as device=nvme0n1, got 'gpu'\n",
        ),
        (["power_watts", "--label", "metric=x"], "gpuwatch history: --label: metric is no label: it is the first argument\n"),
        (["power_watts", "--label", "until=5"], "gpuwatch history: --label: until is no label: it is the option --until\n"),
        (["power_watts", "--label", "limit=99"], "gpuwatch history: --label: limit is no label: it is the option --limit\n"),
        (["power_watts", "--label", "target=x"], "gpuwatch history: --label: target is no label: it is the option --target\n"),
        (
            ["power_watts", "--label", "gpu=0", "--gpu", "1"],
            "gpuwatch history: --label: gpu is given by --gpu and by --label; one value is looked for\n",
        ),
        (
            ["power_watts", "--label", "gpu=0", "--label", "gpu=1"],
            "gpuwatch history: --label: gpu is given twice; one value is looked for\n",
        ),
        (["power_watts", "--label", "sinse=x"], "gpuwatch history: 'sinse' is not known here: the labels of power_watts are "),
        (
            ["power_watts", "--label", "uuid=\udcff"],
            "gpuwatch history: the history has no gpu with uuid=\\udcff; it has gpu=0",
        ),
    ],
)
def test_what_cannot_be_asked_is_said_in_words(
    store: Store, served: Served, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    fill(store)
    assert main(command(served, *words)) == 2
    out, err = capsys.readouterr()
    assert (out, err[: len(said)]) == ("", said)


def test_a_history_that_cannot_be_read_and_a_daemon_that_is_away_are_said(
    tmp_path: Path, store: Store, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store)
    file = tmp_path / "store" / "gpuwatch.db"
    assert store.stop(10)
    with sqlite3.connect(file) as other:
        other.execute("DROP TABLE raw_gpu")
    other.close()
    assert main(command(served, "power_watts")) == 3
    assert capsys.readouterr().err == "gpuwatch history: the history cannot be read: no such table: raw_gpu\n"
    assert Client(served.address).get("/api/v1/history?metric=power_watts", PATIENCE).status == 503
    assert main(["history", "power_watts", "--socket", str(tmp_path / "none")]) == 3
    assert capsys.readouterr().err.startswith("gpuwatch history: ")


def test_names_of_a_machine_cannot_play_with_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"gpu": "\x1b[2J\u202e", "uuid": "x"}

    def hostile(question: Question) -> Past:
        line = Series(metric=question.metrics[0], key="k", labels=labels, points=[(moment(0), 1.0)])
        return Past(step=10.0, oldest=BEGAN, series=[line], events=[], truncated=["targets: \x9b31m"])

    answers = Answers()
    answers.past = hostile
    with serving(tmp_path, answers=answers) as served:
        assert main(command(served, "power_watts")) == 0
    out = capsys.readouterr().out
    assert "GPU \\x1b[2J\\u202e" in out
    assert "left out: targets: \\x9b31m" in out
    assert not set("\x1b\x9b\u202e") & set(out)


@pytest.mark.parametrize("points", ["[[null, 1]]", "[[]]", '[["1", 2]]', "[[1]]", "[[1, 1, 2]]", "[[1, 1, 2, 3, 4]]", "7"])
def test_an_answer_of_something_else_is_no_traceback(points: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        '{"subject": "gpu", "key": "k", "labels": {}, "metric": "m", "family": "f", "members": {}, "unit": "", "kind": "gauge",'
        f' "keep": "mean", "points": {points}}}'
    )
    document = '{"version": "1", "since": 1, "until": 2, "step": 10, "oldest": 1, "series": [%s], "events": [], "truncated": []}'

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (document % line).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        code = main(["history", "m", "--host", f"127.0.0.1:{server.server_port}"])
        server.shutdown()
        thread.join()
    assert code == 3
    assert capsys.readouterr().err == "gpuwatch history: what answers there is no gpuwatch, or one of another version\n"


def test_many_who_ask_at_once_are_all_answered_and_the_page_comes_meanwhile(store: Store, served: Served) -> None:
    fill(store)
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(Client(served.address).get("/api/v1/history?metric=power_watts", PATIENCE).status)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    page = Client(served.address).get("/metrics", PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)
    assert (page.status, len(statuses), set(statuses) <= {200, 503}, 200 in statuses) == (200, 12, True, True)
