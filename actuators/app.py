"""Actuators: incidents in, decisions out, each once."""

from __future__ import annotations

from collections.abc import Iterable

from actuators.decide import Mode, decide
from pacehound.model.events import Decision, Incident


class Actuators:
    """Says of each incident what would be done, once per action and whom it is aimed at.

    A decision's id names just that, so one that is said again after a restart is the same decision. What was decided
    while nobody was named is decided anew when somebody is.

    Parameters
    ----------
    mode
        As in `decide`.
    decided
        What was said before this process started (`storage.read.decisions`); without it the first version of an
        incident after a restart repeats its decisions, which every store drops.

    """

    def __init__(self, mode: Mode = "observe", decided: Iterable[Decision] = ()) -> None:
        self._mode: Mode = mode
        self._said: dict[str, set[str]] = {}
        for decision in decided:
            self._said.setdefault(decision.incident, set()).add(decision.identity())

    def on_incident(self, incident: Incident) -> list[Decision]:
        """The decisions that this version adds."""
        said = self._said.setdefault(incident.id, set())
        new = [decision for decision in decide(incident, self._mode) if decision.identity() not in said]
        said.update(decision.identity() for decision in new)
        if incident.state == "closed":
            del self._said[incident.id]  # it will not be opened again: what is kept is bounded by what is open
        return new
