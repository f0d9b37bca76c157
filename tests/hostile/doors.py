"""Every place where bytes come in that somebody else has written: what is good there, and what becomes of an input."""

from __future__ import annotations

import gzip
import itertools
import json
import pickle
import random
import sqlite3
import struct
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from bench.rig.flushes import together
from collector.agent import control_block
from collector.agent.outbox import Outbox, Outgoing
from collector.calls import frames
from collector.importers.recognise import read_call_files
from collector.importers.step_logs.recognise import RefusedLog, read_step_logs
from pacehound.bus import Message
from pacehound.errors import InvalidEvent, RejectedMessage
from pacehound.model import codec
from pacehound.model.events import HostSample, Incident, Tick
from pacehound.model.flushes import Flush
from pacehound.model.routing import Event, route
from pacehound.model.topology import Layout
from pacehound.runtime.records import worked
from pacehound.settings import Settings
from simulator.faults import ExitRank, SlowCompute, StopRank
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec
from streams.kafka.worker import INPUTS
from streams.pipeline import Pipeline
from streams.rounds.thresholds import GIVEN_UP_AFTER_NS
from streams.snapshots.codec import MalformedState
from tests.fakes.agent_run import MS, AgentRun
from tests.fakes.call_files import (
    as_json,
    call,
    dump,
    inspector_call,
    inspector_context,
    kineto_trace,
    lines,
    ras_answer,
    ras_missing,
    ras_rank,
)
from tests.fakes.events import call_batch, one_of_each, operations
from tests.fakes.frame_file import block, frame_bytes
from tests.fakes.ring_file import RingFile
from tests.hostile.damage import damaged, damaged_message

TAKEN = "taken"


class Door(ABC):
    """One place where bytes come in."""

    good: Sequence[bytes]

    def damaged(self, rng: random.Random) -> bytes:
        """One of the good inputs, damaged."""
        return damaged(self.good, rng)

    def changed(self, given: bytes, rng: random.Random) -> bytes:
        """An input that is like another one."""
        return damaged([given, *self.good], rng)

    @abstractmethod
    def take(self, given: bytes) -> Counter[str]:
        """How many inputs were `TAKEN`, or refused for which kind of reason, now; any exception is a fault.

        A door that looks at several at a time tells of all of them then.
        """

    def check(self) -> None:  # noqa: B027 - a door that keeps nothing has nothing to check
        """What is good among the inputs has all come through: raises where it has not."""


@cache
def simulated_job(name: str, *faults: object, start_unix_ns: int = 1_767_225_600_000_000_000) -> list[Event]:
    """Eight ranks on two hosts."""
    spec = JobSpec(
        layout=Layout(tp=2, dp=4, pp=1),
        iterations=130 if SLOW in faults else 60,  # slowness is an incident when it has lasted for seconds
        micro_batches=2,
        tp_calls=1,
        ranks_per_host=4,
        source=DEVICE_TIMES,
        faults=faults,  # type: ignore[arg-type]
        seed=11,
        job=name,
        start_unix_ns=start_unix_ns,
    )
    return list(simulate(spec).events())


SLOW = SlowCompute(ranks=(5,), factor=2.5, from_step=36)
VICTIM = b"victim-000000"
_JOBS_AT_ONCE = 50
_MINUTE_NS = 59_000_000_000  # ticks that are a minute apart or more begin the hour anew


