"""Iterations from the calls alone against the optimizer steps of the same real job, run on gloo and recorded."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bench.rig import realjob
from pacehound.bus.recording import Recording
from pacehound.model.calls import CallBatch
from pacehound.model.events import IterationSample, Markers, Progress
from pacehound.model.routing import Event
from pacehound.settings import Settings
from streams.pipeline import Pipeline
from tests.fakes.said import said_in

pytestmark = [pytest.mark.integration, pytest.mark.prove, pytest.mark.timeout(180)]

SCRIPT = Path(__file__).with_name("recurring_job.py")
WINDOW = 100

LENGTHS = [
    pytest.param(160, id="short"),
    pytest.param(3_000, id="long", marks=[pytest.mark.timeout(600)]),
]


def recorded(folder: Path, kind: str, iterations: int) -> list[Event]:
    """What the head was told of a job."""
    with realjob.recording_head(folder) as record:
        run = realjob.start(folder, realjob.forked(kind, iterations, ranks=2, script=SCRIPT))
        assert run.wait(400) == 0, run.text()
    return [event for message in Recording(record) for event in said_in(message.value)]


def without_steps(events: list[Event]) -> Iterator[Event]:
    """The same job as a source sees it that knows nothing of optimizers."""
    for event in events:
        if isinstance(event, Progress):
            yield replace(event, marks_iterations=False)
        elif not isinstance(event, Markers):
            yield event


def calls_per_step(events: list[Event]) -> Counter[int]:
    """Calls that rank 0 launched between two optimizer steps: how often each number of them occurred."""
    launches = sorted(
        launch
        for event in events
        if isinstance(event, CallBatch)
        for rank, launch in zip(event.integers("rank").tolist(), event.integers("launch_ns").tolist(), strict=True)
        if rank == 0
    )
    steps = sorted(
        time_ns
        for event in events
        if isinstance(event, Markers)
        for rank, name, time_ns in zip(event.ranks, event.names, event.times_ns, strict=True)
        if rank == 0 and name == "optimizer_step"
    )
    places = [bisect_left(launches, step) for step in steps]
    return Counter(after - before for before, after in pairwise(places[5:]))


def samples_of(events: list[Event] | Iterator[Event]) -> tuple[list[IterationSample], int | None]:
    """Iterations, and the period that was followed at the end."""
    pipeline, samples, period = Pipeline(Settings()), [], None
    for event in events:
        samples += [out for out in pipeline.on_event(event) if isinstance(out, IterationSample)]
        for attempt in (attempt for job in pipeline._jobs.values() for attempt in job.attempts.values()):
            period = attempt._iterations._recurring.period if attempt._iterations._recurring is not None else None
    return samples, period


def errors(ours: list[IterationSample], theirs: list[IterationSample]) -> list[float]:
    """Relative differences of the mean iteration time over each window of iterations, theirs taken for true."""
    ends = [sample.time_ns for sample in theirs]
    found = []
    for first in range(1, len(ours) - WINDOW):
        start = bisect_left(ends, ours[first].time_ns)
        if start + WINDOW < len(theirs):
            mine, true = (
                statistics.fmean(sample.step_time_s for sample in samples[at + 1 : at + 1 + WINDOW])
                for samples, at in ((ours, first), (theirs, start))
            )
            found.append(abs(mine / true - 1.0))
    return found


@pytest.mark.parametrize("iterations", LENGTHS)
@pytest.mark.parametrize("kind", ["ddp", "fsdp", "pipeline"])
def test_the_calls_of_a_real_job_give_its_optimizer_steps(
    kind: str, iterations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.job.iterations.UNMARKED_PATIENCE_NS", 0)
    events = recorded(tmp_path, kind, iterations)
    theirs, _ = samples_of(events)
    ours, period = samples_of(without_steps(events))
    (calls, _), *_ = calls_per_step(events).most_common()
    assert {sample.boundary for sample in theirs} == {"optimizer_step"}
    assert {sample.boundary for sample in ours} == {"period"}
    assert period == calls
    # Until the period is known nothing is said; from then on each iteration is seen once.
    assert ours[0].time_ns <= theirs[40].time_ns
    assert abs(sum(sample.time_ns > ours[0].time_ns for sample in theirs) - len(ours)) <= 2
    off = errors(ours, theirs)
    print(f"{kind}: {calls} calls, mean of {WINDOW} off by {statistics.median(off):.4%}, at most {max(off):.4%}")
    assert statistics.median(off) <= 0.001
