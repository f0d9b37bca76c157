"""Tells a receiver of each state of each incident, and remembers it in the log; the same on Kafka and in a head.

Who was told of what is the topic `notifications`, with the partitions and the key of `incidents`: whoever is given a
partition of the one reads the same partition of the other first, and so knows what the member before has told; a head
asks its store. A notice is sent, then noted, then the offset is committed. A process that dies between the first two
tells again when it comes back, with the same idempotency key; nothing else is told twice, and nothing is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from alerts.notice import Notice, Sink
from alerts.rules import rule
from pacehound.bus import Message, Place
from pacehound.clock import Clock
from pacehound.errors import RejectedMessage, Unavailable
from pacehound.model.events import Incident, Notification
from pacehound.model.routing import Event
from pacehound.runtime.event_loop import EventWorker
from pacehound.runtime.metric_names import NOTICES
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

GIVE_UP_AFTER_S = 3600.0

Told = Callable[[int], Iterable[tuple[str, str]]]
"""(incident, state) of what was told of the incidents of a partition so far; it may name others, too."""


class NoticeRefused(RejectedMessage):
    """The receiver will never take this notice; it can be replayed once the receiver has been put right."""


class NoticeGivenUp(RejectedMessage):
    """The receiver has been away for too long; the notice can be replayed."""


class AlertWorker(EventWorker):
    """Incidents in, notices out.

    Parameters
    ----------
    sink
        Who is told.
    told
        Reads what was told before, when a partition is met for the first time.
    clock, telemetry
        The time, and what is counted.

    """

    kinds: tuple[type, ...] = (Incident,)

    def __init__(self, sink: Sink, told: Told, clock: Clock, telemetry: Telemetry) -> None:
        self._sink = sink
        self._told = told
        self._clock = clock
        self._telemetry = telemetry
        self._known: dict[int, set[tuple[str, str]]] = {}
        self._refused: dict[int, dict[tuple[str, str], int]] = {}
        self._since_s: dict[tuple[str, str], float] = {}

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """Tell of a version of an incident, if it is to be told of.

        Raises
        ------
        Unavailable
            The receiver is away: the same version comes again.
        RejectedMessage
            The receiver refuses it, or has been away for an hour.

        """
        assert isinstance(event, Incident)
        known = self._known_in(message.partition)
        state = (event.id, event.state)
        refused = self._refused.get(message.partition, {}).get(state)
        if refused is not None and refused != event.version:
            return []  # once is enough; the same version comes again only when somebody replays it
        if not rule(event, known).tells:
            return []
        notice = Notice(incident=event)
        delivery = self._sink.deliver(notice)
        if delivery.outcome == "unavailable":
            since_s = self._since_s.setdefault(state, self._clock.monotonic_s())
            if self._clock.monotonic_s() - since_s < GIVE_UP_AFTER_S:
                self._telemetry.add(NOTICES, outcome="retried")
                raise Unavailable(f"the notice of incident {event.id} ({event.state}): {delivery.detail}")
        self._since_s.pop(state, None)
        if delivery.outcome != "delivered":
            self._refused.setdefault(message.partition, {})[state] = event.version
            refusal = NoticeRefused if delivery.outcome == "refused" else NoticeGivenUp
            self._telemetry.add(NOTICES, outcome="refused" if refusal is NoticeRefused else "given up")
            raise refusal(f"the notice of incident {event.id} ({event.state}): {delivery.detail}")
        known.add(state)
        self._telemetry.add(NOTICES, outcome="delivered")
        return [
            Notification(
                job=event.job,
                attempt=event.attempt,
                time_ns=self._clock.now_ns(),
                incident=event.id,
                state=event.state,
                idempotency_key=notice.idempotency_key,
            )
        ]

    def on_revoked(self, places: list[Place]) -> None:
        """Somebody else goes on there, and knows better from then on."""
        for _, partition in places:
            self._known.pop(partition, None)
            self._refused.pop(partition, None)

    def _known_in(self, partition: int) -> set[tuple[str, str]]:
        known = self._known.get(partition)
        if known is None:
            known = set(self._told(partition))
            self._known[partition] = known
        return known
