"""What the NVIDIA driver says, line by line."""

from collections.abc import Mapping

import pytest

from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.sources.kernel import replay

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


LINK_0 = {"pid": "1", "name": "a", "link": "0"}


def told(*log: str) -> list[Event]:
    """Return the events of a log."""
    return list(replay(log, 1_796_000_000.0))


def only(*log: str) -> Event:
    """Return the one event of a log."""
    events = told(*log)
    assert len(events) == 1, events
    return events[0]


@pytest.mark.parametrize(
    ("line", "code", "severity", "facts"),
    [
        ("(PCI:0000:65:00): 31, pid=812, name=python3, Ch 00000008", 31, WARNING, {"pid": "812", "name": "python3"}),
        ("(PCI:0000:65:00): 31, pid='812', name='python3', Ch 8", 31, WARNING, {"pid": "812", "name": "python3"}),
        ("(PCI:0000:65:00): 31, pid=812, Ch 00000008", 31, WARNING, {"pid": "812"}),
        ("(PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen", 79, CRITICAL, {}),
        ("(0000:65:00): 14, Channel 00000001", 14, INFO, {}),
        ("(PCI:0000:65:00 GPU-I:05): 43, pid=812, name=a", 43, INFO, {"pid": "812", "name": "a", "gpu_instance": "5"}),
        ("(PCI:0000:65:00 GPU-I:05 GPU-CI:01): 43", 43, INFO, {"gpu_instance": "5", "compute_instance": "1"}),
        (
            "(PCI:0000:65:00): 45, pid=1, name=a, Ch 8, caused by previous Xid 79",
            45,
            INFO,
            {"pid": "1", "name": "a", "previous": "79"},
        ),
        ("(PCI:0000:65:00): 145, RLW_CTRL Nonfatal XC0 i0 Link 04 (0x1 0x2)", 145, WARNING, {"fatal": "no", "link": "4"}),
        ("(PCI:0000:65:00): 145, RLW_CTRL Fatal XC0 i0 Link 04 (0x1 0x2)", 145, CRITICAL, {"fatal": "yes", "link": "4"}),
        ("(PCI:0000:65:00): 74, pid=1, name=a, NVLink: fatal error detected on link 00(0x1, 0x0)", 74, CRITICAL, LINK_0),
        ("(PCI:0000:65:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link -1", 149, WARNING, {"fatal": "no"}),
        ("(PCI:0000:65:00): 149, no word at all", 149, CRITICAL, {}),
        ("(PCI:0000:65:00): 177, new", 177, WARNING, {}),
    ],
)
def test_an_xid_is_read_with_what_stands_beside_it(line: str, code: int, severity: Severity, facts: Mapping[str, str]) -> None:
    event = only(f"[ 1.000000] NVRM: Xid {line}")
    assert (event.kind, event.subject, event.key) == ("xid", "gpu", "0000:65:00.0")
    assert (event.code, event.severity, event.facts) == (code, severity, facts)


@pytest.mark.parametrize(
    ("action", "recovery", "severity"),
    [
        ("0x1 (GPU Reset Required) to 0x0 (None)", "0", INFO),
        ("0x0 (None) to 0x1 (GPU Reset Required)", "1", CRITICAL),
        ("0x0 (None) to 0x1 (PF FLR)", "1", CRITICAL),
        ("0x0 (None) to 0x2 (OS Reboot)", "2", CRITICAL),
        ("0x0 (None) to 0x3 (Drain P2P)", "3", WARNING),
        ("0x0 (None) to 0x4 (Drain and Reset)", "4", CRITICAL),
        ("0x0 (None) to 0x9 (New)", "9", CRITICAL),
        ("0x0 (None) to 0x1", None, WARNING),
        ("0x0 (None) to", None, WARNING),
    ],
)
def test_a_recovery_action_counts_by_its_number(action: str, recovery: str | None, severity: Severity) -> None:
    event = only(
        f"[ 1.0] NVRM: Xid (PCI:0000:65:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from {action}"
    )
    assert (event.facts.get("recovery"), event.severity) == (recovery, severity)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid error: xyz, invalid data",
        "NVRM: Xid (invalid): some error",
        "NVRM: Xid (PCI:0000:05:00): , GPU recovery action changed",
        "NVRM: Xid (PCI:0000:05:00",
        "NVRM: Xid (PCI:0000:05:00): 12345678901234567890, too much",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.105.08",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "nvidia-nvswitch2: open (major=510)",
        'seen "NVRM: Xid (PCI:0000:65:00): 79"',
        "nvidia 0000:65:00.0: enabling device (0000 -> 0002)",
    ],
)
def test_what_looks_like_an_error_and_is_none_is_nothing(line: str) -> None:
    assert told(f"[ 1.0] {line}") == []


