"""Actuators on Kafka: incidents in, decisions out, each once.

What was decided is the topic `decisions`, with the partitions and the key of `incidents`: whoever is given a partition
of the one reads the same partition of the other first. Decisions are durable before the offset is committed, so a
process that dies in between finds on its return that it has decided already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from actuators.decide import decide
from pacehound.bus import Message, Place
from pacehound.model.events import Decision, Incident
from pacehound.model.routing import Event

Decided = Callable[[int], Iterable[Decision]]
"""What was decided about the incidents of a partition so far."""


class ActuatorWorker:
    """Each partition has the memory of whoever had it before.

    Unlike `Actuators`, which forgets an incident that is closed: in a log its open versions may come again after that.
    """

    kinds: tuple[type, ...] = (Incident,)

    def __init__(self, decided: Decided) -> None:
        self._decided = decided
        self._said: dict[int, set[str]] = {}

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """The decisions that this version of an incident adds."""
        assert isinstance(event, Incident)
        partition = message.partition
        if partition not in self._said:
            self._said[partition] = {decision.identity() for decision in self._decided(partition)}
        said = self._said[partition]
        new = [decision for decision in decide(event) if decision.identity() not in said]
        said.update(decision.identity() for decision in new)
        return list(new)

    def on_revoked(self, places: list[Place]) -> None:
        """Somebody else goes on there."""
        for _, partition in places:
            self._said.pop(partition, None)
