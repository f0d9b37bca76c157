"""Blocks that are read before they are asked for: the same rows, and nothing held that nobody will ask for."""

import gc
import threading
import weakref

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.model.codec import encode
from storage import gather_ahead
from storage.blocks import Block, Span
from storage.gather import gather
from storage.gather_ahead import GatherAhead
from tests.fakes.events import incident


def block(first, last):
    messages = tuple(
        Message(topic="incidents", key="j", partition=0, offset=at, value=encode(incident(id=f"i{at}")))
        for at in range(first, last + 1)
    )
    return Block(span=Span(topic="incidents", partition=0, first=first, last=last), messages=messages)


def test_what_was_begun_is_what_is_gathered_at_once():
    clock = ManualClock(7)
    ahead = GatherAhead(clock)
    begun, other = block(0, 2), block(3, 4)
    ahead.begin([begun])
    for one in (begun, other):
        assert [i.rows for i in ahead.take(one).inserts] == [i.rows for i in gather(one.messages, clock).inserts]
    ahead.close()


def test_a_block_that_has_grown_is_not_held_in_its_shorter_form(monkeypatch):
    is_read, rows = threading.Event(), []

    def watched(messages, clock):
        gathered = gather(messages, clock)
        rows.append(weakref.ref(gathered.inserts[0].rows))
        is_read.set()
        return gathered

    monkeypatch.setattr(gather_ahead, "gather", watched)
    ahead = GatherAhead(ManualClock(7))
    ahead.begin([block(0, 2)])
    assert is_read.wait(30)
    ahead.begin([block(0, 3)])
    grown = ahead.take(block(0, 3))
    gc.collect()
    assert [one() is None for one in rows] == [True, False]
    assert grown.rows == {"stored_incidents": 4}
    ahead.close()