@pytest.mark.parametrize(
    "log",
    [
        ["NVRM: GPU 0000:65:00.0: GPU has fallen off the bus."],
        ["NVRM: GPU at PCI:0000:65:00: GPU has fallen off the bus."],
        ["NVRM: GPU at 0000:65:00.0 has fallen off the bus."],
        [
            "[ 1.0] NVRM: The NVIDIA GPU 0000:65:00.0",
            "       NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "       NVRM: fallen off the bus and is not responding to commands.",
        ],
        [
            "[ 1.000001] NVRM: The NVIDIA GPU 0000:65:00.0",
            "[ 1.000002] NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "[ 1.000003] NVRM: fallen off the bus and is not responding to commands.",
        ],
        [
            (
                r"4,1,1000001,-;NVRM: The NVIDIA GPU 0000:65:00.0 (PCI ID: 10de:26b5)\x0aNVRM: installed in this"
                r" system has\x0aNVRM: fallen off the bus and is not responding to commands."
            )
        ],
        [
            (
                "Mar 11 04:22:09 h kernel: NVRM: The NVIDIA GPU 0000:65:00.0#012NVRM: (PCI ID: 10de:26b5) installed"
                " in this system has#012NVRM: fallen off the bus and is not responding to commands."
            )
        ],
    ],
)
def test_a_fall_without_an_xid_is_told_in_every_form(log: list[str]) -> None:
    event = only(*log)
    assert (event.kind, event.key, event.severity) == ("off_bus", "0000:65:00.0", CRITICAL)


def test_a_gpu_that_this_driver_does_not_support_has_not_fallen() -> None:
    event = only(
        "[ 1.0] NVRM: The NVIDIA GPU 0000:65:00.0 (PCI ID: 10de:1b80)",
        "       NVRM: installed in this system is not supported by open",
        "       NVRM: nvidia.ko because it does not include the required GPU",
    )
    assert (event.kind, event.severity, event.facts) == ("no_driver", WARNING, {"why": "unsupported", "gpu": "0000:65:00.0"})


def test_a_uuid_that_the_driver_names_once_goes_with_later_lines() -> None:
    uuid = "GPU-6877b607-9010-8cda-631b-5d103f3a6672"
    log = [
        f"[ 1.0] NVRM: GPU at PCI:0000:65:00: {uuid}",
        "[ 2.0] NVRM: Xid (PCI:0000:65:00): 31",
        "[ 2.0] NVRM: Xid (PCI:0000:66:00): 31",
    ]
    assert [event.facts for event in told(*log)] == [{"uuid": uuid}, {}]


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (
            (
                r"NVRM: API mismatch: the client 'nvidia-smi' (pid 812)\x0aNVRM: has the version 550.107.02, but"
                r"\x0aNVRM: this kernel module has the version 550.90.07.  Please"
            ),
            {"client": "550.107.02", "module": "550.90.07", "name": "nvidia-smi", "pid": "812"},
        ),
        ("NVRM: API mismatch: and nothing more", {}),
    ],
)
def test_a_mismatch_names_both_versions(line: str, facts: Mapping[str, str]) -> None:
    event = only(f"4,1,1000001,-;{line}")
    assert (event.kind, event.subject, event.severity, event.facts) == ("api_mismatch", "driver", WARNING, facts)


@pytest.mark.parametrize(
    ("line", "severity", "driver"),
    [
        ("nouveau 0000:65:00.0: NVIDIA GA102 (b72000a1)", INFO, "nouveau"),
        ("NovaCore 0000:65:00.0: NVIDIA (Chipset: GA102, Architecture: Ampere)", INFO, "NovaCore"),
        ("NVRM: GPU 0000:65:00.0 is already bound to NovaCore.", CRITICAL, "NovaCore"),
    ],
)
def test_another_driver_that_holds_the_gpu_is_named(line: str, severity: Severity, driver: str) -> None:
    event = only(f"[ 1.0] {line}")
    assert (event.kind, event.key, event.severity, event.facts) == ("nouveau", "0000:65:00.0", severity, {"driver": driver})


def test_a_module_for_another_kernel_is_no_driver() -> None:
    event = only("[ 1.0] nvidia: version magic '6.8.0-55-generic SMP' should be '6.8.0-58-generic SMP'")
    assert (event.kind, event.severity, event.facts) == ("no_driver", CRITICAL, {"why": "other_kernel"})


@pytest.mark.parametrize(
    ("line", "severity", "facts"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up", CRITICAL, {"fatal": "yes", "link": "30"}),
        ("12028, Non-fatal, Link 61 egress non-posted PRIV error", INFO, {"fatal": "no", "link": "61"}),
        ("20009, Non-fatal, Link 04 RX Short Error Rate", WARNING, {"fatal": "no", "link": "4"}),
        ("26006, SOE HALTED data {0x1}", CRITICAL, {}),
    ],
)
def test_a_switch_error_is_read_by_its_head_line(line: str, severity: Severity, facts: Mapping[str, str]) -> None:
    head = "nvidia-nvswitch3: SXid (PCI:0000:86:00.0): "
    code = line.partition(",")[0]
    event = only(f"[ 1.0] {head}{line}", f"[ 1.0] {head}{code}, Severity 1 Engine 04", f"[ 1.0] {head}{code}, Data {{0x0, 0x1}}")
    assert (event.kind, event.key, event.code) == ("sxid", "0000:86:00.0", int(code))
    assert (event.severity, event.facts, event.count) == (severity, facts, 1)


def test_a_silent_system_processor_is_named_by_what_the_line_has() -> None:
    by_index, by_address = told(
        "[ 1.0] NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, diff 6093 timeout 5200",
        "[ 9.0] NVRM: GPU 0000:65:00.0: kgspIsHeartbeatTimedOut: Heartbeat timed out, diff 6093",
    )
    assert [(by_index.key, by_index.facts), (by_address.key, by_address.facts)] == [("", {"index": "6"}), ("0000:65:00.0", {})]
