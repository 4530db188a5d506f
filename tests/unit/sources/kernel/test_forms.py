"""The same message in every form that people save a kernel log in."""

from datetime import datetime, timezone

import pytest

from gpuwatch.model.event import Event
from gpuwatch.sources.kernel import replay
from gpuwatch.sources.kernel.forms import LINE, TEXT, Forms
from gpuwatch.sources.kernel.record import Record
from gpuwatch.sources.kernel.stamps import month_of

NOW = datetime(2026, 6, 15, 12, 0, 0).astimezone().timestamp()
XID = "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
LOCAL = datetime(2026, 3, 11, 4, 22, 9).astimezone().timestamp()
UTC = datetime(2026, 3, 11, 4, 22, 9, 500000, tzinfo=timezone.utc).timestamp()

FORMS = {
    f"4,812,5000000,-;{XID}": NOW,
    f"4,812,5000000,-,caller=T812;{XID}": NOW,
    f"[    5.000000] {XID}": NOW,
    f"[    5.000000][  T812] {XID}": NOW,
    f"[    5.000000 <    0.000049>] {XID}": NOW,
    f"<4>[    5.000000] {XID}": NOW,
    f"kern  :warn  : [    5.000000] {XID}": NOW,
    f"[    5.000000] gpu-host kernel: {XID}": NOW,
    f"[Wed Mar 11 04:22:09 2026] {XID}": LOCAL,
    f"[三 3月 11 04:22:09 2026] {XID}": LOCAL,
    f"kern  :warn  : [Wed Mar 11 04:22:09 2026] {XID}": LOCAL,
    f"kern  :warn  : 2026-03-11T04:22:09,500000+00:00 {XID}": UTC,
    f"2026-03-11T04:22:09,500000+00:00 {XID}": UTC,
    f"2026-03-11T05:22:09.500000+01:00 gpu-host kernel: {XID}": UTC,
    f"2026-03-11T04:22:09.500000+0000 gpu-host kernel: [    5.000000] {XID}": UTC,
    f"2026-03-11T04:22:09 gpu-host kernel: {XID}": LOCAL,
    f"Wed 2026-03-11 04:22:09.500000 UTC gpu-host kernel: {XID}": UTC,
    f"Wed 2026-03-11 04:22:09 CET gpu-host kernel: {XID}": LOCAL,
    f"{UTC:.6f} gpu-host kernel: {XID}": UTC,
    f"Mar 11 04:22:09 gpu-host kernel: {XID}": LOCAL,
    f"Mar 11 04:22:09.250000 gpu-host kernel: {XID}": LOCAL + 0.25,
    f"Mar 11 04:22:09 gpu-host kernel: [    5.000000] {XID}": LOCAL,
    f"<4>Mar 11 04:22:09 gpu-host kernel: {XID}": LOCAL,
    f"mar 11 04:22:09 gpu-host kernel: {XID}": LOCAL,
    f"3月 11 04:22:09 gpu-host kernel: {XID}": LOCAL,
    f"3월 11 04:22:09 gpu-host kernel: {XID}": LOCAL,
    f"марта 11 04:22:09 gpu-host kernel: {XID}": NOW,  # a month that no table has: the order of arrival is what remains
    f"1 2026-03-11T04:22:09.500000Z gpu-host kernel - - - {XID}": UTC,
    f"<4>1 2026-03-11T04:22:09.5+00:00 gpu-host kernel - - -  {XID}": UTC,
    f'1 2026-03-11T04:22:09.500Z gpu-host kernel - - [meta@1 x="a] \\" b"][t@1 y="1"] \ufeff{XID}': UTC,
    f"1 - gpu-host kernel - - - [    5.000000] {XID}": NOW,
    f"2026-03-11T04:22:09.500000000Z {XID}": UTC,  # a container's runtime, of one that shows the kernel log
    f"2026-03-11T04:22:09.500000000Z [    5.000000] {XID}": UTC,
    f"2026-03-11T04:22:09.500000000Z stdout F {XID}": UTC,
    f"    [    5.000000] {XID}": NOW,
    f"\t4,812,5000000,-;{XID}": NOW,
    f"  Mar 11 04:22:09 gpu-host kernel: {XID}": LOCAL,
    f"    {XID}": NOW,
    f"> [    5.000000] {XID}": NOW,
    f"> > Mar 11 04:22:09 gpu-host kernel: {XID}": LOCAL,
    f"\ufeff[    5.000000] {XID}": NOW,
    XID: NOW,
    f"\x1b[32m[    5.000000] \x1b[0m\x1b[33m{XID}\x1b[0m": NOW,
}


