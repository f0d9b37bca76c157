"""What the page asks: named queries of a history, whoever has it open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from pacehound.clock import Clock, SystemClock
from pacehound.model.events import Decision, Incident
from pacehound.model.evidence import read_json
from pacehound.runtime.head.interrupted import interrupted


class History(Protocol):
    """Answers named queries (`storage/queries`)."""

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Rows of one of the store's own queries."""
        ...


class Source:
    """A history as the page reads it.

    Parameters
    ----------
    history
        Who answers.
    is_watched
        Somebody still writes it. Otherwise nothing in it can be open, and is shown as the next head will write it.
    clock
        Says what "now" is.

    """

    def __init__(self, history: History, *, is_watched: bool = True, clock: Clock | None = None) -> None:
        self._history = history
        self.is_watched = is_watched
        self._clock = clock or SystemClock()

    def now_ns(self) -> int:
        """The time."""
        return self._clock.now_ns()

    def table(self, query: str, **parameters: Any) -> pa.Table:
        """The answer of a named query."""
        return self._history.ask(query, parameters)

    def rows(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        """The same, where it has few rows."""
        rows: list[dict[str, Any]] = self.table(query, **parameters).to_pylist()
        return rows

    def incidents(self, job: str = "", most: int = 500) -> list[Incident]:
        """The latest version of each incident, the newest first."""
        stored = [_incident(row) for row in self.rows("page/incidents", job=job, most=most)]
        ended = {} if self.is_watched else {one.id: one for one in interrupted(stored, self.now_ns())}
        return [ended.get(one.id, one) for one in stored]

    def incident(self, incident: str) -> list[Incident]:
        """All versions of an incident, the newest first; empty where there is none."""
        versions = [version for row in self.rows("incident", id=incident) if (version := _incident(row)).id == incident]
        if versions and not self.is_watched:
            return [*interrupted(versions[:1], self.now_ns()), *versions]
        return versions

    def decisions(self, incident: str) -> list[Decision]:
        """What was decided about it, in order."""
        return [read_json(row["event"], Decision) for row in self.rows("decisions", incident=incident)]


def _incident(row: Mapping[str, Any]) -> Incident:
    return read_json(row["event"], Incident)
