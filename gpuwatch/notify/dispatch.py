"""Who must be told what, now: incidents compared with what each channel was told last. Pure.

The comparison has no memory of events, so what fired while nobody could be told (we were dead, the queue was full, the
channel was switched off) is found like anything else. Durations are monotonic; the wall clock stamps, and says when a silence
ends.

While an incident is silenced nothing is sent of it, as Alertmanager does: no start, no repeat, and no end either. What is still
true when the silence ends is told then, after the usual wait of its group: what fires and was not told of, and the end of what
was told before. What fired and ended inside the silence is never told (EN-09). A message decided before the silence goes out.
The end of an incident is matched with the severity that was told: who heard that it is critical hears that it is over.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from gpuwatch.model.alert import AlertState, Incident, Severity
from gpuwatch.model.delivery import Delivery, DeliveryKind, Told
from gpuwatch.model.silence import Silence
from gpuwatch.notify.channel import Channel, Channels, labels_of

WAIT, WAIT_CRITICAL = 10.0, 5.0  # seconds from the first news of a group to its message (alerting.md E6)
INTERVAL = 120.0  # seconds between two messages of a group; critical news does not wait for it
REPEAT = {Severity.CRITICAL: 4 * 3600.0, Severity.WARNING: 24 * 3600.0}
JUDGED = 15.0  # seconds after a start in which what fired before is judged anew

# The end of one comes before the start of the next, so that the last word about a thing is the true one.
ORDER = (DeliveryKind.RESOLVED, DeliveryKind.STALE, DeliveryKind.UPDATE, DeliveryKind.FIRING)


class Mark(msgspec.Struct, frozen=True):
    """The last thing a channel was told about an incident, with its age on the monotonic clock."""

    told: Told
    mono: float


class Group(msgspec.Struct, frozen=True):
    """The timers of one group on one channel, monotonic."""

    since: float | None = None  # first news not yet told
    urgent: float | None = None  # first critical news not yet told
    last: float | None = None  # last message


class Message(msgspec.Struct, frozen=True):
    """A delivery that is due, and what its channel will then have been told."""

    delivery: Delivery
    told: tuple[Told, ...]


class Plan(msgspec.Struct, frozen=True):
    """What to do now: messages, marks to settle without one, the timers, and when to look again (monotonic)."""

    messages: tuple[Message, ...]
    settled: tuple[Told, ...]
    groups: Mapping[tuple[str, str], Group]
    look: float | None


Marks = Mapping[tuple[str, str], Mark]  # by incident id and channel
News = dict[tuple[str, str], list[tuple[DeliveryKind, Incident]]]  # by channel and family


def decide(
    incidents: Collection[Incident],
    marks: Marks,
    channels: Channels,
    groups: Mapping[tuple[str, str], Group],
    *,
    mono: float,
    wall: float,
    new_id: Callable[[], str],
    silent: frozenset[str] = frozenset(),
    silences: Collection[Silence] = (),
) -> Plan:
    """Compare every incident with what each channel knows of it; channels in `silent` are left as they are."""
    lasting = [silence for silence in silences if not silence.is_over(wall)]
    news, settled, repeats = compare(incidents, marks, channels, wall=wall, silent=silent, silences=lasting)
    messages: list[Message] = []
    timers: dict[tuple[str, str], Group] = {}
    looks = [mono + silence.ends_at - wall for silence in lasting]
    for key in dict.fromkeys((*news, *repeats, *groups)):
        group = timed(groups.get(key, Group()), news.get(key, []), mono)
        due = when(group)
        if due is not None and due <= mono:
            for kind in ORDER:
                chosen = [incident for found, incident in news[key] if found is kind]
                if chosen:
                    messages.append(message(kind, chosen, key[0], marks, wall=wall, new_id=new_id))
            group, due = Group(last=mono), None
        if any(at <= mono for at, _ in repeats.get(key, [])):
            # One is due: its companions come along, so that a group has one repeat and not one an incident.
            told_before = [incident for _, incident in repeats[key]]
            messages.append(message(DeliveryKind.REPEAT, told_before, key[0], marks, wall=wall, new_id=new_id))
            group = replace(group, last=mono)
        else:
            looks.extend(at for at, _ in repeats.get(key, []))
        if due is not None:
            looks.append(due)
        if group.since is not None or (group.last is not None and mono - group.last < INTERVAL):
            timers[key] = group
    if messages:
        looks.append(mono)  # the repeats of what was just told are due from its marks, which the caller makes
    return Plan(tuple(messages), tuple(settled), timers, min(looks, default=None))


def silencing(
    incident: Incident, silences: Collection[Silence], host_labels: Mapping[str, str], told: Severity | None = None
) -> list[Silence]:
    """Return those of these silences, none of which is over, that keep this incident from being told, or its end.

    `told` is the severity that was told of it, where it was.
    """
    if not silences:
        return []
    if told is not None and incident.state is AlertState.INACTIVE:
        incident = replace(incident, severity=told)
    labels = labels_of(incident, host_labels)
    return [silence for silence in silences if silence.matches(labels)]


def compare(
    incidents: Iterable[Incident],
    marks: Marks,
    channels: Channels,
    *,
    wall: float,
    silent: frozenset[str],
    silences: Collection[Silence],
) -> tuple[News, list[Told], dict[tuple[str, str], list[tuple[float, Incident]]]]:
    """Return the news of each group, the marks to settle silently, and when each told incident is due to be repeated."""
    news: News = {}
    settled: list[Told] = []
    repeats: dict[tuple[str, str], list[tuple[float, Incident]]] = {}
    for incident in incidents:
        hearing = {channel.name for channel in channels.hearing(incident)}
        for channel in channels.by_name.values():
            if channel.name in silent:
                continue
            mark = marks.get((incident.id, channel.name))
            if silencing(incident, silences, channels.host_labels, None if mark is None else mark.told.severity):
                continue
            kind = change(incident, mark, channel, hears=channel.name in hearing)
            key = (channel.name, family(incident))
            if kind is not None:
                news.setdefault(key, []).append((kind, incident))
            elif incident.state is AlertState.INACTIVE:
                if mark is not None and mark.told.state is not AlertState.INACTIVE:  # its end is not wanted here
                    settled.append(replace(mark.told, state=AlertState.INACTIVE, at=wall))
            elif mark is not None and channel.name in hearing and incident.state is AlertState.FIRING:
                repeats.setdefault(key, []).append((mark.mono + REPEAT[incident.severity], incident))
    return news, settled, repeats


def change(incident: Incident, mark: Mark | None, channel: Channel, *, hears: bool) -> DeliveryKind | None:
    """Return why this channel must hear of this incident now, None where it knows all it should.

    Who was told of a start hears of its end, whatever the routes say by then. Fired and ended before anybody was told:
    nothing. A lower severity is no news. Stale is told once an incident (the mark stays stale until the end).
    """
    unknown = mark is None or mark.told.state is AlertState.INACTIVE
    if mark is None or unknown:
        return DeliveryKind.FIRING if hears and incident.state is not AlertState.INACTIVE else None
    if incident.state is AlertState.INACTIVE:
        return DeliveryKind.RESOLVED if channel.send_resolved else None
    if hears and incident.severity.rank > mark.told.severity.rank:
        return DeliveryKind.UPDATE
    if incident.state is AlertState.STALE and mark.told.state is not AlertState.STALE:
        return DeliveryKind.STALE
    return None


def timed(group: Group, news: list[tuple[DeliveryKind, Incident]], mono: float) -> Group:
    """Start the timers of news that just came, and forget those of news that went away by itself."""
    urgent = any(
        kind in (DeliveryKind.FIRING, DeliveryKind.UPDATE) and incident.severity is Severity.CRITICAL for kind, incident in news
    )
    return Group(
        since=(mono if group.since is None else group.since) if news else None,
        urgent=(mono if group.urgent is None else group.urgent) if urgent else None,
        last=group.last,
    )


def overdue(mono: float) -> Group:
    """Return the timers of a group whose news, if it has any, is told at once."""
    return Group(since=mono - WAIT, urgent=mono - WAIT_CRITICAL)


def when(group: Group) -> float | None:
    """Return when the news of a group is told, None where there is none."""
    if group.since is None:
        return None
    due = group.since + WAIT
    if group.last is not None:
        due = max(due, group.last + INTERVAL)
    return due if group.urgent is None else min(due, group.urgent + WAIT_CRITICAL)


def message(
    kind: DeliveryKind,
    incidents: list[Incident],
    channel: str,
    marks: Marks,
    *,
    wall: float,
    new_id: Callable[[], str],
) -> Message:
    """Freeze one message, the worst incident first, and the marks it leaves. An end has the severity that was told."""
    if kind is DeliveryKind.RESOLVED:
        incidents = [as_told(incident, marks.get((incident.id, channel))) for incident in incidents]
    chosen = tuple(sorted(incidents, key=lambda incident: (-incident.severity.rank, incident.fired_at, incident.id)))
    delivery = Delivery(id=new_id(), channel=channel, kind=kind, created=wall, incidents=chosen)
    return Message(delivery, tuple(told(incident, channel, marks.get((incident.id, channel)), wall) for incident in chosen))


def as_told(incident: Incident, mark: Mark | None) -> Incident:
    """Return an incident that ends as the channel knows it: who heard that it is critical hears that the critical one is over."""
    if mark is None or mark.told.severity.rank <= incident.severity.rank:
        return incident
    return replace(incident, severity=mark.told.severity)


def told(incident: Incident, channel: str, before: Mark | None, wall: float) -> Told:
    """Return the mark after this message: stale sticks until the end, so that it is told once."""
    was_stale = before is not None and before.told.state is AlertState.STALE
    state = AlertState.STALE if was_stale and incident.state is AlertState.FIRING else incident.state
    return Told(incident=incident.id, channel=channel, state=state, severity=incident.severity, at=wall)


def family(incident: Incident) -> str:
    """Return what is grouped into one message, beside the host: the rule."""
    return incident.rule


def remembered(told: Told, *, mono: float, wall: float) -> Mark:
    """Put a mark from the store onto the monotonic clock; a stamp from the future is as good as now.

    A repeat that came due while we were away waits until the first beats have said whether it is still true.
    """
    longest = REPEAT.get(told.severity, JUDGED) - JUDGED
    return Mark(told, mono - min(max(0.0, wall - told.at), longest))
