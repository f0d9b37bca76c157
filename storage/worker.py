"""The store of a head as a worker of the event loop: events in, rows on disk before they are confirmed."""

from __future__ import annotations

from pacehound.bus import Message
from pacehound.clock import Clock
from pacehound.errors import Unavailable
from pacehound.model.events import DeadLetter
from pacehound.model.routing import Event
from pacehound.runtime.dead_letter import dead_letter_of
from pacehound.runtime.event_loop import EventWorker
from storage.client import Store
from storage.engine_code import UnneededCode
from storage.gather import Rows


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
        self._rows = Rows(at_once=True)
        self._taken: list[tuple[Event, Message]] = []
        self._unneeded = UnneededCode(clock)

    def on_turn(self) -> list[Event]:
        """Give back what the engine needs no more."""
        self._unneeded.give_back_when_due()
        return []

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """Take an event; a value that no table takes refuses it."""
        self._rows.add(event)
        self._taken.append((event, message))
        return []

    def settle(self) -> list[Event]:
        """Insert what was taken.

        Where the engine answers and refuses, the events are inserted one by one, so that a bad one takes no others.

        Raises
        ------
        Unavailable
            The store does not answer; everything is kept and inserted the next time.

        """
        refused: list[Event] = []
        try:
            self._insert(self._rows)
        except Unavailable:
            raise
        except Exception:
            refused = [letter for event, message in self._taken if (letter := self._alone(event, message)) is not None]
        self._rows = Rows(at_once=True)
        self._taken = []
        return refused

    def _alone(self, event: Event, message: Message) -> DeadLetter | None:
        rows = Rows(at_once=True)
        rows.add(event)
        try:
            self._insert(rows)
        except Unavailable:
            raise
        except Exception as error:
            return dead_letter_of(message, error, self._clock.now_ns())
        return None

    def _insert(self, rows: Rows) -> None:
        for insert in rows.inserts():
            self._store.insert(insert.table, insert.rows)
