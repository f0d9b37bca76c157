"""Readers of what somebody else has written: each input alone, so that a fuzzer may be led by what it reaches."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from aiohttp import web
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from actuators.worker import ActuatorWorker
from collector.agent.run_folder import RunFolder
from collector.calls.rings import RingReader, UnreadableRing
from collector.host.kernel_log import parse_plain, parse_record
from collector.host.processes import parse_stat
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.kineto_operations import read_kineto
from pacehound.bus import Message
from pacehound.bus.kafka_sender import routed
from pacehound.bus.otlp_spans import SpanReader
from pacehound.bus.recording import Recording, RecordingWriter
from pacehound.errors import InvalidInput, InvalidSetting, RejectedMessage
from pacehound.launcher.attempt import parse_answer
from pacehound.launcher.run_dir import read_notes
from pacehound.model import codec
from pacehound.model.events import Incident
from pacehound.model.routing import Event
from pacehound.model.truth.file import TruthFile
from pacehound.runtime.head import attempts
from pacehound.runtime.head.intake import SENT_BY_HOSTS
from pacehound.runtime.head.known_topology import KnownTopology
from pacehound.runtime.head.owner import OWNER_FILE, announced
from pacehound.runtime.head.query_server import parse_question
from pacehound.runtime.records import worked
from pacehound.runtime.unsent import LEFT_FILE, left_behind
from pacehound.runtime.watched import WATCHED_FILE, Watched, read_watched
from pacehound.settings import Settings
from storage.rows import arrow_rows, rows_of
from streams.pipeline import Pipeline
from tests.fakes.call_files import kineto_trace
from tests.fakes.events import call_batch, one_of_each, operations
from tests.hostile.damage import damaged_message
from tests.hostile.doors import SLOW, TAKEN, Door, Rings, simulated_job


class Reader(Door):
    """A function that reads bytes, and the errors by which it says that it cannot."""

    def __init__(self, good: Sequence[bytes], read: Callable[[bytes], object], *refusals: type[Exception]) -> None:
        self.good = good
        self.read, self._refusals = read, refusals

    def take(self, given: bytes) -> Counter[str]:
        try:
            self.read(given)
        except self._refusals as error:
            if not str(error):
                raise AssertionError("a refusal without a reason") from error
            return Counter([type(error).__name__])
        return Counter([TAKEN])


def _told(work: Callable[[Event], object]) -> Callable[[bytes], None]:
    """A reader of messages: the first refusal of one is raised, and so is any fault."""

    def read(given: bytes) -> None:
        message = Message(topic="hosts", key="", partition=0, offset=0, value=given)
        for error in [outcome.error for outcome in worked(message, work) if outcome.error is not None]:
            raise error

    return read


class Messages(Reader):
    """Events, of which the envelope may be whole and what is in it not."""

    def __init__(self, good: Sequence[bytes], work: Callable[[Event], object]) -> None:
        super().__init__(good, _told(work), RejectedMessage)

    def changed(self, given: bytes, rng: random.Random) -> bytes:
        try:
            return damaged_message([given], rng)
        except (DecodeError, IndexError, ValueError, RecursionError):  # no message any more, or an empty one
            return super().changed(given, rng)

    def damaged(self, rng: random.Random) -> bytes:
        return self.changed(rng.choice(self.good), rng)


def logs() -> Door:
    """An OTLP body of logs, and what a store, the alerts and the actuators make of it."""

    def work(event: Event) -> None:
        codec.encode(event)
        for table, row in rows_of(event):
            arrow_rows(table, [row])
        if isinstance(event, Incident):
            ActuatorWorker(lambda _: []).on_event(event, _NOWHERE)

    return Messages([codec.encode(event) for event in (*one_of_each(), call_batch(), operations())], work)


def operators() -> Door:
    """An event that meets a job which has a past: what a partition of a topic holds of it."""
    events = simulated_job("a job", SLOW)
    pipeline = Pipeline(Settings())
    for event in events[:-12]:
        pipeline.on_event(event)
    past = pipeline.snapshot()

    def read(given: bytes) -> None:
        watched = Pipeline.restore(past, Settings())
        try:
            _told(watched.on_event)(given)
        finally:
            for event in events[-12:]:
                watched.on_event(event)

    door = Messages([codec.encode(event) for event in events[-40:]], lambda event: None)
    door.read = read
    return door


def spans() -> Door:
    """An OTLP body of traces, and the batches that come of it."""
    good = TracesData()
    one = good.resource_spans.add()
    named: dict[str, str | int] = {"pacehound.job": "j", "host.name": "h"}
    call: dict[str, str | int] = {"pacehound.communicator": "c", "pacehound.op": "send", "pacehound.dtype": "float32"}
    numbers = dict.fromkeys(("rank", "seq", "peer", "count", "start_ns", "attempt"), 1)
    call |= {f"pacehound.{name}": number for name, number in numbers.items()}
    for target, values in ((one.resource, named), (one.scope_spans.add().spans.add(), call)):
        for key, value in values.items():
            kept = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
            target.attributes.append(KeyValue(key=key, value=kept))
    span = one.scope_spans[0].spans[0]
    span.start_time_unix_nano, span.end_time_unix_nano = 10**18, 10**18 + 5

    def read(given: bytes) -> None:
        found = SpanReader().read(given)
        for batch in found.batches:
            codec.decode(codec.encode(batch))
        if found.refused:
            raise found.refused[0].error

    return Reader([good.SerializeToString()], read, RejectedMessage)


def ring_files() -> Door:
    """A ring alone, to its end."""
    folder = _folder()

    def read(given: bytes) -> None:
        reader = RingReader(_written(folder / "1-1-0.ring", given))
        try:
            for _ in range(3):
                reader.read()
            reader.measured()
        finally:
            reader.close()

    return Reader(Rings().good, read, UnreadableRing)


def kineto_operations() -> Door:
    """A trace for what-if."""
    folder = _folder()
    events = [
        {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": us, "pid": 1, "tid": 1, "args": {}}
        for name, cat, ts, us in (
            ("ProfilerStep#3", "user_annotation", 0, 400),
            ("autograd::engine::evaluate_function: MulBackward0", "cpu_op", 100, 150),
            ("gloo:all_reduce", "user_annotation", 180, 50),
            ("pacehound:forward-compute stage=0 mb=0", "user_annotation", 10, 90),
            ("pacehound:backward-compute stage=0 mb=0", "user_annotation", 110, 100),
            ("Optimizer.step#SGD.step", "user_annotation", 350, 20),
        )
    ]
    head = {"schemaVersion": 1, "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 1}}
    traces = [head | {"baseTimeNanoseconds": 10**18, "traceEvents": chosen} for chosen in (events, events[:3])]
    good = [json.dumps(trace).encode() for trace in [*traces, kineto_trace(calls=2, world_size=1)]]
    return Reader(good, lambda given: read_kineto(_written(folder / "rank0.json", given)), RefusedFile)


def overrides() -> Door:
    """What stands behind `--set`, and in the environment: `KEY=VALUE` in lines."""
    good = [b"hang.suspect_after_s=10\nhost.name=node7\nagent.max_backlog_bytes=5", b"slow.min_change=0.2"]

    def read(given: bytes) -> None:
        lines = given.decode(errors="surrogateescape").splitlines()
        environ = {"PACEHOUND_" + key.replace(".", "_").upper(): value for key, _, value in map(_parted, lines)}
        settings = Settings.load(environ, lines)
        assert Settings.load({}, settings.as_overrides()) == settings

    return Reader(good, read, InvalidSetting)


def topology_files() -> Door:
    """What a head has kept of the topologies; what of it is damaged is lost, and the head comes up."""
    folder = _folder()
    path = folder / "made"
    writer = RecordingWriter(path)
    for event in one_of_each():
        writer.write(Message(topic="topology", key="k", partition=0, offset=0, value=codec.encode(event)))
    writer.close()
    good = path.read_bytes()
    return Reader([good], lambda given: KnownTopology(_written(folder / "topology.rec", given)).close())


def recordings() -> Door:
    """A recording, for `pacehound replay`."""
    folder = _folder()

    def read(given: bytes) -> None:
        for message in Recording(_written(folder / "run.rec", given)):
            codec.decode(message.value)

    return Reader(topology_files().good, read, InvalidInput, RejectedMessage)


def notes() -> Door:
    """Small JSON files and answers by which our processes tell each other something."""
    folder = _folder()
    (folder / "notes").mkdir()
    names = ("job.json", "ended.json", "command.json", WATCHED_FILE, OWNER_FILE, attempts.FILE_NAME, "notes/1.json")
    good = [
        b'{"job": "j", "host": "h", "clock": {"monotonic_ns": 1, "unix_ns": 2}}',
        b'{"exit_code": 0, "signal": null, "why": "job ended"}',
        b'{"pid": 1, "start_ticks": 2, "notes": ["a", "b"], "attempt": 3}',
        b'{"pid": 1, "host": "h", "socket": "s", "url": "u", "token": "t"}',
        msgspec.json.encode(dict.fromkeys(Watched.__struct_fields__, 1)),
        b'{"job": "j", "goes_to": "store:/x", "machine": "m", "since_ns": 5}',
    ]

    def read(given: bytes) -> None:
        for name in names:
            _written(folder / name, given)
        run = RunFolder(folder)
        run.ended(), run.command(), read_watched(folder), read_notes(folder), announced(folder)
        attempts.next_attempt(folder, "j")
        parse_answer(given)
        left = folder / "unsent" / "run-1"
        left.mkdir(parents=True, exist_ok=True)
        _written(left / LEFT_FILE, given)
        for found in left_behind(folder / "unsent"):
            found.remove()
        parse_question(given)
        run.job()

    return Reader(good, read, web.HTTPBadRequest, InvalidInput)


def truths() -> Door:
    """A file of answers, for `pacehound evaluate`."""
    folder = _folder()
    good = b'{"schema": 1, "logs": [{"path": "a", "changes": [{"kind": "slow", "onset": 5}], "onset_within": 2}]}'
    return Reader([good], lambda given: TruthFile.read(_written(folder / "truth.json", given)), InvalidInput)


def kernel_texts() -> Door:
    """Lines of the kernel, in which names stand that a process has chosen."""

    def read(given: bytes) -> None:
        text = given.decode(errors="surrogateescape")
        parse_record(given)
        parse_plain(text)
        if b") " in given:
            parse_stat(text)

    fields = " ".join(str(number) for number in range(4, 53))
    good = [
        b"4,812,5000000,-;NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n",
        b"<6>[   12.000345] mlx5_core 0000:3b:00.0: Link down\n<13>[   13.000000] said by a user",
        f"1234 (a ) name) S {fields}".encode(),
    ]
    return Reader(good, read, ValueError)


def routed_messages() -> Door:
    """What an agent's outbox holds, on its way to Kafka."""
    good = [codec.encode(event) for event in (*one_of_each(), call_batch()) if isinstance(event, SENT_BY_HOSTS)]
    return Reader(good, routed, RejectedMessage)


READERS: dict[str, Callable[[], Door]] = {
    "OTLP logs": logs,
    "OTLP spans": spans,
    "operators": operators,
    "ring files": ring_files,
    "kineto operations": kineto_operations,
    "overrides": overrides,
    "topology files": topology_files,
    "recordings": recordings,
    "notes": notes,
    "truths": truths,
    "kernel texts": kernel_texts,
    "routed messages": routed_messages,
}

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []  # they go when the process ends
_NOWHERE = Message(topic="incidents", key="", partition=0, offset=0, value=b"")


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition("=")


def _folder() -> Path:
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="hostile-"))
    return Path(_FOLDERS[-1].name)


def _written(path: Path, given: bytes) -> Path:
    path.unlink(missing_ok=True)  # a file that is cut and written anew would go to the disk at once
    path.write_bytes(given)
    return path
