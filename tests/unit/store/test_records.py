"""Incidents and deliveries survive being written down, whatever stands in them."""

from types import MappingProxyType

from msgspec.structs import replace

from gpuwatch.model.delivery import Delivery
from gpuwatch.model.silence import Silence
from gpuwatch.store.records import VERSION, decoded, delivery_row, encode, incident_row, silence_row
from tests.fakes.store_nouns import delivery, incident, silence


def test_a_delivery_is_read_as_it_was_written() -> None:
    row = delivery_row(delivery(3))[1]
    assert list(decoded(iter([(VERSION, str(row["data"]))]), Delivery)) == [delivery(3)]


def test_a_silence_is_read_as_it_was_written() -> None:
    row = silence_row(silence(3, ended_by="root"))[1]
    assert list(decoded(iter([(VERSION, str(row["data"]))]), Silence)) == [silence(3, ended_by="root")]


def test_read_only_mappings_are_written() -> None:
    frozen = replace(incident(1), numbers=MappingProxyType({"threshold": 85.0}), words=MappingProxyType({}))
    assert encode(frozen) == encode(replace(incident(1), words={}))


def test_text_that_is_no_text_is_written_visibly() -> None:
    """A lone surrogate comes from bytes of a device that are not UTF-8, read with `surrogateescape`."""
    garbled = replace(incident(1), key="GPU-\udc80", info={"name": "card \udcff"}, summary="at \ud800")
    row = incident_row(garbled)[1]
    assert row["key"] == "GPU-\\udc80"
    assert "card \\\\udcff" in str(row["data"])


def test_an_unreadable_row_does_not_cost_the_others() -> None:
    good = str(delivery_row(delivery(3))[1]["data"])
    rows = [(VERSION, "{"), (VERSION, good), (VERSION + 1, good), (VERSION, good.replace('"firing"', '"sung"'))]
    assert list(decoded(iter(rows), Delivery)) == [delivery(3)]


def test_a_field_of_a_newer_gpuwatch_is_passed_over() -> None:
    good = str(delivery_row(delivery(3))[1]["data"])
    assert list(decoded(iter([(VERSION, '{"mood":1,' + good[1:])]), Delivery)) == [delivery(3)]
