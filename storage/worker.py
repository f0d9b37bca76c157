"""The store of a head as a worker of the event loop: events in, rows on disk before they are confirmed."""

from __future__ import annotations

from collections.abc import Iterable

from pacehound.bus import Message
from pacehound.clock import Clock
from pacehound.errors import InvalidEvent, Unavailable
from pacehound.model.events import DeadLetter
from pacehound.model.routing import Event
from pacehound.runtime.dead_letter import dead_letter_of
from pacehound.runtime.event_loop import EventWorker
from storage.client import Store
from storage.gather import Insert, Rows


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
        refused: list[Event] = []
        try:
            inserts, refused = self._fitting()
            self._insert(inserts)
        except Unavailable:
            raise
        except Exception:  # the engine answers and refuses
            refused = [letter for event, message in self._taken if (letter := self._alone(event, message)) is not None]
        self._rows = Rows()
        self._taken = []
        return refused

    def _fitting(self) -> tuple[list[Insert], list[Event]]:
        """The rows of those that fit, and letters of the others."""
        try:
            return [*self._rows.inserts()], []
        except InvalidEvent:
            pass  # seldom: whose value it is is seen where the rows of each become columns alone
        rows, letters = Rows(at_once=True), list[Event]()
        for event, message in self._taken:
            try:
                rows.add(event)
            except InvalidEvent as error:
                letters.append(dead_letter_of(message, error, self._clock.now_ns()))
        return [*rows.inserts()], letters

    def _alone(self, event: Event, message: Message) -> DeadLetter | None:
        rows = Rows(at_once=True)
        try:
            rows.add(event)
            self._insert(rows.inserts())
        except Unavailable:
            raise
        except Exception as error:
            return dead_letter_of(message, error, self._clock.now_ns())
        return None

    def _insert(self, inserts: Iterable[Insert]) -> None:
        for insert in inserts:
            self._store.insert(insert.table, insert.rows)
