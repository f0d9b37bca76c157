"""Who has been told of what, as the topic `notifications` says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from alerts.severity import RANK, Level, worse
from pacehound.model.events import Notification

State = Literal["open", "relieved", "acknowledged", "closed"]
_LEVELS: tuple[Level, ...] = tuple(RANK)


class Ledger:
    """Notifications, by sink, incident and level.

    Those of versions before sinks had names were of all sinks of that time, and of any level.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str], dict[str, int]] = {}
        self._since_ns: dict[str, int] = {}
        self._levels: dict[str, Level] = {}
        self._leads: dict[tuple[str, str], str] = {}
        self._ended: set[tuple[str, str]] = set()
        self._led: dict[str, set[str]] = {}
        self._open: dict[str, set[tuple[str, str]]] = {}

    def note(self, notifications: Iterable[Notification]) -> None:
        """Take further ones in; one that is known changes nothing."""
        for one in notifications:
            if one.state == "grouped":
                self._leads.setdefault((one.incident, one.level), one.alert)
                self._led.setdefault(one.incident, set()).add(one.level)
                continue
            if one.state == "ended":
                self._ended.add((one.incident, one.level))
                continue
            states = self._told.setdefault((one.sink, one.incident, one.level), {})
            states[one.state] = min(one.time_ns, states.get(one.state, one.time_ns))
            self._since_ns[one.sink] = min(one.time_ns, self._since_ns.get(one.sink, one.time_ns))
            if one.alert:
                self._leads.setdefault((one.incident, one.level), one.alert)
            open_to = self._open.setdefault(one.incident, set())
            (open_to.discard if "closed" in states else open_to.add)((one.sink, one.level))
            for level in _LEVELS:
                if level == one.level:
                    self._levels[one.incident] = worse(level, self.level(one.incident))

    def told(self, sink: str, incident: str, level: str) -> dict[str, int]:
        """The states that it has been told of, and when."""
        return self._told.get(("", incident, ""), {}) | self._told.get((sink, incident, level), {})

    def first_told_ns(self, incident: str, level: str, sinks: Iterable[str]) -> int | None:
        """When the first of them was told that it is open."""
        times = [told["open"] for sink in sinks if "open" in (told := self.told(sink, incident, level))]
        return min(times, default=None)

    def since_ns(self, sink: str) -> int | None:
        """Since when the sink is told of things; `None`: it is a new one."""
        return min(filter(None, (self._since_ns.get(sink), self._since_ns.get(""))), default=None)

    def lead(self, incident: str, level: str) -> str:
        """The incident that opened the alert to which one belonged when it was told; empty where it was not told."""
        return self._leads.get((incident, level), "")

    def is_begun(self, lead: str, level: str) -> bool:
        """Whether it was noted that an incident has opened an alert."""
        return level in self._led.get(lead, ())

    def is_under_way(self, lead: str, sinks: Iterable[str]) -> bool:
        """Whether an incident was noted to open an alert, and none of the sinks was told that it is over.

        Whether they were told that it is open is not known: a process may have died before it could note it.
        """
        return any(
            not any("closed" in self.told(sink, lead, level) for sink in sinks) for level in self._led.get(lead, ())
        )

    def is_ended(self, lead: str, level: str) -> bool:
        """Whether it was noted that the alert which an incident opened is over."""
        return (lead, level) in self._ended

    def is_open(self, incident: str) -> bool:
        """Whether somebody was told that it is open, and not yet that it is over."""
        return bool(self._open.get(incident))

    def level(self, incident: str) -> Level:
        """The worst at which somebody was told of an incident."""
        return self._levels.get(incident, "none")