def only(*log: str) -> Event:
    """Return the one event of a log."""
    events = list(replay(log, NOW))
    assert len(events) == 1, events
    return events[0]


@pytest.mark.parametrize("line", FORMS)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_line_is_read_in_every_form(line: str, end: str) -> None:
    event = only(line + end)
    assert (event.kind, event.code, event.key) == ("xid", 79, "0000:65:00.0")
    assert event.at == pytest.approx(FORMS[line], abs=1e-5)
    assert event.words == XID


def test_deltas_count_from_the_line_before() -> None:
    event = only("[Mar11 04:22] nothing", "[  +9.000000] nothing", f"[  +0.500000] {XID}")
    assert event.at == LOCAL + 0.5


def test_uptimes_count_from_a_boot_that_is_known() -> None:
    assert [event.at for event in replay([f"[    5.000000] {XID}"], NOW, booted=1000.0)] == [1005.0]


def test_uptimes_of_an_unknown_boot_keep_their_distances_and_end_now() -> None:
    events = list(replay([f"[    5.000000] {XID}", f"[   65.000000] {XID}", "[  105.000000] nothing"], NOW))
    assert [event.at for event in events] == [NOW - 100, NOW - 40]


def test_events_keep_the_order_of_their_lines_in_a_log_of_two_forms() -> None:
    events = replay([f"[    5.000000] {XID}", f"Mar 11 04:22:09 h kernel: {XID.replace('79', '31')}", "[ 9.0] nothing"], NOW)
    assert [event.code for event in events] == [79, 31]


def test_a_date_without_a_year_is_never_in_the_future() -> None:
    assert only(f"Dec 31 23:59:59 gpu-host kernel: {XID}").at == datetime(2025, 12, 31, 23, 59, 59).astimezone().timestamp()


@pytest.mark.parametrize("sure", ["[Tue Dec 31 23:59:50 2024]", "2024-12-31T23:59:50 host kernel:", '{"JOURNAL": 1}'])
def test_a_date_without_a_year_is_near_what_a_line_before_it_said_with_one(sure: str) -> None:
    """A log of 2024 that is read in 2026: its lines without a year are not of 2026."""
    began = datetime(2024, 12, 31, 23, 59, 50).astimezone().timestamp()
    if sure.startswith("{"):
        micros = int(began * 1e6)
        first = f'{{"__REALTIME_TIMESTAMP":"{micros}","_TRANSPORT":"kernel","MESSAGE":"{XID}"}}'
    else:
        first = f"{sure} {XID}"
    log = [first, f"Dec 31 23:59:52 host kernel: {XID}", f"Jan  1 00:00:05 host kernel: {XID}"]
    assert [event.at - began for event in replay(log, NOW)] == [0.0, 2.0, 15.0]


def test_the_29th_of_february_is_of_a_leap_year() -> None:
    assert only(f"Feb 29 10:00:00 gpu-host kernel: {XID}").at == datetime(2024, 2, 29, 10, 0, 0).astimezone().timestamp()


