"""A dcgm-exporter's page is read row by row: what is whole counts, whatever stands around it."""

import random

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.sources.dcgm.fields import FIELDS, OF_1_X, read, read_all
from gpuwatch.sources.dcgm.page import CARDS, LINES, Page, parse, understood, unique
from tests.fakes.dcgm_page import UUIDS, page, row

WHOLE = page(
    {
        "DCGM_FI_DEV_GPU_UTIL": "97",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "123456789",
        "DCGM_FI_DEV_XID_ERRORS": "79",
        "DCGM_FI_PROF_SM_ACTIVE": "0.912345",
        "DCGM_FI_PROF_PCIE_TX_BYTES": "1234567890",
    },
    gpus=2,
)


def values(found: Page) -> dict[str, dict[Metric, float]]:
    """Return the values by GPU."""
    return {key: read_all(understood(card.texts))[0] for key, card in found.cards.items()}


def test_a_page_gives_every_gpu_its_values_in_our_units() -> None:
    expected = {
        gpu.UTILIZATION: 0.97,
        gpu.ENERGY: 123456.789,
        gpu.SM_ACTIVE: 0.912345,
        gpu.PCIE_THROUGHPUT["transmit"]: 1234567890.0,
    }
    assert {UUIDS[0]: expected, UUIDS[1]: expected} == values(parse(WHOLE))


def test_the_sticky_xid_gauge_is_not_taken() -> None:
    found = parse(row("DCGM_FI_DEV_XID_ERRORS", "79") + row("DCGM_FI_DEV_GPU_TEMP", "34"))
    assert {UUIDS[0]: {gpu.TEMPERATURE["core"]: 34.0}} == values(found)


def test_a_page_cut_at_any_byte_gives_a_part_of_the_whole_and_never_another_value() -> None:
    whole = values(parse(WHOLE))
    for end in range(len(WHOLE)):
        found = parse(WHOLE[:end])
        for key, some in values(found).items():
            assert some.items() <= whole[key].items(), WHOLE[:end]
        assert found.is_cut == (end > 0 and WHOLE[end - 1] != "\n")


def test_a_number_that_is_cut_is_not_taken_for_a_small_one() -> None:
    cut = row("DCGM_FI_DEV_GPU_TEMP", "34") + row("DCGM_FI_DEV_POWER_USAGE", "312.5")[:-3]
    assert {UUIDS[0]: {gpu.TEMPERATURE["core"]: 34.0}} == values(parse(cut))


def test_any_byte_changed_costs_no_other_row() -> None:
    dice = random.Random(1)
    whole = values(parse(WHOLE))
    for _ in range(2000):
        at = dice.randrange(len(WHOLE))
        junk = chr(dice.choice((0, 10, 34, 44, 61, 92, 123, 125, dice.randrange(256), 0xFFFD)))
        found = values(parse(WHOLE[:at] + junk + WHOLE[at + 1 :]))
        kept = sum(
            whole[key].get(metric) == value for key, some in found.items() if key in whole for metric, value in some.items()
        )
        assert kept >= sum(map(len, whole.values())) - (2 if WHOLE[at] == "\n" else 1)


def test_random_bytes_are_no_page() -> None:
    dice = random.Random(2)
    for _ in range(300):
        found = parse(dice.randbytes(2000).decode("utf-8", "replace"))
        assert (found.cards, found.is_dcgm) == ({}, False)