class Messages(Door):
    """What the streams read of a topic, worked on by all operators; a good job is watched meanwhile.

    Jobs follow each other, with damaged copies among their messages, so that damage meets operators with a past.
    """

    def __init__(self) -> None:
        at_once = [one for one in together(simulated_job("one that is said at once")) if isinstance(one, Flush)]
        events: list[Event] = [*one_of_each(), call_batch(), operations(), *at_once[:4]]
        self.good = [codec.encode(event) for event in events if route(event)[0] in INPUTS]
        faults: Sequence[object] = (SLOW, StopRank(rank=3, step=30), ExitRank(rank=2, step=30, signal=9))
        self._victims = [
            [codec.encode(event) for event in form(simulated_job(VICTIM.decode(), fault))]
            for form, fault in zip((iter, together, iter), faults, strict=True)
        ]
        self._pipeline = Pipeline(Settings())
        self._events = simulated_job("a good job", SLOW)
        self._told = 0
        self._said: list[Event] = []
        alone = Pipeline(Settings())
        self._expected = [out for event in self._events for out in alone.on_event(event)]
        self._ended_ns = max(event.time_ns for event in self._events if isinstance(event, HostSample)) + _MINUTE_NS
        self._coming = self._messages(random.Random(0))

    def damaged(self, rng: random.Random) -> bytes:
        return next(self._coming)

    def _messages(self, rng: random.Random) -> Iterator[bytes]:
        for number in itertools.count():
            name = b"victim-%06d" % number
            share = rng.choice((0.003, 0.03, 0.3))
            for message in rng.choice(self._victims):
                given = message.replace(VICTIM, name)
                if rng.random() < share:
                    yield damaged_message([given], rng)
                if rng.random() < share / 3:
                    yield damaged([given, *self.good], rng)
                if rng.random() < share / 3:
                    yield damaged_message(self.good, rng)
                if rng.random() > share / 30:
                    yield given
            self._tell(max(1, len(self._events) // 100))
            if number % _JOBS_AT_ONCE == _JOBS_AT_ONCE - 1:
                self._let_an_hour_pass()

    def _let_an_hour_pass(self) -> None:
        """For all that was damaged: what never ends is given up, and memory is bounded by what is open at one time."""
        streams = self._pipeline.streams()
        for minute in range(GIVEN_UP_AFTER_NS // _MINUTE_NS + 2):
            for name, opened in streams.items():
                if opened.job != self._events[0].job:
                    at_ns = self._ended_ns + minute * _MINUTE_NS
                    self._pipeline.on_event(Tick(job=opened.job, attempt=opened.attempt, time_ns=at_ns, stream=name))

    def take(self, given: bytes) -> Counter[str]:
        message = Message(topic="hosts", key="", partition=0, offset=0, value=given)
        found = TAKEN
        for outcome in worked(message, self._work):
            if outcome.error is not None:
                if outcome.is_fault:
                    raise outcome.error
                found = type(outcome.error).__name__
        return Counter([found])

    def _work(self, event: Event) -> None:
        if route(event)[0] not in INPUTS:
            raise InvalidEvent("an event of another topic")
        self._pipeline.on_event(event)

    def _tell(self, n_events: int) -> None:
        for event in self._events[self._told : self._told + n_events]:
            self._said += self._pipeline.on_event(event)
        self._told += n_events

    def check(self) -> None:
        self._tell(len(self._events))
        incidents = [out for out in self._expected if isinstance(out, Incident)]
        assert incidents
        assert [out for out in self._said if isinstance(out, Incident)] == incidents


class Snapshots(Door):
    """The state of operators as it lies on a topic; what is taken goes on with the job's next events."""

    def __init__(self) -> None:
        self._events = simulated_job("a good job", SLOW)
        self.good = []
        pipeline = Pipeline(Settings())
        for number, event in enumerate(self._events[:-8]):
            pipeline.on_event(event)
            if number % 30 == 20:
                self.good.append(pipeline.snapshot())

    def take(self, given: bytes) -> Counter[str]:
        try:
            pipeline = Pipeline.restore(given, Settings())
        except MalformedState as error:
            return Counter([type(error).__name__])
        message = b"".join(codec.encode(event) for event in self._events[-8:])
        # What it holds may contradict itself: then its job's events are refused, one by one, and the process goes on.
        list(worked(Message(topic="calls", key="", partition=0, offset=0, value=message), pipeline.on_event))
        return Counter([TAKEN])


class Rings(Door):
    """Ring files of processes that have gone; a good ring beside them loses no call."""

    _A_FOLDER = 500
    _AT_ONCE = 25

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._number = 0
        with tempfile.TemporaryDirectory() as made:
            self.good = [self._ring(Path(made), rank) for rank in (0, 1)]
        self._run: AgentRun | None = None

    @staticmethod
    def _ring(folder: Path, rank: int) -> bytes:
        ring = RingFile(folder, capacity=16, rank=rank, pid=700 + rank)
        ring.group([0, 1])
        for seq in range(4):
            ring.done(seq, seq * MS, (seq + 1) * MS)
            ring.marker(seq, (seq + 1) * MS)
        ring.exit(9 * MS, text="over")
        ring.leave()
        ring.close_file()
        return ring.path.read_bytes()

    def take(self, given: bytes) -> Counter[str]:
        if self._number % self._A_FOLDER == 0:
            self._begin()
        assert self._run is not None
        self._number += 1
        (self._run.path / "rings" / f"{10_000 + self._number}-1-0.ring").write_bytes(given)
        if self._number % self._AT_ONCE:
            return Counter()
        self._good.done(self._seq, self._seq * MS, (self._seq + 1) * MS)
        self._seq += 1
        before = self._run.agent.counts.refused_rings
        self._run.step()
        self._run.step()
        refused = self._run.agent.counts.refused_rings - before
        return Counter({"UnreadableRing": refused, TAKEN: self._AT_ONCE - refused})

    def _begin(self) -> None:
        self.check()
        folder = Path(self._folder.name) / str(self._number)
        self._run = AgentRun(folder)
        self._good = self._run.joined(0)
        self._seq = 0

    def check(self) -> None:
        run = self._run
        if run is None:
            return
        run.flush()
        rows = [row for row in run.receiver.rows() if row["rank"] == 0 and row["communicator"]]
        assert {row["seq"] for row in rows} >= set(range(self._seq)), (self._seq, len(rows))
        run.agent.let_go()
        run.outbox.close()
        self._run = None


class Frames(Door):
    """Probing frames of ranks."""

    def __init__(self) -> None:
        self.good = [
            frame_bytes(block(7, {0: (3, 2), 4: (0, -1)}), block(9, {}, peer=5, direction=2), rank=3, unkept=1),
            frame_bytes(block(8, {1: (1, 1)}), rank=0),
        ]

    def take(self, given: bytes) -> Counter[str]:
        try:
            frames.parse(self.good[0], given)
        except RejectedMessage as error:
            return Counter([type(error).__name__])
        return Counter([TAKEN])


class ControlBlocks(Door):
    """What a process answers to a controller."""

    def __init__(self) -> None:
        head = control_block.HEADER.pack(control_block.MAGIC, control_block.VERSION, 4242, 1000, 0)
        answer = struct.pack("<QII", 7, 2, 1)
        self.good = [head.ljust(128, b"\0").__add__(answer).ljust(control_block.BLOCK_BYTES, b"\0")]
        self._folder = tempfile.TemporaryDirectory()

    def take(self, given: bytes) -> Counter[str]:
        path = Path(self._folder.name) / "4242.control"
        path.unlink(missing_ok=True)
        path.write_bytes(given)
        try:
            control_block.unnamed_calls(path)
            block = control_block.ControlBlock(path)
        except RejectedMessage as error:
            return Counter([type(error).__name__])
        block.answer(7)
        block.timing(7)
        block.close()
        return Counter([TAKEN])


class Outboxes(Door):
    """The file in which an agent keeps what nobody has acknowledged; a damaged one is moved aside."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "made"
        outbox = Outbox(path, 1 << 20)
        outbox.save([Outgoing(kind="calls", stream="c", calls=3, payload=b"x" * 300)], b"the agent's state", 0)
        outbox.close()
        with sqlite3.connect(path) as file:  # one file, without what is still to be taken over
            file.execute("PRAGMA journal_mode=DELETE")
        file.close()
        self.good = [path.read_bytes()]
        self._number = 0

    def take(self, given: bytes) -> Counter[str]:
        self._number += 1
        folder = Path(self._folder.name) / str(self._number)
        folder.mkdir()
        path = folder / "outbox"
        path.write_bytes(given)
        outbox = Outbox(path, 1 << 20)
        refused = outbox.was_damaged
        outbox.save([Outgoing(kind="calls", stream="c", calls=1, payload=b"good")], b"state", 1)
        assert b"good" in outbox.take(1 << 20)[1]
        outbox.close()
        for left in folder.iterdir():
            left.unlink()
        folder.rmdir()
        return Counter(["damaged" if refused else TAKEN])


_RAS_TEXT = b"""Job summary
=====

  Nodes  Processes  GPUs
(total)  (total)  (total)
   1   4   4

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    0         1         1         4         4         4   RUNNING  MISMATCH

#0-0 (cf26) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 640
  Rank 1 has launched up to operation 9 -- GPU 1 managed by process 8 on node 10.0.0.1
"""


def _mlperf_line(step: int) -> bytes:
    value = {"train_step_time": 1.0, "throughput": 9.0}
    told = {"time_ms": 1000 * step, "key": "tracked_stats", "value": value, "metadata": {"step": step}}
    return b":::MLLOG " + json.dumps(told).encode() + b"\n"


class CallFiles(Door):
    """Dumps, traces, logs and text of other tools, for `analyze`."""

    def __init__(self) -> None:
        calls = [call(1, 1), call(2, 2, name="all_gather", state="started"), call(3, 3, state="scheduled")]
        told = dump(calls, {"0": ("default_pg", [0, 1])}, {"0": (3, -1, 1)})
        ranks = [ras_rank(place, {"AllReduce": place}) for place in range(3)]
        inspector = [inspector_context(0, 1) | inspector_call(n, at_us=10**15 + n) for n in (1, 2)]
        self.good = [
            pickle.dumps(told),
            as_json(told),
            json.dumps(kineto_trace(calls=2)).encode(),
            json.dumps(ras_answer(("0xa", ranks, [ras_missing(3)])), indent=1).encode(),
            lines(*inspector).encode(),
            b"step,step_time_s\n" + b"".join(f"{n},0.{100 + n}\n".encode() for n in range(40)),
            b"".join(f" iteration {n}/ 40 | elapsed time per iteration (ms): 1{n}.5 |\n".encode() for n in range(40)),
            b"".join(f"step:{n}/9 train_time:{100 * n}ms step_avg:100.0ms\n".encode() for n in range(9)),
            b"".join(_mlperf_line(n) for n in range(1, 9)),
            _RAS_TEXT,
            b"".join(b'XPU_TIMER_COMMON_HANG{job_name="j",local_rank="%d",rank="%d"} 1\n' % (n, n) for n in range(3)),
            gzip.compress(json.dumps(kineto_trace(calls=1)).encode(), mtime=0),
        ]
        self._folder = tempfile.TemporaryDirectory()

    def take(self, given: bytes) -> Counter[str]:
        path = Path(self._folder.name) / "rank_0"
        path.unlink(missing_ok=True)  # a file that is cut and written anew would go to the disk at once
        path.write_bytes(given)
        found = read_call_files([path])
        if found.refused:
            assert found.refused[0].reason
            return Counter(["RefusedFile"])
        if found.others:
            try:
                read_step_logs(path)
            except RefusedLog:
                return Counter(["RefusedLog"])
        return Counter([TAKEN])


DOORS: dict[str, type[Door]] = {
    "messages": Messages,
    "snapshots": Snapshots,
    "rings": Rings,
    "frames": Frames,
    "control blocks": ControlBlocks,
    "outboxes": Outboxes,
    "call files": CallFiles,
}