@pytest.mark.parametrize(
    "line",
    [
        f"12,812,5000000,-;{XID}",  # written to /dev/kmsg by a program: the kernel makes its facility "user"
        f"30,812,5000000,-;{XID}",
        f"user  :warn  : [    5.000000] {XID}",
        f"Mar 11 04:22:09 gpu-host logger: {XID}",
        f"Mar 11 04:22:09 gpu-host app[812]: {XID}",
        f"2026-03-11T04:22:09.500000+00:00 gpu-host app[812]: {XID}",
        f"<12>{XID}",
        f'{{"_TRANSPORT":"syslog","SYSLOG_IDENTIFIER":"kernel","SYSLOG_FACILITY":"0","MESSAGE":"{XID}"}}',
        f'{{"MESSAGE":"{XID}"}}',
        f"Mar 11 04:22:09 gpu-host app[812]: kernel: {XID}",
        f"1 2026-03-11T04:22:09.500000Z gpu-host app 812 - - {XID}",
        f"<12>1 2026-03-11T04:22:09Z gpu-host app - - - {XID}",
        f"2026-03-11T04:22:09.500000Z gpu-host app: {XID}",
        f"2026-03-11T04:22:09.500000Z nvme app[812]: {XID}",
    ],
)
def test_what_a_program_writes_is_not_believed(line: str) -> None:
    assert list(replay([line], NOW)) == []


@pytest.mark.parametrize("margin", ["", "    ", "> ", ">     "])
def test_a_log_that_was_moved_to_the_right_keeps_its_lines_and_their_further_lines(margin: str) -> None:
    log = [
        "Feb 09 06:11:52 h app[1]: hello",
        f"                         [    5.000000] {XID}",  # a further line of the program's
        "Feb 09 06:11:55 h kernel: NVRM: The NVIDIA GPU 0000:19:00.0",
        "                          NVRM: (PCI ID: 10de:2901) installed in this system has",
        "                          NVRM: fallen off the bus and is not responding to commands.",
        f"Feb 09 06:11:59 h kernel: {XID}",
    ]
    assert [(event.kind, event.key) for event in replay([margin + line for line in log], NOW)] == [
        ("off_bus", "0000:19:00.0"),
        ("xid", "0000:65:00.0"),
    ]


def test_a_log_that_begins_in_the_middle_of_a_message_is_not_moved_to_the_right() -> None:
    log = [
        "      last words of something",
        "Feb 09 06:11:55 h app[1]: hello",
        f"      NVRM: more of it: {XID}",
        f"      {XID}",
    ]
    assert list(replay(log, NOW)) == []


