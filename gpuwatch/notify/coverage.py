"""Which alerts would be told to nobody: the routes and receivers of the configuration against the rules that are on. Pure."""

from collections.abc import Mapping, Sequence

from gpuwatch.config import Route
from gpuwatch.model.alert import Severity
from gpuwatch.model.naming import Firing
from gpuwatch.notify.channel import Channels

PLURAL = {Severity.CRITICAL: "critical alerts", Severity.WARNING: "warnings"}  # info is never a message of its own


def unheard(channels: Channels, firings: Sequence[Firing], host: str) -> list[str]:
    """Say in words what is sent to nobody, or only for some targets; empty where all is, and where there is no receiver."""
    if not channels.by_name:
        return []
    found = []
    for severity, plural in PLURAL.items():
        having = [firing for firing in firings if severity in firing.severities]
        heard = {firing.rule: hearing(channels, firing, severity, host) for firing in having}
        silent = [rule for rule, only in heard.items() if only == []]
        if silent:
            which = plural if len(silent) == len(having) else f"{plural} of {', '.join(silent)}"
            found.append(f"{which} are sent to nobody: no route with a receiver that wants them matches")
        found += [
            f"{plural} of {rule} are sent to nobody but where {' or '.join(map(written, only))}"
            for rule, only in heard.items()
            if only
        ]
    return found


def hearing(channels: Channels, firing: Firing, severity: Severity, host: str) -> list[Mapping[str, str]] | None:
    """Return None where somebody hears of every such alert, else what the labels must be for somebody to hear; [] for never."""
    wanting = {name for name, channel in channels.by_name.items() if severity.rank >= channel.min_severity.rank}
    if not channels.routes:
        return None if wanting else []
    known = {**channels.host_labels, "host": host, "rule": firing.rule, "severity": severity.value}
    only: list[Mapping[str, str]] = []
    for route in channels.routes:
        if severity.rank < Severity(route.min_severity).rank:
            continue
        narrowing = {label: value for label, value in route.match.items() if label in firing.labels}
        if any(known.get(label) != value for label, value in route.match.items() if label not in narrowing):
            continue
        hears = not wanting.isdisjoint(route.receivers)
        if not narrowing and hears:
            return None
        if hears:
            only.append(narrowing)
        elif decides(route, narrowing):
            break
    return only


def decides(route: Route, narrowing: Mapping[str, str]) -> bool:
    """Whether no later route is looked at for any alert of this kind."""
    return not narrowing and not route.continue_


def written(labels: Mapping[str, str]) -> str:
    """Return labels as people write them."""
    return " and ".join(f"{label}={value}" for label, value in labels.items())
