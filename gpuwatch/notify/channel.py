"""Who can be told, and who hears of what: receivers and routes of the configuration, checked."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpuwatch.config import Config, ConfigError, Route, convert, shown
from gpuwatch.model.alert import Incident, Severity
from gpuwatch.model.naming import SEVERITIES, Naming, no_severity
from gpuwatch.model.nearest import advice
from gpuwatch.model.quantity import in_units
from gpuwatch.model.silence import Matcher
from gpuwatch.notify.receivers import RECEIVERS
from gpuwatch.notify.receivers.receiver import HttpReceiver, Keys, MistakeError, Options
from gpuwatch.notify.receivers.secret import content


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One configured receiver, ready to be told. `tls` is None where it trusts the system's authorities."""

    name: str
    kind: str
    receiver: HttpReceiver = field(repr=False)
    options: Options
    min_severity: Severity
    send_resolved: bool
    pace: float
    tls: ssl.SSLContext | None = field(default=None, repr=False)


class Channels(msgspec.Struct, frozen=True):
    """All channels by name, the routes to them, and the host's own labels, which routes may match too."""

    by_name: Mapping[str, Channel]
    routes: tuple[Route, ...] = ()
    host_labels: Mapping[str, str] = {}

    def hearing(self, incident: Incident) -> list[Channel]:
        """Return the channels that hear of this incident at its present severity, in the order of the configuration.

        The first route that matches decides, unless it says `continue`. Info is for the digest, never a message of its own.
        """
        if incident.severity is Severity.INFO:
            return []
        names = set(self.by_name) if not self.routes else self.routed(incident)
        return [
            channel
            for name, channel in self.by_name.items()
            if name in names and incident.severity.rank >= channel.min_severity.rank
        ]

    def routed(self, incident: Incident) -> set[str]:
        """Return the receivers that the routes name for this incident."""
        labels = labels_of(incident, self.host_labels)
        names: set[str] = set()
        for route in self.routes:
            if incident.severity.rank < Severity(route.min_severity).rank:
                continue
            if all(labels.get(label) == value for label, value in route.match.items()):
                names.update(route.receivers)
                if not route.continue_:
                    break
        return names


def labels_of(incident: Incident, host_labels: Mapping[str, str]) -> dict[str, str]:
    """Return what routes and silences match: the incident's labels and the host's own, with rule and severity."""
    return {**host_labels, **incident.labels, "rule": incident.rule, "severity": incident.severity.value}


def build(config: Config, place: str = "configuration", naming: Naming | None = None) -> Channels:
    """Build every channel and check every route; raises ConfigError naming the key (`place` is the file to name).

    Without `naming`, what alerts can be called by, what a route matches is not checked against it.
    """
    channels: dict[str, Channel] = {}
    for index, table in enumerate(config.receivers):
        channel = one(table, place, f"receivers[{index}].")
        if channel.name in channels:
            problem = f"is the name of an earlier receiver, too: found {shown(channel.name)} again, expected another"
            raise ConfigError(place, f"receivers[{index}].name", problem)
        channels[channel.name] = channel
    for index, route in enumerate(config.routes):
        check_route(route, channels, place, f"routes[{index}].", naming)
    return Channels(channels, tuple(config.routes), dict(config.host.labels))


def one(table: Mapping[str, Any], place: str, head: str) -> Channel:
    """Build one channel from its table; raises ConfigError."""
    kind = table.get("kind")
    if kind is None:
        raise ConfigError(place, f"{head}kind", f"is missing; known are {', '.join(sorted(RECEIVERS))}")
    if not isinstance(kind, str) or kind not in RECEIVERS:
        raise ConfigError(
            place, f"{head}kind", f"expected a kind of receiver, found {shown(kind, f'{head}kind')}{advice(str(kind), RECEIVERS)}"
        )
    receiver = RECEIVERS[kind]
    keys: Keys = convert(table, receiver.keys, {}, place, head)
    if not keys.name.strip():
        raise ConfigError(place, f"{head}name", "is empty; it is what routes and messages call this receiver")
    if keys.pace < 0 or keys.pace > 3600:
        raise ConfigError(place, f"{head}pace", f"expected at most 1h between two messages, found {in_units(keys.pace)}")
    try:
        options = receiver.configure(keys)
        tls = trust(options)
    except MistakeError as error:
        raise ConfigError(place, f"{head}{error.key}", error.problem) from None
    return Channel(
        name=keys.name,
        kind=kind,
        receiver=receiver,
        options=options,
        min_severity=keys.min_severity,
        send_resolved=keys.send_resolved,
        pace=float(keys.pace),
        tls=tls,
    )


def trust(options: Options) -> ssl.SSLContext | None:
    """Return whom this channel trusts, where that is not the system's list; raises MistakeError."""
    if not options.ca_file:
        return None
    try:
        content("ca_file", options.ca_file)  # the library would wait for whoever writes into a FIFO
        return ssl.create_default_context(cafile=options.ca_file)
    except ssl.SSLError:
        raise MistakeError("ca_file", f'"{options.ca_file}" holds no certificate in PEM form') from None
    except OSError as error:
        raise MistakeError("ca_file", f"cannot be read: {error.strerror}") from None


def check_route(route: Route, channels: Mapping[str, Channel], place: str, head: str, naming: Naming | None = None) -> None:
    """Refuse receivers that do not exist, and what no alert can be: such a route would tell nobody."""
    for index, name in enumerate(route.receivers):
        if name not in channels:
            raise ConfigError(
                place,
                f"{head}receivers[{index}]",
                f"expected the name of a receiver, found {shown(name)}{advice(name, channels)}",
            )
    for key, value in (("min_severity", route.min_severity), ("match.severity", route.match.get("severity", "warning"))):
        if value not in SEVERITIES:
            raise ConfigError(place, f"{head}{key}", no_severity(value))
    matchers = [Matcher(name=label, value=value) for label, value in route.match.items()]
    if naming is not None and (found := naming.mistake(matchers, least=Severity(route.min_severity), with_off=True)):
        raise ConfigError(place, f"{head}match.{found.label}" if found.label else f"{head}min_severity", found.words)