@pytest.mark.parametrize(
    ("text", "kind", "key"),
    [
        ("nvme nvme1: Disabling device after reset failure: -19", "nvme_disabled", "nvme1"),
        ("XFS (nvme1n1): log I/O error -5", "fs_error", "nvme1n1"),
        ("pcieport 0000:40:01.1: AER: device recovery failed", "aer_fatal", "0000:40:01.1"),
        (
            "nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "aer_corrected",
            "0000:41:00.0",
        ),
        ("nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "sxid", "0000:86:00.0"),
    ],
)
def test_a_message_whose_first_words_look_like_host_and_program_is_the_kernels(text: str, kind: str, key: str) -> None:
    event = only(f"2026-03-11T04:22:09.500000000Z {text}")
    assert (event.kind, event.key, event.words) == (kind, key, text)


def test_a_kernels_uptime_behind_the_time_of_a_container_is_no_program() -> None:
    crash = "train[812]: segfault at 7f ip 7f sp 7f error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]"
    assert only(f"2026-03-11T04:22:09.500000000Z [    5.000000] {crash}").kind == "segfault"


@pytest.mark.parametrize(
    ("line", "kind"),
    [(f"kernel: {XID}", "xid"), ("modprobe[9]: FATAL: Module nvidia not found in directory /lib/modules/6.8", "no_driver")],
)
def test_a_host_may_be_called_like_a_message(line: str, kind: str) -> None:
    assert only(f"2026-03-11T04:22:09.500000+00:00 nfs01 {line}").kind == kind


JOURNAL = '{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"1772683331500000","MESSAGE":%s}'


@pytest.mark.parametrize("message", [f'"{XID}"', str(list(XID.encode())), str([*XID.encode(), 10])])
def test_a_line_of_the_journal_is_text_or_bytes(message: str) -> None:
    event = only(JOURNAL % message)
    assert (event.at, event.code, event.words) == (1772683331.5, 79, XID)


@pytest.mark.parametrize("message", ["null", "[300]", "[-1]", '["a"]', "[1.5]", "{}", "7", '"'])
def test_a_broken_line_of_the_journal_costs_only_itself(message: str) -> None:
    assert only(JOURNAL % message, JOURNAL % f'"{XID}"').code == 79


def test_a_repeated_message_counts() -> None:
    assert only(f"Mar 11 04:22:09 gpu-host kernel: message repeated 9 times: [ {XID}]").count == 9


def test_a_repeated_message_keeps_its_uptime_out_of_the_words() -> None:
    event = only(f"Mar 11 04:22:09 gpu-host kernel: message repeated 2 times: [[    5.000000] {XID}]")
    assert (event.count, event.words) == (2, XID)


def test_raw_escapes_are_bytes() -> None:
    event = only("4,1,5000000,-;NVRM: Xid (PCI:0000:65:00): 31, pid=7, name=caf\\xc3\\xa9, Ch\\x09 8 \\x5c end")
    assert (event.facts["name"], event.words) == ("café", "NVRM: Xid (PCI:0000:65:00): 31, pid=7, name=café, Ch 8 \\ end")


def records(*log: str) -> list[Record]:
    """Return the messages of a log."""
    forms = Forms(NOW)
    found = [record for line in log if (record := forms.feed(line))]
    last = forms.end()
    return [*found, last] if last else found


def test_fields_behind_a_raw_record_are_not_its_text() -> None:
    log = records(f"4,1,5000000,-;{XID}", " SUBSYSTEM=pci", " DEVICE=+pci:0000:65:00.0", "6,2,5000001,-;next")
    assert [record.text for record in log] == [XID, "next"]


def test_a_raw_continuation_belongs_to_the_record_before() -> None:
    log = records("4,1,5000000,c;NVRM: Xid (PCI:0000:65:00): 79, GPU has", "4,2,5000001,+; fallen off the bus.")
    assert [(record.text, record.first, record.seq) for record in log] == [
        ("NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.", 1, 2)
    ]


def test_indented_lines_belong_to_the_line_before() -> None:
    log = records("[    5.000000] NVRM: one", "               NVRM: two", "\tthree", "[    6.000000] four")
    assert [record.text for record in log] == ["NVRM: one\nNVRM: two\nthree", "four"]


def test_octal_escapes_of_rsyslog_are_newlines() -> None:
    assert [record.text for record in records("Mar 11 04:22:09 h kernel: NVRM: one#012NVRM: two")] == ["NVRM: one\nNVRM: two"]


@pytest.mark.parametrize(
    ("name", "month"),
    [
        ("kwi", 4),
        ("11月", 11),
        ("jan.", 1),
        ("févr.", 2),
        ("Mär", 3),
        ("окт", 10),
        ("Dez", 12),
        ("12월", 12),
        ("led", 1),
        ("ağu", 8),
    ],
)
def test_months_are_known_in_many_languages(name: str, month: int) -> None:
    assert month == month_of(name)


@pytest.mark.parametrize("name", ["13月", "0月", "xyz", ""])
def test_what_is_no_month_is_none(name: str) -> None:
    assert month_of(name) is None


@pytest.mark.parametrize("stamp", ["Feb 31 10:00:00", "Mar 99 10:00:00", "Mar 11 99:99:99"])
def test_an_impossible_date_keeps_its_message(stamp: str) -> None:
    assert only(f"{stamp} gpu-host kernel: {XID}").code == 79


def test_a_message_of_endless_lines_is_cut() -> None:
    (record,) = records("[    5.000000] NVRM: one", *["   and on " * 10] * 1_000)
    assert len(record.text) < TEXT + LINE
    assert record.text.count("\n") < 200
