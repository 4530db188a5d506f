"""What a client's Accept headers wish for; prometheus_client is the oracle where it understands them."""

import pytest
from prometheus_client.exposition import choose_encoder, gzip_accepted

from gpuwatch.export.message import Response, wants_gzip, wants_openmetrics

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_2_TEXT = "text/plain;version=0.0.4,*/*;q=0.1"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,/;q=0.1"
)
VICTORIA = "text/plain;version=0.0.4;q=1,*/*;q=0.1"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize("accept", [PROMETHEUS_2, PROMETHEUS_2_TEXT, PROMETHEUS_3, VICTORIA, BROWSER, "", "*/*"])
def test_what_scrapers_send_is_understood_as_prometheus_client_does(accept: str) -> None:
    _, content_type = choose_encoder(accept)
    assert content_type.startswith("application/openmetrics-text") == wants_openmetrics(accept)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("text/plain;q=0.9,application/openmetrics-text;q=0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ('application/openmetrics-text; version="1.0.0"', True),
        ("APPLICATION/OPENMETRICS-TEXT", True),
        ("application/openmetrics-text;q=nonsense", False),
        (";;,=,q=,;q=1,", False),
    ],
)
def test_wishes_are_weighed(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) == openmetrics


@pytest.mark.parametrize("header", ["gzip", "deflate, gzip;q=1.0, *;q=0.5", "identity", "", "br", "GZIP"])
def test_gzip_is_understood_as_prometheus_client_does(header: str) -> None:
    assert wants_gzip(header.lower()) == ("*" in header or gzip_accepted(header.lower()))


def test_gzip_that_is_refused_is_not_sent() -> None:
    assert not wants_gzip("gzip;q=0")


def test_data_with_a_name_that_is_not_utf_8_is_answered_with_the_name_made_visible() -> None:
    found = Response.json({"disks": [{"显卡\udc80": "a\udcff"}], "now": 1.0})
    assert (found.status, found.body.decode()) == (200, '{"disks":[{"显卡\\\\udc80":"a\\\\udcff"}],"now":1.0}')