@pytest.mark.parametrize(
    "junk",
    [
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_GPU_TEMP{",
        "DCGM_FI_DEV_GPU_TEMP{}",
        'DCGM_FI_DEV_GPU_TEMP{gpu="0"',
        'DCGM_FI_DEV_GPU_TEMP{gpu="0} 34',
        "DCGM_FI_DEV_GPU_TEMP{gpu=0} 34",
        row("DCGM_FI_DEV_GPU_TEMP", "").rstrip(),
        row("DCGM_FI_DEV_GPU_TEMP", "34 then some").rstrip(),
        row("DCGM_FI_DEV_GPU_TEMP", "34", extra="x" * 20_000).rstrip(),
    ],
)
def test_a_row_that_is_not_whole_is_counted_and_costs_nothing_else(junk: str) -> None:
    found = parse(f"{junk}\n" + row("DCGM_FI_DEV_POWER_USAGE", "312.5"))
    assert ({UUIDS[0]: {gpu.POWER: 312.5}}, 1) == (values(found), found.broken)


def test_a_time_behind_the_value_is_no_part_of_it() -> None:
    assert {UUIDS[0]: {gpu.POWER: 312.5}} == values(parse(row("DCGM_FI_DEV_POWER_USAGE", "312.5 1700000000000")))


def test_rows_of_mig_instances_are_never_a_cards() -> None:
    text = row("DCGM_FI_DEV_GPU_TEMP", "34")
    text += row("DCGM_FI_PROF_SM_ACTIVE", "0.4", GPU_I_PROFILE="2g.12gb", GPU_I_ID="1")
    text += row("DCGM_FI_PROF_SM_ACTIVE", "0.9", UUID="MIG-c47689c3-62f9-8b4b-6b9f-843148c4add1")
    found = parse(text)
    assert {UUIDS[0]: {gpu.TEMPERATURE["core"]: 34.0}} == values(found)
    assert {UUIDS[0]: "0", "0000:01:00.0": "0"} == found.divided


@pytest.mark.parametrize("part", ["nvlink", "nvswitch", "cpu", "cpucore", "vgpu", "GPU_I_PROFILE"])
def test_rows_of_parts_and_neighbours_are_never_a_cards(part: str) -> None:
    assert parse(row("DCGM_FI_PROF_SM_ACTIVE", "0.4", **{part: "1"})).cards == {}


def test_empty_labels_of_pods_and_mig_say_nothing() -> None:
    text = row("DCGM_FI_PROF_SM_ACTIVE", "0.4", GPU_I_ID="", container="", namespace="", pod="")
    assert {UUIDS[0]: {gpu.SM_ACTIVE: 0.4}} == values(parse(text))


def test_pods_that_share_a_gpu_give_it_one_value() -> None:
    text = row("DCGM_FI_PROF_SM_ACTIVE", "0.4", pod="a") + row("DCGM_FI_PROF_SM_ACTIVE", "0.4", pod="b")
    text += row("DCGM_FI_DEV_GPU_TEMP", "34", pod="b")
    assert {UUIDS[0]: {gpu.SM_ACTIVE: 0.4, gpu.TEMPERATURE["core"]: 34.0}} == values(parse(text))


def test_quotes_braces_and_commas_in_a_label_are_of_the_label() -> None:
    text = row("DCGM_FI_PROF_SM_ACTIVE", "0.4", pod='a\\"},gpu=\\"7\\"{', modelName="A, B } 1")
    (card,) = parse(text).cards.values()
    assert ("0", "A, B } 1", UUIDS[0]) == (card.index, card.info["name"], card.key)


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        ({"UUID": "b36a46b5-4778-e7e8-f53f-4818c420b887"}, "GPU-b36a46b5-4778-e7e8-f53f-4818c420b887"),
        ({"UUID": "GPU-B36A46B5-4778-E7E8-F53F-4818C420B887"}, "GPU-b36a46b5-4778-e7e8-f53f-4818c420b887"),
        ({"UUID": "", "uuid": "GPU-b36a46b5-4778-e7e8-f53f-4818c420b887"}, "GPU-b36a46b5-4778-e7e8-f53f-4818c420b887"),
        ({"UUID": "", "pci_bus_id": "00000000:65:00.0"}, "0000:65:00.0"),
        ({"UUID": "<<<NULL>>>", "pci_bus_id": "00000000:65:00.0"}, "0000:65:00.0"),
    ],
)
def test_a_gpu_is_known_by_its_uuid_else_by_its_address(labels: dict[str, str], key: str) -> None:
    assert [key] == list(parse(row("DCGM_FI_PROF_SM_ACTIVE", "0.4", **labels)).cards)


