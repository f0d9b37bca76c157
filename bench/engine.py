"""The engine on a real broker: calls per second through one worker and into the store, and how late answers are.

It takes minutes, so that it does not run unless it is named: `python -m bench engine`. It needs Java and what
`make kafka` fetches. Broker, worker, writer and this process share the machine's cores, so that a rate is given per
second that passed and per second of the worker's own processor time.

Each job comes in the forms in which agents say what they have seen (`agent.messages`, `agent.digests_from_ranks`): a
message per communicator, as all did once; one for all that a host says at once; iterations instead of calls.
"""

from __future__ import annotations

import heapq
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.rig.broker import Broker, free_ports
from bench.rig.digesting_agents import DigestingAgents
from bench.rig.engine import Engine
from bench.rig.flushes import flushed_every, together
from bench.rig.from_log import ordered
from bench.rig.vitals import with_vitals
from bench.small import cpu_s
from pacehound.bus.kafka import KafkaProducer
from pacehound.bus.kafka_reader import read_to_end
from pacehound.clock import SystemClock
from pacehound.errors import Unavailable
from pacehound.model import codec, topics
from pacehound.model.calls import CallBatch
from pacehound.model.flushes import Flush
from pacehound.model.routing import Event
from pacehound.model.topology import Layout
from pacehound.runtime.feed import due_ns, feed
from pacehound.runtime.liveness import Liveness
from pacehound.runtime.metric_names import EVENTS_IN, WRITER_ROWS, Metric
from pacehound.runtime.scrape import scrape
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec
from storage import schemas
from storage.client import Store
from storage.rows import calls_table

LAYOUTS = {
    16: (Layout(tp=2, dp=4, pp=2), 1_500),
    256: (Layout(tp=8, dp=8, pp=4), 100),
    4_096: (Layout(tp=8, dp=64, pp=8), 20),
    16_384: (Layout(tp=8, dp=256, pp=8), 8),
}
"""By ranks: how they are laid out, and how many iterations they run: of the largest more than a flush of a second."""

FLUSHES_S = (1, 8)
FORMS = ("apart", "together")
TIMES_LONGER = 15.0
"""Of those that are told in iterations, which are then 2.1 s: nobody has 16,384 ranks with iterations of 0.15 s."""
DIGESTED = {256: 60, 4_096: 15}
"""Iterations of these, of which the first three are told call by call. (`large_job` has 16,384 ranks.)"""
# Long enough for blocks that are whole: a writer that has caught up waits for its flush time, and that is no rate.
WRITTEN_RANKS, WRITTEN_FLUSH_S, WRITTEN_ITERATIONS = 16, 8, 6_000
LATENCY_LAYOUT, LATENCY_ITERATIONS, LATENCY_JOBS = Layout(tp=2, dp=4, pp=2), 300, 2
STORED_S = "toUnixTimestamp64Milli(stored_at) / 1e3"
WITHIN_S = 900.0
LOOK_S = 0.1
SELDOM_S = 1.0
"""A worker takes 8 ms to say how far it is, which ten times a second was a twelfth of what was measured of it."""


def run() -> list[dict[str, Any]]:
    """One row per figure."""
    rows: list[dict[str, Any]] = []

    def add(more: list[dict[str, Any]]) -> None:
        rows.extend(more)
        for row in more:  # half an hour is long to wait for the first
            sys.stderr.write(f"{row['case']}: {row['figure']} {row['value']:,.4g} {row['unit']}\n")

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        broker = Broker(folder / "kafka")
        broker.start()
        try:
            for ranks, (_, iterations) in LAYOUTS.items():
                # What runs for seconds only cannot be flushed every eight of them.
                for flush_s in FLUSHES_S if ranks <= 256 else FLUSHES_S[:1]:
                    for form in FORMS:
                        add(_streams(_filled(broker, folder, ranks, flush_s, iterations, form)))
            for ranks, iterations in DIGESTED.items():
                add(_streams(_filled(broker, folder, ranks, FLUSHES_S[0], iterations, "digests")))
            written = _filled(broker, folder, WRITTEN_RANKS, WRITTEN_FLUSH_S, WRITTEN_ITERATIONS, "together", "written")
            add(_writing(written, folder))
            add(_latency(broker, folder))
        finally:
            broker.stop()
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filled:
    """What was put on Kafka before anybody read it."""

    engine: Engine
    case: str
    calls: int
    batches: int
    kind: str  # of the events in which calls are
    events: int  # of that kind
    rank_seconds: float  # that the job takes, over all its ranks


