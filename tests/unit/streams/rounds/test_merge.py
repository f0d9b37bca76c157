"""Streams of one job in one order, whatever is sent twice."""

from __future__ import annotations

from pacehound.model.events import HostSample
from streams.rounds.merge import Merge


def test_an_event_that_was_sent_twice_before_its_turn_comes_twice() -> None:
    """Who takes it knows it by its identity; here it must only not break the order of the others."""
    sample = HostSample(job="j", attempt=0, time_ns=5, host="h", processes=())
    merge: Merge[HostSample] = Merge()
    merge.expect("host:j/h")
    for _ in range(3):
        merge.push("host:j/h", sample)
    merge.advance("host:j/h", 10)
    assert merge.take_events(10) == [sample] * 3
