"""What the kernel says of the bus: errors, and windows without room."""

from collections.abc import Mapping

import pytest

from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.sources.kernel import replay

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


def told(*log: str) -> list[Event]:
    """Return the events of the texts of a log, a millisecond apart."""
    return list(replay([f"[    5.{number:06d}] {text}" for number, text in enumerate(log, 1)], 1_796_000_000.0))


def only(*log: str) -> Event:
    """Return the one event of a log."""
    events = told(*log)
    assert len(events) == 1, events
    return events[0]


AER = [
    "pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
    "nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "nvidia 0000:41:00.0:   device [10de:2330] error status/mask=00000041/0000a000",
    "nvidia 0000:41:00.0:    [ 0] RxErr                  (First)",
    "nvidia 0000:41:00.0:    [ 6] BadTLP                ",
]


@pytest.mark.parametrize(
    ("log", "kind", "key", "severity", "facts"),
    [
        (AER, "aer_corrected", "0000:41:00.0", INFO, {"port": "0000:40:01.1", "errors": "RxErr BadTLP"}),
        (AER[1:], "aer_corrected", "0000:41:00.0", INFO, {"errors": "RxErr BadTLP"}),
        (AER[:1], "aer_corrected", "0000:41:00.0", INFO, {"port": "0000:40:01.1"}),
        (
            ["pcieport 0000:40:01.1: AER: Uncorrectable (Non-Fatal) error message received from 0000:41:00.0"],
            "aer_nonfatal",
            "0000:41:00.0",
            WARNING,
            {"port": "0000:40:01.1"},
        ),
        (
            [
                "pcieport 0000:40:01.1: AER: Uncorrected (Non-Fatal) error received: 0000:41:00.0",
                "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
                "nvidia 0000:41:00.0:    [14] CmpltTO               ",
                "nvidia 0000:41:00.0: AER: can't recover (no error_detected callback)",
                "pcieport 0000:40:01.1: AER: device recovery failed",
            ],
            "aer_fatal",
            "0000:41:00.0",
            CRITICAL,
            {"port": "0000:40:01.1", "errors": "CmpltTO"},
        ),
        (  # a port that did not find out which device it was
            ["pcieport 0000:40:01.1: AER: Correctable error message received from 0000:00:00.0"],
            "aer_corrected",
            "0000:40:01.1",
            INFO,
            {"port": "0000:40:01.1"},
        ),
        (["pcieport 0000:40:01.1: AER: device recovery failed"], "aer_fatal", "0000:40:01.1", CRITICAL, {}),
        (
            ["pcieport 0000:40:01.1: DPC: containment event, status:0x1f01 source:0x0000"],
            "aer_fatal",
            "0000:40:01.1",
            CRITICAL,
            {"port": "0000:40:01.1", "errors": "DPC"},
        ),
    ],
)
def test_an_error_of_the_bus_is_that_of_its_device(
    log: list[str], kind: str, key: str, severity: Severity, facts: Mapping[str, str]
) -> None:
    event = only(*log)
    assert (event.kind, event.key, event.severity, event.facts, event.count) == (kind, key, severity, facts, 1)


def test_a_window_without_room_names_the_switch_of_the_bios() -> None:
    event = only(
        "pci 0000:65:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint",
        "pci 0000:65:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]",
        "pci 0000:65:00.0: BAR 1: failed to assign [mem size 0x2000000000 64bit pref]",
    )
    assert (event.kind, event.key, event.severity, event.facts) == ("bar_unassigned", "0000:65:00.0", WARNING, {"bar": "1"})
    assert '"Above 4G Decoding"' in event.words
    assert "BAR 1 of 131072 MiB" in event.words


def test_a_small_window_of_a_device_that_is_known_to_be_a_gpu_counts() -> None:
    small = "pci 0000:65:00.0: BAR 0: failed to assign [mem size 0x01000000]"
    assert told(small) == []
    assert only("pci 0000:65:00.0: [10de:2330] type 00 class 0x030200", small).key == "0000:65:00.0"


@pytest.mark.parametrize(
    "log",
    [
        ["pci 0000:65:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space"],
        ["pci 0000:65:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: failed to assign"],
        ["NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:65:00.0)"],
    ],
)
def test_a_window_without_room_is_told_in_every_kernel(log: list[str]) -> None:
    event = only(*log)
    assert (event.kind, event.key) == ("bar_unassigned", "0000:65:00.0")
    assert '"Above 4G Decoding"' in event.words


GPU = "pci 0000:42:00.0: [10de:2204] type 00 class 0x030000"


@pytest.mark.parametrize(
    "log",
    [
        [  # the kernel tries again with a larger window of the bridge
            "pci 0000:65:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]",
            "pci 0000:65:00.0: BAR 1: failed to assign [mem size 0x2000000000 64bit pref]",
            "pci 0000:64:00.0: PCI bridge to [bus 65]",
            "pci 0000:65:00.0: BAR 1: assigned [mem 0x20000000000-0x21fffffffff 64bit pref]",
        ],
        [
            "pci 0000:65:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: failed to assign",
            "pci 0000:65:00.0: BAR 1 [mem 0x20000000000-0x21fffffffff 64bit pref]: assigned",
        ],
        ["pci 0000:05:00.0: BAR 13: no space for [io  size 0x1000]"],
        [GPU, *(f"pci 0000:42:00.0: BAR 6: {what} [mem size 0x00080000 pref]" for what in ("no space for", "failed to assign"))],
        [GPU, "pci 0000:42:00.0: BAR 7: no space for [mem size 0x00500000 64bit]"],
        [GPU, "pci 0000:42:00.0: BAR 9: failed to assign [mem size 0x1000000000 64bit pref]"],
        [GPU, "pci 0000:42:00.0: BAR 5: no space for [io  size 0x0080]"],
        [GPU, "pci 0000:42:00.0: BAR 5 [io  size 0x0080]: can't assign; no space"],
        [GPU, "pci 0000:42:00.0: BAR 4: no space for [io  size 0x0080]"],
        [GPU, "pci 0000:42:00.0: BAR 4 [io  size 0x0080]: can't assign; no space"],
        [GPU, "pci 0000:42:00.0: ROM [mem size 0x00080000 pref]: can't assign; no space"],
        [GPU, "pci 0000:42:00.0: VF BAR 0 [mem size 0x00500000 64bit]: failed to assign"],
        [
            "pci 0000:05:00.0: [8086:1521] type 00 class 0x020000",
            "pci 0000:05:00.0: BAR 7: no space for [mem size 0x00020000 64bit]",
        ],
    ],
)
def test_a_window_that_gets_its_room_or_is_no_gpus_is_nothing(log: list[str]) -> None:
    assert told(*log) == []
