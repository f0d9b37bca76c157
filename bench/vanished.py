"""`python -m bench.vanished`: a thousand jobs begin, are heard for a while, and vanish; what memory is left of them.

Both stages, what writes their ticks, the actuators and what a head knows of communicators, in one process, with a
clock that is stepped: an hour passes in seconds. A few jobs come first, so that what is loaded and kept once is there
before. It ends with status 1 where memory has grown by more than a tenth.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from actuators.worker import ActuatorWorker
from pacehound.bus import Message
from pacehound.model import codec
from pacehound.model.events import Incident, Tick, Topology
from pacehound.model.routing import Event, route
from pacehound.model.topology import Layout
from pacehound.runtime.head.intake import SENT_BY_HOSTS
from pacehound.runtime.head.known_topology import KnownTopology
from pacehound.runtime.silence import Silence
from pacehound.settings import Settings
from simulator.job import simulate
from simulator.spec import JobSpec
from streams.pipeline import Pipeline
from streams.rounds.giving_up import GIVEN_UP
from streams.rounds.thresholds import GIVEN_UP_AFTER_NS

S = 1_000_000_000
MAX_GROWTH = 0.10
BEFORE = 50
TICK_S = 30
"""Ticks and steps come more seldom than in life, where they come once a second: what is left of a job is the same."""


@dataclass
class World:
    """What keeps something of a job."""

    settings: Settings = field(default_factory=lambda: Settings.load({}, [f"stream.tick_s={TICK_S}"]))
    known: KnownTopology = field(default_factory=KnownTopology)
    actuators: ActuatorWorker = field(default_factory=lambda: ActuatorWorker(lambda _: []))
    now_s: int = 0
    closed: int = 0

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(self.settings)
        self.silence = Silence(started_s=0.0, silent_after_s=5.0, every_s=TICK_S, grace_s=0.0)

    def take(self, event: Event) -> None:
        """One event, and what follows from it."""
        for result in self.pipeline.on_event(event):
            if isinstance(result, Incident):
                self.closed += result.closed_why == GIVEN_UP
                topic, key = route(result)
                self.actuators.on_event(result, Message(topic=topic.name, key=key, partition=0, offset=0, value=b""))

    def live_and_vanish(self, names: list[str]) -> None:
        """These jobs begin, at once, and an hour after their last word."""
        epoch_ns = 0
        for name in names:
            spec = JobSpec(job=name, layout=Layout(tp=2, dp=2), iterations=20, ranks_per_host=2)
            events = [event for event in simulate(spec).events() if isinstance(event, SENT_BY_HOSTS)]
            for event in events[: len(events) // 2]:
                self.known.note(event, codec.encode(event) if isinstance(event, Topology) else b"", self.now_s)
                self.silence.heard(route(event)[1], event.job, event.host, lag_s=0.1, now_s=self.now_s)
                epoch_ns = max(epoch_ns, getattr(event, "time_ns", 0))
                self.take(event)
        for second in range(0, GIVEN_UP_AFTER_NS // S + 3 * TICK_S, TICK_S):
            self.now_s += TICK_S
            streams = self.pipeline.streams()
            for stream in self.silence.due(streams, self.now_s):
                opened = streams[stream]
                at_ns = epoch_ns + (second + 6) * S
                self.take(Tick(job=opened.job, attempt=opened.attempt, time_ns=at_ns, stream=stream))


def resident_bytes() -> int:
    """Of this process, after what is free has been given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.vanished", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000, help="that begin and vanish")
    parser.add_argument("--at-once", type=int, default=50, help="so many live at a time")
    options = parser.parse_args()
    world = World()
    world.live_and_vanish([f"before-{number}" for number in range(BEFORE)])
    before = resident_bytes()
    for first in range(0, options.jobs, options.at_once):
        world.live_and_vanish([f"job-{first + n}" for n in range(min(options.at_once, options.jobs - first))])
        print(f"{first + options.at_once} jobs, {resident_bytes() / 2**20:.1f} MiB", file=sys.stderr, flush=True)
    after, streams = resident_bytes(), len(world.pipeline.streams())
    print(
        f"{options.jobs} jobs began and vanished: {before / 2**20:.1f} MiB before, {after / 2**20:.1f} MiB after "
        f"({after / before - 1:+.1%}), {streams} streams open, {world.closed} incidents closed as {GIVEN_UP!r}"
    )
    return int(after > before * (1 + MAX_GROWTH) or streams > 0)


if __name__ == "__main__":
    sys.exit(main())
