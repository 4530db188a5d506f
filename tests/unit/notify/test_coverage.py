"""Which alerts the routes lead to nobody, said in words; and that the dispatcher sees it the same way."""

from typing import Any

import pytest

from gpuwatch import notify
from gpuwatch.config import Config, Host, Route
from gpuwatch.model.alert import Severity
from gpuwatch.model.naming import Firing
from gpuwatch.notify import unheard

HOT = Firing(rule="hot", severities=(Severity.WARNING, Severity.CRITICAL), labels=("gpu", "uuid"))
GONE = Firing(rule="gone", severities=(Severity.CRITICAL,), labels=("gpu", "uuid"))
BOOT = Firing(rule="boot", severities=(Severity.INFO, Severity.WARNING), labels=())
ALL = (HOT, GONE, BOOT)
NOBODY = "are sent to nobody: no route with a receiver that wants them matches"


def said(*routes: Route, **keys: Any) -> list[str]:
    """Return what is said of these routes to a receiver `a` with these keys and a receiver `b`."""
    tables = [{"name": name, "kind": "webhook", "url": "http://127.0.0.1:1/", **keys} for name in ("a", "b")]
    host = Host(labels={"rack": "A3"})
    return unheard(notify.build(Config(host=host, receivers=tables, routes=list(routes))), ALL, "vision-07")


def route(*receivers: str, **keys: Any) -> Route:
    """Return a route to these, else to `a`."""
    return Route(receivers=list(receivers or ("a",)), **keys)


@pytest.mark.parametrize(
    "routes",
    [
        (),
        (route(),),
        (route(match={"severity": "critical"}), route("b")),
        (route(match={"severity": "critical"}), route(match={"severity": "warning"})),
        (route(match={"rack": "A3", "host": "vision-07"}),),
        (route(match={"rack": "B1"}), route()),
        (route(match={"gpu": "3"}), route()),
        (route(min_severity="critical"), route()),
    ],
)
def test_of_what_somebody_hears_nothing_is_said(routes: tuple[Route, ...]) -> None:
    assert said(*routes) == []


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ((route(match={"severity": "critical"}),), [f"warnings {NOBODY}"]),
        ((route(min_severity="critical"),), [f"warnings {NOBODY}"]),
        ((route(match={"rule": "hot"}),), [f"critical alerts of gone {NOBODY}", f"warnings of boot {NOBODY}"]),
        ((route(match={"rack": "B1"}),), [f"critical alerts {NOBODY}", f"warnings {NOBODY}"]),
        ((Route(receivers=[], match={"rule": "gone"}), route()), [f"critical alerts of gone {NOBODY}"]),
        ((Route(receivers=[], match={"rule": "gone"}, continue_=True), route()), []),
        (
            (route(match={"gpu": "3"}), route(match={"gpu": "4", "uuid": "x"}), route(match={"rule": "boot"})),
            [
                "critical alerts of hot are sent to nobody but where gpu=3 or gpu=4 and uuid=x",
                "critical alerts of gone are sent to nobody but where gpu=3 or gpu=4 and uuid=x",
                "warnings of hot are sent to nobody but where gpu=3 or gpu=4 and uuid=x",
            ],
        ),
    ],
)
def test_what_nobody_hears_is_said(routes: tuple[Route, ...], words: list[str]) -> None:
    assert said(*routes) == words


def test_a_receiver_that_does_not_want_them_hears_no_warnings_with_and_without_routes() -> None:
    assert said(min_severity="critical") == said(route(), min_severity="critical") == [f"warnings {NOBODY}"]


def test_without_any_receiver_it_is_said_elsewhere() -> None:
    assert unheard(notify.build(Config()), ALL, "vision-07") == []