def test_a_gpu_that_has_only_a_number_cannot_be_told_apart() -> None:
    assert parse('DCGM_FI_PROF_SM_ACTIVE{gpu="0"} 0.4\n').cards == {}


@pytest.mark.parametrize("uuid", ["", "GPU-", "GPU-1", "MIG-b36a46b5-4778-e7e8-f53f-4818c420b887", "x" * 41])
def test_what_is_no_uuid_is_none(uuid: str) -> None:
    assert unique(uuid) == ""


def test_the_page_of_a_cluster_is_not_that_of_a_host() -> None:
    many = "".join(
        row("DCGM_FI_PROF_SM_ACTIVE", "0.4", UUID=f"{number:08x}-62f9-8b4b-6b9f-843148c4add1") for number in range(CARDS + 1)
    )
    assert [parse(many).is_foreign, parse("x\n" * (LINES + 1)).is_foreign] == [True, True]


@pytest.mark.parametrize(
    ("names", "metric"),
    [
        (("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO", "dcgm_fi_prof_sm_active"), gpu.SM_ACTIVE),
        (("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"), gpu.PIPE_ACTIVE["tensor"]),
        (("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", "dcgm_power_usage"), gpu.POWER),
        (("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "dcgm_gpu_temp"), gpu.TEMPERATURE["core"]),
    ],
)
def test_old_and_new_names_of_a_field_are_one_metric(names: tuple[str, ...], metric: Metric) -> None:
    for name in names:
        assert [{metric: 0.5}] == list(values(parse(row(name, "0.5"))).values()), name


@pytest.mark.parametrize(("text", "expected"), [("57", 0.57), ("1", 0.01), ("100", 1.0), ("0.570000", 0.57), ("1.000000", 1.0)])
def test_a_ratio_in_name_is_percent_where_it_is_printed_whole(text: str, expected: float) -> None:
    """DCGM 4.6 called field 203 (whole percent) GPU_UTIL_RATIO; since 4.7 that is the name of field 1613, a ratio."""
    assert [{gpu.UTILIZATION: pytest.approx(expected)}] == list(values(parse(row("DCGM_FI_DEV_GPU_UTIL_RATIO", text))).values())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9223372036854775792", Absence.EMPTY),
        ("9223372036854775793", Absence.EMPTY),
        ("9223372036854775794", Absence.UNSUPPORTED),
        ("9223372036854775795", Absence.DENIED),
        ("9.223372036854776e+18", Absence.EMPTY),
        ("140737488355328.000000", Absence.EMPTY),
        ("140737488355330", Absence.UNSUPPORTED),
        ("2147483632", Absence.EMPTY),
        ("2147483634", Absence.UNSUPPORTED),
        ("2147483635", Absence.DENIED),
        ("<<<NULL>>>", Absence.FAILED),
        ("N/A", Absence.EMPTY),
        ("NaN", Absence.FAILED),
        ("+Inf", Absence.FAILED),
        ("-1", Absence.FAILED),
        ("", Absence.FAILED),
        ("0x10", Absence.FAILED),
        ("1_0", Absence.FAILED),
        ("\u0661\u0660", Absence.FAILED),
        ("1e400", Absence.FAILED),
        ("9" * 5000, Absence.FAILED),
    ],
)
def test_a_blank_or_senseless_number_is_absent_in_every_field(text: str, why: Absence) -> None:
    assert {why} == {found for field in FIELDS.values() if isinstance(found := read(field, text), Absence)}
    assert all(isinstance(read(field, text), Absence) for field in FIELDS.values() if field.most < 1e9)


def test_memory_without_a_sensor_is_not_ice_cold() -> None:
    found = parse(row("DCGM_FI_DEV_MEMORY_TEMP", "0"))
    (card,) = found.cards.values()
    assert ({}, {gpu.TEMPERATURE["memory"]: Absence.FAILED}) == read_all(understood(card.texts))


def test_every_name_of_1_x_has_its_field() -> None:
    assert set(OF_1_X) <= FIELDS.keys()
