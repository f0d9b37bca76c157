"""Incidents in, decisions out, each once; the same on Kafka and on the memory bus of a head.

What was decided is known from the topic `decisions`, with the partitions and the key of `incidents`: whoever is given a
partition of the one reads the same partition of the other first; a head reads it from its store. Decisions are durable
before the offset is committed, so a process that dies in between finds on its return that it has decided already.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from actuators.decide import decide
from pacehound.bus import Message, Place
from pacehound.model.events import Decision, Incident
from pacehound.model.routing import Event
from pacehound.model.topics import INCIDENTS, partition_of
from pacehound.runtime.event_loop import EventWorker

if TYPE_CHECKING:
    from actuators.attendant import Attendant
    from actuators.recovery_orders import RecoveryOrders

logger = logging.getLogger(__name__)

REMEMBERED = 10_000
"""Decisions of a partition that are known as such: far more than incidents whose versions may still come again. One
that comes again later is said again, with the same id, and every reader drops it."""

STEP_S = 0.5
"""So often what is under way is looked at."""

Recovery = Callable[[Incident], Decision | None]
"""What is to be done about an incident that has lost ranks, besides a restart (`actuators.recovering`)."""

Noted = Callable[[set[int]], Iterable[Decision]]
"""What was written down of restarts in these partitions, in the order of the log."""

Decided = Callable[[int], Iterable[Decision]]
"""What was decided about the incidents of a partition so far; a partition may be told of more than its own."""


class ActuatorWorker(EventWorker):
    """Says of each incident what would be done, once per action and whom it is aimed at.

    A decision's id names just that, so one that is said again after a restart is the same decision. What was decided
    while nobody was named is decided anew when somebody is. An incident that is closed is not forgotten at once: in a
    log its open versions may come again after that.

    Parameters
    ----------
    decided
        What was decided before.
    attendant
        Who looks closer and measures by itself; nobody in mode `observe`.
    recovery
        Prices plans for a job that has lost ranks.
    noted
        What was written down of restarts: whoever is given a partition goes on with those that are not over.
    survivors
        Who answers them when they ask which plan to go on with; nobody where no way leads to them.

    """

    kinds: tuple[type, ...] = (Incident,)

    def __init__(
        self,
        decided: Decided,
        attendant: Attendant | None = None,
        recovery: Recovery = lambda _incident: None,
        noted: Noted = lambda _partitions: (),
        survivors: RecoveryOrders | None = None,
    ) -> None:
        self._decided, self._attendant, self._recovery, self._noted = decided, attendant, recovery, noted
        self._survivors = survivors
        self._said: dict[int, dict[str, None]] = {}  # by partition, in the order in which they were said
        self._mine: set[int] = set()
        self._new: set[int] = set()  # of those, restarts in which are not known yet

    def on_assigned(self, places: list[Place]) -> None:
        """What was left there is gone on with before anything else is done."""
        new = {partition for _, partition in places}
        self._mine |= new
        self._new |= new

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """The decisions that this version of an incident adds."""
        assert isinstance(event, Incident)
        lost = self._take_up()
        partition = message.partition
        if partition not in self._said:
            decided = list(self._decided(partition))
            self._said[partition] = dict.fromkeys(decision.identity() for decision in decided)
            if self._attendant is not None:
                for decision in sorted(decided, key=lambda one: one.time_ns):
                    if partition_of(decision.job.encode(), INCIDENTS.partitions) == partition:
                        self._attendant.on_decided(decision)
        said = self._said[partition]
        decisions = [*decide(event), *self._recover(event)]
        new = [decision for decision in decisions if decision.identity() not in said]
        said |= dict.fromkeys(decision.identity() for decision in new)
        for oldest in list(islice(said, max(len(said) - REMEMBERED, 0))):
            del said[oldest]
        if self._attendant is not None:
            self._attendant.on_incident(event)
        if self._survivors is not None:
            self._survivors.on_incident(event)
        return [*lost, *new]

    def _take_up(self) -> list[Decision]:
        """Restarts of partitions that were given to this worker; what of them does not stand in the log is said."""
        if not self._new or self._attendant is None:
            return []
        lost = self._attendant.take_up(self._noted(self._new), self._new)
        self._new = set()
        return lost

    def _recover(self, incident: Incident) -> list[Decision]:
        """Where it cannot be reckoned, what else is decided about the incident is none the worse."""
        try:
            recovery = self._recovery(incident)
        except Exception:
            logger.exception("the recovery of incident %s of job %s cannot be priced", incident.id, incident.job)
            return []
        return [] if recovery is None else [recovery]

    def on_turn(self) -> list[Event]:
        """What the attendant does as time passes, and what survivors are answered."""
        found = [] if self._survivors is None else self._survivors.step(self._is_mine)
        return [*found, *([] if self._attendant is None else [*self._take_up(), *self._attendant.step()])]

    def may_wait_s(self) -> float:
        """Until something is under way, or half a second: whoever was told or held something may have answered."""
        is_idle = self._survivors is None or self._survivors.is_idle
        if self._attendant is not None:
            is_idle = is_idle and not self._new and self._attendant.is_idle
        return math.inf if is_idle else STEP_S

    def _is_mine(self, job: str) -> bool:
        """Whether its incidents come to this worker."""
        return partition_of(job.encode(), INCIDENTS.partitions) in self._mine

    def on_settled(self) -> None:
        """What was decided so far is durable."""
        if self._attendant is not None:
            self._attendant.on_settled()

    def on_revoked(self, places: list[Place]) -> None:
        """Somebody else goes on there."""
        for _, partition in places:
            self._said.pop(partition, None)
        self._mine -= {partition for _, partition in places}
        if self._attendant is not None and places:
            self._attendant.forget()
            self._new = set(self._mine)
