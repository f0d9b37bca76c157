"""Everything arrives at least once: a stretch of a host's events that comes again, at once or late, changes nothing."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pacehound.model import codec
from pacehound.model.events import (
    CHECKPOINT_BEGIN,
    CHECKPOINT_END,
    OPTIMIZER_STEP,
    HostSample,
    HostVitals,
    Markers,
    ProcessState,
    Progress,
    Watermark,
)
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event, route
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import SlowCompute
from simulator.job import JobSpec, simulate
from streams.job.repeats import Repeats
from streams.pipeline import Pipeline
from streams.rounds.communicator import CommunicatorOperator
from streams.rounds.iterations import IterationTracker
from tests.fakes.events import topology
from tests.fakes.seeds import seeds

SPEC = JobSpec(
    layout=Layout(tp=2, dp=2),
    ranks_per_host=2,
    iterations=120,
    faults=(SlowCompute(ranks=(2,), factor=1.5, from_step=40, to_step=80),),
)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return list(simulate(SPEC).events())


Concluded = tuple[dict[str, list[tuple[object, ...]]], list[bytes]]


def concluded(events: Sequence[Event]) -> Concluded:
    """The rounds and watermarks of each stream, and what both stages say besides, byte for byte."""
    pipeline = Pipeline(Settings())
    out = [found for event in events for found in pipeline.on_event(event)]
    streams: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for event in out:
        if isinstance(event, Rounds):
            times = (event.arrival_ns, event.start_ns, event.end_ns)
            lines = zip(event.seq.tolist(), *(grid.tolist() for grid in times), strict=True)
            streams[f"{event.communicator} {event.ranks}"] += lines
        elif isinstance(event, Watermark):
            streams[event.stream].append((event.time_ns,))
    return dict(streams), [codec.encode(event) for event in out if not isinstance(event, (Rounds, Watermark))]


@pytest.fixture(scope="module")
def expected(events: list[Event]) -> Concluded:
    return concluded(events)


@pytest.mark.parametrize("seed", seeds(9, in_suite=3))
def test_a_stretch_that_comes_again_changes_nothing(events: list[Event], expected: Concluded, seed: int) -> None:
    """One request of an agent: sent, not acknowledged, sent again; every third time the first one arrives late."""
    chosen = random.Random(seed)
    host = chosen.choice(sorted({event.host for event in events}))
    begin = chosen.randrange(len(events))
    end = begin + chosen.randrange(1, 80)
    at = end if seed % 3 else chosen.randrange(min(end, len(events)), len(events) + 1)
    again = [event for event in events[begin:end] if event.host == host]
    assert concluded([*events[:at], *again, *events[at:]]) == expected


def test_every_stream_that_comes_twice_from_its_first_event_on_changes_nothing(
    events: list[Event], expected: Concluded
) -> None:
    """An agent that has lost its state reads the rings again; each key is a partition of its own."""
    streams: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        streams[route(event)[1]].append(event)
    middle = {name: len(stream) // 2 for name, stream in streams.items()}
    position = dict.fromkeys(streams, 0)
    twice = []
    for event in events:
        name = route(event)[1]
        position[name] += 1
        twice.append(event)
        if position[name] == middle[name]:
            twice += streams[name][: middle[name]]
    assert concluded(twice) == expected


def test_a_topology_that_comes_after_the_last_word_does_not_open_the_stream_again() -> None:
    said = topology("c", (0,))
    operator = CommunicatorOperator(said, 5)
    operator.on_topology(said)
    operator.on_progress(Progress(job="j", attempt=0, communicator="c", host="h", time_ns=9, ranks=(), closed=True))
    assert operator.is_closed
    assert operator.on_topology(said) == []
    assert operator.hosts == ()
    assert operator.all_counts()["repeated_topology"] == 1


def test_a_sample_that_comes_late_does_not_bring_a_process_back() -> None:
    def sample(time_ns: int, state: str) -> HostSample:
        process = ProcessState(rank=0, pid=7, state=state, since_ns=0)
        return HostSample(job="j", attempt=0, time_ns=time_ns, host="h", processes=(process,))

    repeats = Repeats()
    said = [sample(1, "running"), sample(2, "stopped"), sample(3, "exited")]
    assert not any(repeats.is_one(one) for one in said)
    assert all(repeats.is_one(one) for one in said)
    assert not repeats.is_one(HostVitals(job="j", attempt=0, time_ns=1, host="h"))
    assert not repeats.is_one(replace(said[0], host="other"))
    assert repeats.count == 3


def test_a_pause_that_is_sent_twice_ends_where_it_ended() -> None:
    def markers(*said: tuple[str, int]) -> Markers:
        names, times_ns = zip(*said, strict=True)
        zeros = (0,) * len(said)
        steps = tuple(time_ns // 10 for time_ns in times_ns)
        return Markers(
            job="j", attempt=0, host="h", communicator="c", ranks=zeros, names=names, steps=steps, times_ns=times_ns
        )

    tracker = IterationTracker("j", 0, "c", (0,), 5)
    begun = markers((OPTIMIZER_STEP, 10), (CHECKPOINT_BEGIN, 15))
    whole = markers((OPTIMIZER_STEP, 10), (CHECKPOINT_BEGIN, 15), (CHECKPOINT_END, 18), (OPTIMIZER_STEP, 20))
    assert tracker.add(begun) is begun
    assert tracker.add(whole).names == (CHECKPOINT_END, OPTIMIZER_STEP)
    assert len(tracker.close(100)) == 2
    tracker.add(markers((OPTIMIZER_STEP, 30), (OPTIMIZER_STEP, 40)))
    assert [sample.planned for sample in tracker.close(100)] == ["", ""]
    assert tracker.backward == 2