def _filled(
    broker: Broker, folder: Path, ranks: int, flush_s: int, iterations: int, form: str, prefix: str = "bench"
) -> _Filled:
    layout, _ = LAYOUTS[ranks]
    name = f"{prefix}{ranks}x{flush_s}{form}"
    engine = Engine(broker.settings(f"{name}."), folder / name)
    usual = JobSpec(layout=layout, iterations=iterations, source=DEVICE_TIMES)
    simulation = simulate(usual.with_longer_iterations(TIMES_LONGER) if form == "digests" else usual)
    kind = "CallBatch" if form == "apart" else "Flush"
    sizes: list[int] = []
    n_events = 0

    def of_calls() -> Iterator[Event]:
        for event in flushed_every(with_vitals(simulation.events()), 1 if form == "digests" else flush_s):
            if isinstance(event, CallBatch):
                sizes.append(len(event))
            yield event

    def events() -> Iterator[Event]:
        nonlocal n_events
        told: Iterable[Event] = of_calls()
        if form == "digests":
            all_of_it = list(told)
            told = flushed_every(DigestingAgents(all_of_it, flush_s).send(all_of_it), 1)
        for event in told if form == "apart" else together(told, digests_from_ranks=form == "digests"):
            n_events += type(event).__name__ == kind
            yield event

    engine.publish(events())
    case = f"{ranks:,} ranks, flush {flush_s} s, {form}, {sum(sizes):,} calls, {np.mean(sizes):.0f} a batch"
    return _Filled(
        engine=engine,
        case=case,
        calls=sum(sizes),
        batches=len(sizes),
        kind=kind,
        events=n_events,
        rank_seconds=ranks * simulation.observed.finish_s,
    )


def _streams(filled: _Filled) -> list[dict[str, Any]]:
    """One worker does both stages of all that is there."""
    (port,) = free_ports(1)
    worker = filled.engine.start_worker(f"telemetry.listen=127.0.0.1:{port}")
    try:
        begun = _when(worker.pid, lambda: _counted(port, EVENTS_IN, kind=filled.kind) > 0)
        _when(worker.pid, lambda: _counted(port, EVENTS_IN, kind=filled.kind) >= filled.events, SELDOM_S)
        ended = _when(worker.pid, lambda: filled.engine.lag("streams") == 0)
    finally:
        filled.engine.stop()
    wall_s, cpu_s = ended[0] - begun[0], ended[1] - begun[1]
    return [
        {"case": filled.case, "figure": "one worker", "value": filled.calls / wall_s, "unit": "calls/s"},
        {
            "case": filled.case,
            "figure": "one worker, per core",
            "value": filled.calls / cpu_s,
            "unit": "calls/s",
        },
        {"case": filled.case, "figure": "a batch takes", "value": 1e6 * cpu_s / filled.batches, "unit": "us"},
        {
            "case": filled.case,
            "figure": "16,384 such ranks at their own pace",
            "value": cpu_s / filled.rank_seconds * 16_384,
            "unit": "cores",
        },
    ]


