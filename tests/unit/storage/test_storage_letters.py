"""What cannot be stored becomes a dead letter, whoever is at fault, and takes nothing else with it."""

from __future__ import annotations

import pytest

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.codec import encode
from pacehound.routing import Event
from storage import writer as writer_module
from storage.writer import Writer
from tests.fakes.events import call_batch, incident


def test_a_fault_of_ours_sets_one_record_aside_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of = writer_module.rows_of

    def faulty(event: Event) -> object:
        if getattr(event, "id", "") == "i1":
            raise ZeroDivisionError("nobody has thought of this")
        return rows_of(event)

    monkeypatch.setattr(writer_module, "rows_of", faulty)
    bad = encode(incident(id="i1"))
    values = [encode(call_batch()), encode(incident()) + bad + encode(incident(id="i2"))]
    messages = [Message(topic="t", key="k", partition=1, offset=n, value=value) for n, value in enumerate(values)]
    gathered = Writer(None, ManualClock(7)).gather(messages)  # type: ignore[arg-type]
    result = gathered.result()
    assert [(one.offset, one.error, one.payload) for one in result.dead_letters] == [(1, "ZeroDivisionError", bad)]
    assert (result.rows["stored_calls"], result.rows["stored_incidents"]) == (20, 2)
