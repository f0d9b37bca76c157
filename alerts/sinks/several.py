"""Several receivers as one: told when all of them are."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.notice import Delivery, Notice, Sink

_REMEMBERED = 1000


class Several:
    """Delivers to each in turn; one that was reached is not asked again while another one is away.

    A receiver that refuses does not keep the others from being told.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)
        self._reached: dict[str, dict[int, Delivery]] = {}

    def deliver(self, notice: Notice) -> Delivery:
        """Try those that have not answered yet, once each."""
        answers = self._reached.setdefault(notice.idempotency_key, {})
        away = None
        for number, sink in enumerate(self._sinks):
            if number not in answers:
                delivery = sink.deliver(notice)
                if delivery.outcome == "unavailable":
                    away = away or delivery
                else:
                    answers[number] = delivery
        while len(self._reached) > _REMEMBERED:
            del self._reached[next(iter(self._reached))]
        if away is not None:
            return away
        del self._reached[notice.idempotency_key]
        refused = [one for one in answers.values() if one.outcome == "refused"]
        return refused[0] if refused else Delivery(outcome="delivered")

    def close(self) -> None:
        """Give up all their connections."""
        for sink in self._sinks:
            sink.close()
