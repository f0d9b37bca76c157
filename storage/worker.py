"""The store of a head as a worker of the event loop: events in, rows on disk before they are confirmed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from pacehound.bus import Message
from pacehound.clock import Clock
from pacehound.errors import InvalidEvent, Unavailable
from pacehound.model.routing import Event
from pacehound.runtime.event_loop import EventWorker
from pacehound.runtime.records import Outcome, dead_letters_of, record_of
from storage.client import Store
from storage.engine_code import LOOKS_S
from storage.gather import Insert, Rows

_Refused = tuple[Message, Outcome[None]]


class StoreWorker(EventWorker):
    """Collects the rows of events and inserts them together.

    Messages may come again, in other portions too: every row has an identity (the ORDER BY of its table), and the views
    show each once. (Several writers of one store write in blocks instead, each exactly once: service.py.)

    Parameters
    ----------
    store
        Where to.
    clock
        Stamps dead letters.

    """

    kinds: tuple[type, ...] = (object,)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._rows = Rows()
        self._taken: list[tuple[Event, Message]] = []

    def on_turn(self) -> list[Event]:
        """Give back what the engine needs no more."""
        self._store.unneeded.give_back_when_due()
        return []

    def may_wait_s(self) -> float:
        """Until that may be due."""
        return LOOKS_S

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """Take an event; whether its values fit is seen when the rows of all become columns."""
        self._rows.add(event)
        self._taken.append((event, message))
        return []

    def settle(self) -> list[Event]:
        """Insert what was taken; dead letters of what no table takes, which takes no others with it.

        Raises
        ------
        Unavailable
            The store does not answer; everything is kept and inserted the next time.

        """
        try:
            inserts, refused = self._fitting()
            self._insert(inserts)
        except Unavailable:
            raise
        except Exception:  # the engine answers and refuses
            refused = [
                (message, outcome) for event, message in self._taken if (outcome := self._alone(event, message)).error
            ]
        self._rows = Rows()
        self._taken = []
        letters: list[Event] = []
        for message, some in groupby(refused, itemgetter(0)):
            letters += dead_letters_of(message, [outcome for _, outcome in some], self._clock.now_ns())
        return letters

    def _fitting(self) -> tuple[list[Insert], list[_Refused]]:
        """The rows of those that fit, and what became of the others."""
        try:
            return [*self._rows.inserts()], []
        except InvalidEvent:
            pass  # seldom: whose value it is is seen where the rows of each become columns alone
        rows, refused = Rows(at_once=True), list[_Refused]()
        for event, message in self._taken:
            try:
                rows.add(event)
            except InvalidEvent as error:
                refused.append((message, Outcome(event=event, error=error, record=record_of(message, event))))
        return [*rows.inserts()], refused

    def _alone(self, event: Event, message: Message) -> Outcome[None]:
        rows = Rows(at_once=True)
        try:
            rows.add(event)
            self._insert(rows.inserts())
        except Unavailable:
            raise
        except Exception as error:
            return Outcome(event=event, error=error, record=record_of(message, event))
        return Outcome(event=event)

    def _insert(self, inserts: Iterable[Insert]) -> None:
        for insert in inserts:
            self._store.insert(insert.table, insert.rows)
