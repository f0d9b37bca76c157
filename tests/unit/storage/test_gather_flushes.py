"""A flush is stored as what it says would be, each thing by itself: the same rows, in the same inserts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.model.calls import CallBatch
from pacehound.model.codec import encode
from pacehound.model.flushes import Flush, flushes_of
from pacehound.model.routing import Event
from pacehound.model.shards import Place
from storage import gather as gather_module
from storage import schemas
from storage.gather import Gathered, gather
from tests.fakes.event_strategies import call_batches, flushes
from tests.fakes.events import call_batch, finding, incident


def gathered(events: Sequence[Event]) -> Gathered:
    values = [encode(event) for event in events]
    messages = [Message(topic="calls", key="k", partition=0, offset=n, value=value) for n, value in enumerate(values)]
    return gather(messages, ManualClock(7))


def written(found: Gathered) -> dict[str, str]:
    """As text, in which a number that is none is equal to itself."""
    return {one.name: str(one.rows.to_pylist()) for one in found.inserts if one.rows.num_rows}


@given(said=st.lists(st.one_of(flushes(), call_batches()), max_size=4), again=st.booleans())
def test_flushes_are_stored_as_what_they_say_would_be(said: list[Event], again: bool) -> None:
    if again:
        said = said + said
    alone = [one for event in said for one in (event.events() if isinstance(event, Flush) else [event])]
    found, wanted = gathered(said), gathered(alone)
    assert written(found) == written(wanted)
    assert {name: n for name, n in found.rows.items() if n} == {name: n for name, n in wanted.rows.items() if n}
    assert found.not_stored >= wanted.not_stored  # a flush may say nothing at all
    assert not found.dead_letters
    for insert in found.inserts:
        if insert.table == schemas.CALLS:
            assert insert.rows.schema.equals(schemas.CALL_TABLE)


def flush_of(*batches: CallBatch) -> Flush:
    (flush,) = flushes_of(batches, {batch.communicator: Place(0) for batch in batches})
    return flush


def test_a_batch_without_calls_that_comes_twice_is_stored_once() -> None:
    """It says how many were dropped; as a flush it has no column."""
    empty = replace(call_batch(communicator="b"), rows=call_batch().rows.slice(0, 0), dropped=7)
    found = gathered([flush_of(empty), call_batch(communicator="a"), flush_of(empty)])
    assert not found.dead_letters
    assert calls_of(found) == [len(call_batch())]


def calls_of(found: Gathered) -> list[int]:
    return [one.rows.num_rows for one in found.inserts if one.table == schemas.CALLS]


def test_a_flush_that_comes_twice_is_in_an_insert_once() -> None:
    flush = flush_of(call_batch(communicator="a"), call_batch(communicator="b"))
    assert calls_of(gathered([flush, call_batch(communicator="c"), flush])) == [60]


def test_batches_of_one_name_and_other_calls_are_in_two_inserts() -> None:
    first, second = call_batch(communicator="a"), call_batch(communicator="b")
    other = replace(call_batch(communicator="b", ordinal=1), ordinal=0)
    assert calls_of(gathered([flush_of(first, second), flush_of(first, other)])) == [40, 20]
    assert calls_of(gathered([flush_of(first, second, other)])) == [40, 20]


def test_an_insert_of_flushes_is_no_larger_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_module, "MAX_INSERT_CALLS", 100)
    flushes_ = [flush_of(call_batch(ordinal=n), call_batch(communicator="b", ordinal=n)) for n in range(7)]
    assert calls_of(gathered(flushes_)) == [120, 120, 40]


def test_what_does_not_fit_a_column_takes_its_flush_along_and_no_other() -> None:
    good = flush_of(call_batch(communicator="a"), call_batch(communicator="b"))
    bad = replace(good, parts=(good.parts[0], structs.replace(good.parts[1], ordinal=1 << 70)))
    found = gathered([bad, good])
    assert [(one.offset, one.error) for one in found.dead_letters] == [(0, "MalformedMessage")]
    assert "$.parts[1].ordinal" in found.dead_letters[0].reason
    assert (found.rows[schemas.CALLS], found.rows[schemas.BATCHES]) == (40, 2)


def test_a_part_without_rows_says_what_was_lost_alone() -> None:
    found = gathered([flush_of(call_batch(communicator="a"), call_batch(communicator="b", n_calls=0, dropped=3))])
    (rows,) = [one.rows for one in found.inserts if one.table == schemas.BATCHES]
    assert rows.column("first_seq").to_pylist() == [0, -1]
    assert np.array_equal(rows.column("dropped"), [0, 3])


def test_one_value_that_does_not_fit_takes_no_other_event_of_its_block_along() -> None:
    events = [incident(id=f"i{n}") for n in range(4)] + [flush_of(call_batch())]
    events[2] = incident(id="i2", findings=(finding(culprits=(1 << 40,)),))
    found = gathered(events)
    assert [(one.offset, one.error, one.payload) for one in found.dead_letters] == [
        (2, "InvalidEvent", encode(events[2]))
    ]
    assert "stored_incidents.culprits" in found.dead_letters[0].reason
    good = gathered([event for event in events if event is not events[2]])
    assert (written(found), found.rows) == (written(good), good.rows)
