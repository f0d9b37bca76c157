"""The worker that writes a head's store: what does not fit is set aside, and takes nothing else with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.errors import Unavailable
from pacehound.model import codec
from pacehound.model.events import DeadLetter, IterationSample
from pacehound.model.routing import Event, route
from storage.client import Store
from storage.worker import StoreWorker
from tests.fakes.events import one_of_each

SAMPLE = next(one for one in one_of_each() if isinstance(one, IterationSample))


def taken(worker: StoreWorker, events: list[Event]) -> None:
    for offset, event in enumerate(events):
        topic, key = route(event)
        worker.on_event(event, Message(topic=topic.name, key=key, partition=0, offset=offset, value=b"x"))


def iterations(store: Store) -> list[int]:
    return [row["step"] for row in store.query("SELECT step FROM iterations ORDER BY step").to_pylist()]


def test_what_does_not_fit_is_a_dead_letter_and_all_others_are_stored(store: Store) -> None:
    worker = StoreWorker(store, ManualClock(0))
    taken(worker, [replace(SAMPLE, step=number) for number in (1, 2**70, 3)])
    (letter,) = worker.settle()
    assert isinstance(letter, DeadLetter)
    assert (letter.source_topic, letter.offset, letter.error) == ("iterations", 1, "InvalidEvent")
    assert iterations(store) == [1, 3]
    taken(worker, [replace(SAMPLE, step=4)])
    assert worker.settle() == []
    assert iterations(store) == [1, 3, 4]


def test_of_a_message_with_many_only_what_does_not_fit_is_in_the_letter(store: Store) -> None:
    worker = StoreWorker(store, ManualClock(0))
    events = [replace(SAMPLE, step=number) for number in (1, 2**70, 3, 2**71)]
    topic, key = route(events[0])
    value = codec.encode(*events)
    message = Message(topic=topic.name, key=key, partition=0, offset=5, value=value, events=tuple(events))
    for event in events:
        worker.on_event(event, message)
    (letter,) = worker.settle()
    assert isinstance(letter, DeadLetter)
    assert (letter.offset, letter.error) == (5, "InvalidEvent")
    told, unfit = codec.records_of(letter.payload), codec.records_of(codec.encode(events[1], events[3]))
    assert [record.body for _, record in told] == [record.body for _, record in unfit]
    assert iterations(store) == [1, 3]


@pytest.mark.parametrize("odd", [2**70, 2])
def test_while_the_store_is_away_everything_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch, odd: int) -> None:
    worker = StoreWorker(store, ManualClock(0))
    taken(worker, [replace(SAMPLE, step=number) for number in (1, odd)])

    def away(table: str, rows: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(store, "insert", away)
        for _ in range(2):
            with pytest.raises(Unavailable):
                worker.settle()
    letters = worker.settle()
    assert [letter.offset for letter in letters if isinstance(letter, DeadLetter)] == ([1] if odd > 2 else [])
    assert iterations(store) == ([1] if letters else [1, 2])


def test_where_the_engine_refuses_each_is_inserted_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = StoreWorker(store, ManualClock(0))
    insert, asked = store.insert, []

    def refusing(table: str, rows: object) -> None:
        asked.append(len(rows))  # type: ignore[arg-type]
        if len(rows) > 1:  # type: ignore[arg-type]
            raise ValueError("too many for this engine")
        insert(table, rows)  # type: ignore[arg-type]

    taken(worker, [replace(SAMPLE, step=number) for number in (1, 2)])
    monkeypatch.setattr(store, "insert", refusing)
    assert worker.settle() == []
    assert asked == [2, 1, 1]
    assert iterations(store) == [1, 2]