def _writing(filled: _Filled, folder: Path) -> list[dict[str, Any]]:
    """A writer puts the same into a store as a bare insert of the same rows does afterwards."""
    (port,) = free_ports(1)
    at, engine = folder / "written", filled.engine
    writer = engine.started("writer", folder / "writer.log", f"telemetry.listen=127.0.0.1:{port}", store=at)
    try:
        begun = _when(writer.pid, lambda: _counted(port, WRITER_ROWS, table=schemas.CALLS) > 0)
        first = _counted(port, WRITER_ROWS, table=schemas.CALLS)
        ended = _when(writer.pid, lambda: _counted(port, WRITER_ROWS, table=schemas.CALLS) >= filled.calls)
    finally:
        writer.terminate()
        writer.wait(60)
    rate = (filled.calls - first) / (ended[0] - begun[0])
    batches: list[CallBatch] = []
    for message in ordered(read_to_end(engine.settings, topics.CALLS)):
        for event in codec.decode(message.value):
            said = event.events() if isinstance(event, Flush) else [event]
            batches += [one for one in said if isinstance(one, CallBatch)]
    with Store.open(folder / "bare") as store:
        bare_s = 0.0
        for part in range(0, len(batches), 256):
            rows = calls_table(batches[part : part + 256])
            before_s = time.perf_counter()
            store.insert(schemas.CALLS, rows)
            bare_s += time.perf_counter() - before_s
    bare = filled.calls / bare_s
    return [
        {"case": filled.case, "figure": "one writer", "value": rate, "unit": "calls/s"},
        {"case": filled.case, "figure": "bare Arrow insert of the same", "value": bare, "unit": "calls/s"},
        {"case": filled.case, "figure": "writer of bare insert", "value": 100 * rate / bare, "unit": "%"},
    ]


def _latency(broker: Broker, folder: Path) -> list[dict[str, Any]]:
    """A job at its own pace: from the end of each call to its row, and from an iteration to the finding it leads to."""
    engine = Engine(broker.settings("latency."), folder / "latency")
    at = folder / "late"
    engine.start_worker()
    writer = engine.started("writer", folder / "late.log", store=at)
    try:
        _when(writer.pid, lambda: engine.lag("writer") is not None and engine.lag("streams") is not None)
        start_unix_ns = (int(time.time()) + 5 + LATENCY_JOBS) * 1_000_000_000
        jobs = [list(simulate(_slow_job(number, start_unix_ns)).events()) for number in range(LATENCY_JOBS)]
        clock, producer = SystemClock(), KafkaProducer(engine.settings, "simulator")
        events = heapq.merge(*jobs, key=due_ns)
        feed(events, producer, clock, Liveness(clock), threading.Event(), is_paced=True)
        producer.flush(60)
        producer.close()
        _when(writer.pid, lambda: engine.lag("writer") == 0 and engine.lag("streams") == 0)
    finally:
        writer.terminate()
        writer.wait(60)
        engine.stop()
    case = f"{LATENCY_JOBS} jobs of {LATENCY_LAYOUT.world_size} ranks, flush 1 s, at their own pace"
    with Store.open(at) as store:
        asked = {
            "call to stored row": "end_ns / 1e9) AS late_s FROM stored_calls WHERE end_ns > 0",
            "iteration to stored finding": "detected_ns / 1e9) AS late_s FROM stored_findings WHERE version = 0",
        }
        return [
            {"case": case, "figure": f"{what}, {name}", "value": value, "unit": "s"}
            for what, rest in asked.items()
            for name, value in zip(
                ("p50", "p99"),
                store.query(f"SELECT quantilesExact(0.5, 0.99)({STORED_S} - {rest}").column("late_s")[0].as_py(),
                strict=True,
            )
        ]


def _slow_job(number: int, start_unix_ns: int) -> JobSpec:
    return JobSpec(
        layout=LATENCY_LAYOUT,
        iterations=LATENCY_ITERATIONS,
        source=DEVICE_TIMES,
        faults=(SlowCompute(ranks=(number,), factor=2.0, from_step=LATENCY_ITERATIONS // 2),),
        seed=number,
        job=f"late {number}",
        start_unix_ns=start_unix_ns,
    )


def _when(pid: int, is_so: Callable[[], bool], look_s: float = LOOK_S) -> tuple[float, float]:
    """Wait until something is so: when that was, and how much processor time a process had used by then, in seconds."""
    deadline_s = time.monotonic() + WITHIN_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"process {pid} has not got there within {WITHIN_S:g} s")
        time.sleep(look_s)
    return time.monotonic(), cpu_s(pid)


def _counted(port: int, metric: Metric, **labels: str) -> float:
    try:
        samples = scrape(f"127.0.0.1:{port}")
    except Unavailable:
        return 0.0
    return sum(s.value for s in samples if s.name == metric.name and labels.items() <= dict(s.labels).items())
