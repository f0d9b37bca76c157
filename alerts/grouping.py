"""Which incidents are one alert: one fault is one page, also over jobs, and what flaps is one until it is quiet.

Pure, and the same whatever of an incident's life is seen: only the opening, the end, the job and the level decide. A
process that starts again finds the same groups in the log; what was told stands there with the alert that it was of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from alerts.severity import Level, worse
from alerts.thresholds import FLAPS_AFTER, FLAPS_WITHIN_NS, QUIET_NS, TOGETHER_NS
from pacehound.model.events import Incident
from pacehound.model.identity import event_id

_REMEMBERED = 100_000
"""Incidents whose last version is known: one that is not is taken for a new one when an old version comes again."""


@dataclass(slots=True, kw_only=True, eq=False)
class Alert:
    """Incidents of one level that a person is told of once.

    Attributes
    ----------
    lead_id
        The incident that opened it, by whose id it goes.
    lead
        That one as it was last heard of, or the first that came of those which the log says belong to it.
    open_ids, ids
        Its incidents that are not closed, and all that have not left it for a worse level.
    jobs
        Of all of them, in the order in which they came.
    last_change_ns
        When the last of them opened or closed.
    flaps
        It is over only when nothing has opened for a while.
    has_ended
        People are told that it is over, or will be: what comes late is another one, or nobody would be told of it.

    """

    lead_id: str
    lead: Incident
    level: Level
    opened_ns: int
    last_change_ns: int
    open_ids: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    jobs: dict[str, None] = field(default_factory=dict)
    flaps: bool = False
    has_ended: bool = False

    @property
    def key(self) -> str:
        """The same for its life, and whoever computes it."""
        return event_id("alert", self.lead_id, self.level)

    @property
    def place(self) -> tuple[str, Level]:
        """Where it stands in the book."""
        return self.lead_id, self.level

    @property
    def n_incidents(self) -> int:
        """How many are in it."""
        return len(self.ids)

    @property
    def ends_ns(self) -> int | None:
        """From when on it is over; `None` while an incident of it is open.

        Not before what belongs to it can have come, and what flaps not before it has been quiet.
        """
        if self.open_ids:
            return None
        return max(self.opened_ns + TOGETHER_NS, self.last_change_ns + (QUIET_NS if self.flaps else 0))

    def is_over(self, now_ns: int) -> bool:
        """Whether nothing of it goes on."""
        ends_ns = self.ends_ns
        return ends_ns is not None and now_ns >= ends_ns


@dataclass(slots=True, kw_only=True)
class _Known:
    version: int
    level: Level
    partition: int
    alert: Alert | None = None


class Book:
    """The alerts that go on, and which incident belongs to which."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._alerts: dict[tuple[str, Level], Alert] = {}
        self._openings: dict[tuple[str, Level], deque[int]] = {}

    def version(self, incident_id: str) -> int:
        """The last version that was heard of; -1 for none."""
        known = self._known.get(incident_id)
        return known.version if known is not None else -1

    def alert_of(self, incident_id: str, level: Level) -> Alert | None:
        """The alert that an incident opened at a level, or else the one that it is in."""
        opened = self._alerts.get((incident_id, level))
        if opened is not None:
            return opened
        known = self._known.get(incident_id)
        alert = known.alert if known is not None else None
        return alert if alert is not None and alert.level == level else None

    def alerts(self) -> Iterator[Alert]:
        """All of them."""
        return iter(list(self._alerts.values()))

    def note(self, incident: Incident, level: Level, partition: int, lead: str = "") -> list[Alert]:
        """Take a version of an incident in; the alerts that have changed by it.

        `lead` names the incident whose alert it belonged to when somebody was told; that one may be heard of later, or
        never again. An incident gets worse and never
        better: what somebody was woken for is not a ticket an hour later.
        """
        known = self._known.get(incident.id)
        if known is None:
            known = self._known[incident.id] = _Known(version=incident.version, level="none", partition=partition)
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
        known.version = incident.version
        level = worse(level, known.level)
        changed: list[Alert] = []
        if known.alert is not None and level != known.level:
            known.alert.open_ids.discard(incident.id)
            known.alert.ids.discard(incident.id)
            known.alert.last_change_ns = max(known.alert.last_change_ns, incident.time_ns)
            changed.append(known.alert)
            known.alert = None
        known.level = level
        if level == "none":
            return changed
        if known.alert is None:
            known.alert = self._join_or_open(incident, level, lead)
        alert = known.alert
        alert.ids.add(incident.id)
        alert.jobs[incident.job] = None
        if incident.id == alert.lead_id:
            alert.lead = incident
        if incident.state == "closed":
            alert.open_ids.discard(incident.id)
            alert.last_change_ns = max(alert.last_change_ns, incident.closed_ns or incident.time_ns)
        else:
            alert.open_ids.add(incident.id)
        alert.last_change_ns = max(alert.last_change_ns, incident.opened_ns)
        return [*changed, alert]

    def forget_partitions(self, partitions: set[int]) -> None:
        """Somebody else knows better what goes on there."""
        for incident_id in [name for name, known in self._known.items() if known.partition in partitions]:
            known = self._known.pop(incident_id)
            if known.alert is not None:
                known.alert.open_ids.discard(incident_id)
                known.alert.ids.discard(incident_id)
                if not known.alert.ids:
                    self._alerts.pop(known.alert.place, None)

    def forget_over(self, now_ns: int, wanted: Container[tuple[str, Level]] = ()) -> None:
        """Alerts that ended so long ago that nothing joins them, but for those of these places."""
        for place, alert in list(self._alerts.items()):
            if place not in wanted and alert.is_over(now_ns - FLAPS_WITHIN_NS):
                del self._alerts[place]
        for place in [place for place, times in self._openings.items() if times[-1] < now_ns - FLAPS_WITHIN_NS]:
            del self._openings[place]

    def _join_or_open(self, incident: Incident, level: Level, lead: str) -> Alert:
        opened_ns = incident.opened_ns
        if lead and (known := self._alerts.get((lead, level))) is not None:
            return known
        for alert in reversed(() if lead else self._alerts.values()):
            # Of what is found at once, what began first may be heard of last.
            if alert.level != level or alert.opened_ns - opened_ns > TOGETHER_NS:
                continue
            if alert.has_ended and incident.state != "closed":
                continue
            if opened_ns - alert.opened_ns <= TOGETHER_NS:
                return alert
            if incident.job in alert.jobs and not alert.is_over(opened_ns):
                return alert
        openings = self._openings.setdefault((incident.job, level), deque(maxlen=FLAPS_AFTER + 1))
        openings.append(opened_ns)
        flaps = len(openings) > FLAPS_AFTER and opened_ns - openings[0] <= FLAPS_WITHIN_NS
        alert = Alert(
            lead_id=lead or incident.id,
            lead=incident,
            level=level,
            opened_ns=opened_ns,
            last_change_ns=opened_ns,
            flaps=flaps,
        )
        self._alerts[alert.place] = alert
        return alert
