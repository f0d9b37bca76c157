"""A store that holds the simulated month of 200 jobs, and the month as it truly was."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.model.codec import encode
from pacehound.model.routing import route
from simulator.suites.month import Month
from storage.blocks import Span
from storage.client import Store
from storage.gather import gather
from storage.writer import Writer

MONTH = Month(seed=1, n_jobs=200, n_hosts=320, start_ns=1_759_276_800_000_000_000)
"""October 2025, but for its last day."""
_BLOCK = 5_000


def write_month(folder: Path) -> None:
    """Through the writer that every store has."""
    events = sorted(MONTH.events(), key=lambda event: (route(event)[0].name, event.time_ns))
    clock = ManualClock(MONTH.end_ns)
    with Store.open(folder) as store:
        writer = Writer(store)
        for topic, of_topic in groupby(events, key=lambda event: route(event)[0].name):
            messages = [
                Message(topic=topic, key=route(event)[1], partition=0, offset=offset, value=encode(event))
                for offset, event in enumerate(of_topic)
            ]
            for first in range(0, len(messages), _BLOCK):
                block = messages[first : first + _BLOCK]
                gathered = gather(block, clock)
                assert gathered.dead_letters == ()
                span = Span(topic=topic, partition=0, first=first, last=block[-1].offset)
                writer.write_block(span, gathered, "month", is_repeat=False)
