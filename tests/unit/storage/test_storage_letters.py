"""What cannot be stored becomes a dead letter, whoever is at fault, and takes nothing else with it."""

from __future__ import annotations

import pytest

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.model.codec import encode
from pacehound.model.routing import Event
from storage import gather as gather_module
from storage.gather import gather
from tests.fakes.events import call_batch, incident


def test_a_fault_of_ours_sets_one_record_aside_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of = gather_module.rows_of

    def faulty(event: Event) -> object:
        if getattr(event, "id", "") == "i1":
            raise ZeroDivisionError("nobody has thought of this")
        return rows_of(event)

    monkeypatch.setattr(gather_module, "rows_of", faulty)
    bad = encode(incident(id="i1"))
    values = [encode(call_batch()), encode(incident()) + bad + encode(incident(id="i2"))]
    messages = [Message(topic="t", key="k", partition=1, offset=n, value=value) for n, value in enumerate(values)]
    result = gather(messages, ManualClock(7))
    assert [(one.offset, one.error, one.payload) for one in result.dead_letters] == [(1, "ZeroDivisionError", bad)]
    assert (result.rows["stored_calls"], result.rows["stored_incidents"]) == (20, 2)
