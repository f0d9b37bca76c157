"""What goes into a head comes out once, in order, and nothing is lost silently."""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from head_parts import MemoryStore, an_incident, parts, sample, topology
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from small_disk import fill, needs_root, small_disk

from pacehound.bus.recording import Recording, RecordingWriter
from pacehound.clock import ManualClock
from pacehound.errors import BusFull, MalformedMessage, Unavailable
from pacehound.model import codec
from pacehound.model.events import (
    CommandResult,
    DeadLetter,
    Decision,
    EarlierRun,
    HostSample,
    Incident,
    JobHistory,
    Progress,
    Tick,
    Topology,
    UsualRounds,
)
from pacehound.model.events.control import RecoveryQuestion
from pacehound.runtime import metric_names
from pacehound.runtime.event_loop import EventWorker
from pacehound.runtime.head.known_topology import AGAIN_AFTER_S, KnownTopology
from pacehound.runtime.head.node import Head
from pacehound.runtime.head.workers import STORED
from pacehound.settings import Settings


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def head(store):
    head = Head(settings=Settings(), parts=parts(store), clock=ManualClock(2_000))
    head.start()
    yield head
    head.stop()


def test_a_stopped_rank_becomes_an_incident_with_a_decision(head, store):
    receipt = head.ingest(codec.encode(sample(stopped=(2,))))
    assert (receipt.accepted, receipt.rejected) == (1, 0)
    assert head.settle(5.0)
    (incident,) = head.incidents()
    assert incident.findings[0].culprits == (2,)
    assert [d.action for d in head.decisions()] == ["resume_rank"]


def test_whoever_answers_survivors_hears_a_question_at_once_although_nothing_else_wakes_him(store):
    heard = threading.Event()

    class Actuators(EventWorker):
        def __init__(self, wire):
            self.wire = wire

        def on_turn(self):
            if self.wire.questions(0)[0]:
                heard.set()
            return []

    head = Head(settings=Settings(), parts=replace(parts(store), actuators=Actuators), clock=ManualClock(2_000))
    head.start()
    question = RecoveryQuestion(digest="a" * 32, survivors=(0,), ranks=(0,), payload="{}", within_ms=2_000)
    head.ingest(codec.encode(CommandResult(job="j", attempt=0, time_ns=2_000, host="h", number=1, asked=question)))
    assert heard.wait(20.0)
    head.stop()


def test_one_bad_record_goes_to_the_dead_letters_and_the_good_ones_do_not(head, store):
    bad = codec.encode(sample()).replace(b"pacehound.host", b"pacehound.hose")
    receipt = head.ingest(codec.encode(topology()) + bad + codec.encode(sample()))
    assert (receipt.accepted, receipt.rejected) == (2, 1)
    assert "pacehound.hose" in receipt.reason
    assert head.settle(5.0)
    (letter,) = [event for event in store.events() if isinstance(event, DeadLetter)]
    assert letter.error == "UnknownSchema"
    assert b"pacehound.hose" in letter.payload
    assert head.telemetry.value(metric_names.RECORDS_REJECTED, error="UnknownSchema") == 1


def test_what_is_refused_of_a_request_is_kept_once_and_no_larger_than_it_came(head, store):
    """Each record took a copy of their resource with it: 287 bytes of gzip became 57 MiB."""
    data = LogsData()
    resource = data.resource_logs.add()
    resource.resource.attributes.add(key="k8s.pod").value.string_value = 50_000 * "p"
    resource.scope_logs.add().log_records.extend(LogRecord() for _ in range(1_000))
    body = data.SerializeToString(deterministic=True)
    receipt = head.ingest(body + codec.encode(sample()))
    assert (receipt.accepted, receipt.rejected) == (1, 1_000)
    assert head.settle(5.0)
    (letter,) = [event for event in store.events() if isinstance(event, DeadLetter)]
    assert letter.payload == body
    assert "the first of 1000 records" in letter.reason
    assert head.telemetry.value(metric_names.RECORDS_REJECTED, error="UnknownSchema") == 1_000


def test_what_is_taken_of_a_request_does_not_carry_what_else_its_resource_says(store):
    head = Head(settings=Settings(), parts=parts(store), clock=ManualClock(0))
    data = LogsData.FromString(codec.encode(sample()))
    data.resource_logs[0].resource.attributes.add(key="k8s.pod").value.string_value = 50_000 * "p"
    records = data.resource_logs[0].scope_logs[0].log_records
    records.extend([records[0]] * 99)
    assert head.ingest(data.SerializeToString()).accepted == 100
    assert head.bus.held_bytes < 100 * 1_000


def test_bytes_that_are_no_otlp_are_refused_and_kept(head, store):
    with pytest.raises(MalformedMessage):
        head.ingest(b"\xff\xff nonsense")
    assert head.settle(5.0)
    assert [e.payload for e in store.events() if isinstance(e, DeadLetter)] == [b"\xff\xff nonsense"]


def test_what_only_a_head_concludes_is_not_taken_from_outside(head, store):
    receipt = head.ingest(codec.encode(an_incident()))
    assert (receipt.accepted, receipt.rejected) == (0, 1)
    assert head.settle(5.0)
    assert head.incidents() == []


def test_topology_is_on_its_own_topic_too(head, store):
    head.ingest(codec.encode(topology()))
    assert head.settle(5.0)
    topics = sorted(message.topic for event, message in store.messages if isinstance(event, Topology))
    assert topics == ["calls", "topology"]


def test_what_the_pipeline_refuses_or_trips_over_is_a_dead_letter_and_it_goes_on(head, store):
    head.publish([sample(job="refuse"), sample(job="explode"), sample(stopped=(1,))])
    assert head.settle(5.0)
    letters = [event for event in store.events() if isinstance(event, DeadLetter)]
    assert sorted(letter.error for letter in letters) == ["InvalidEvent", "RuntimeError"]
    assert len(head.incidents()) == 1
    assert head.telemetry.value(metric_names.WORKER_FAILURES, worker="pipeline") == 1


def test_a_full_bus_takes_all_of_a_request_or_nothing():
    small = Head(settings=Settings(), parts=parts(), clock=ManualClock(0), bus_max_bytes=3_000)
    body = codec.encode(sample(stopped=tuple(range(6))))
    while small.bus.held_bytes + 2 * len(body) <= 0.75 * 3_000:
        small.ingest(body + body)
    before = small.bus.position
    with pytest.raises(BusFull):
        small.ingest(body + body)
    assert small.bus.position == before
    assert small.telemetry.value(metric_names.BUS_FULL) == 1


def test_incidents_of_a_former_head_are_closed_at_the_start():
    store = MemoryStore([an_incident(), an_incident(id="i2", state="closed", closed_ns=1)])
    head = Head(settings=Settings(), parts=parts(store), clock=ManualClock(5_000))
    head.start()
    assert head.settle(5.0)
    written = [event for event in store.events() if isinstance(event, Incident)]
    assert [(i.id, i.state, i.closed_why) for i in written] == [("i1", "closed", "watching was interrupted")]
    assert head.stop()
    assert store.closed


def test_incidents_still_open_when_a_head_ends_are_closed_by_it(store):
    head = Head(settings=Settings(), parts=parts(store), clock=ManualClock(5_000))
    head.start()
    head.publish([sample(stopped=(1,))])
    assert head.stop()
    (incident,) = store.incidents()
    assert (incident.state, incident.closed_why) == ("closed", "watching was interrupted")


class Alerts(EventWorker):
    kinds = (Incident,)

    def __init__(self, *moods):
        self.moods = list(moods)
        self.heard = []

    def on_event(self, event, message):
        if self.moods:
            raise self.moods.pop(0)
        self.heard.append((event.id, event.state))
        return []


def test_alerts_that_fail_are_counted_and_hold_nothing_up(store):
    head = Head(settings=Settings(), parts=parts(store, Alerts(RuntimeError("a fault of ours"))), clock=ManualClock(0))
    head.start()
    head.publish([sample(stopped=(1,))])
    assert head.settle(5.0)
    assert len(head.incidents()) == 1
    head.stop()
    assert head.telemetry.value(metric_names.WORKER_FAILURES, worker="alerts") == 1
    assert "RuntimeError" in [event.error for event in store.events() if isinstance(event, DeadLetter)]


def test_a_receiver_that_is_away_holds_up_neither_the_store_nor_the_room_on_the_bus(store):
    head = Head(settings=Settings(), parts=parts(store, Alerts(*[Unavailable("away")] * 100)), clock=ManualClock(0))
    head.start()
    head.publish([sample(stopped=(1,))])
    assert head.settle(5.0)
    held = head.bus.held_bytes
    head.publish([sample(time_ns=2_000 + i) for i in range(50)])
    assert head.settle(5.0)
    assert head.bus.held_bytes == held, "only the incident that somebody is still to be told of"
    assert "alerts waits: away" in head.health().problems
    assert head.telemetry.value(metric_names.AWAY, worker="alerts") == 1
    assert head.stop(timeout_s=2.0)


def test_a_silent_stream_gets_a_tick_in_the_log_and_in_the_recording(store, tmp_path):
    clock = ManualClock(0)
    path = tmp_path / "run.rec"
    subject = parts(store)
    head = Head(settings=Settings(), parts=subject, clock=clock, recording=RecordingWriter(path))
    head.publish([topology()])
    turn = head._pipeline.loop.turn
    turn()
    clock.advance_s(20.0)
    for _ in range(3):
        turn()
    assert [type(event) for event in subject.pipeline.seen] == [Topology, Tick]
    head._pipeline._consumer.close()
    recorded = [codec.decode(message.value)[0] for message in Recording(path)]
    assert recorded == subject.pipeline.seen


def test_a_store_that_does_not_answer_for_a_while_loses_nothing_and_confirms_nothing(store):
    clock = ManualClock(0)
    head = Head(settings=Settings(), parts=parts(store), clock=clock)
    store.fail_times = 2
    head.publish([sample()])
    for _ in range(3):
        assert (head.kept, store.messages) == (0, [])
        head._store.loop.turn()
        told = head.health()
        assert (told.failed_writes, told.not_stored_messages) in ((1, 1), (2, 1), (2, 0))
        assert ("store waits: no space left on device" in told.problems) == (not store.messages)
        clock.advance_s(60.0)
    assert len(store.messages) == 1
    assert head.kept == head.bus.position


def test_what_is_decoded_at_the_door_is_decoded_once(head, store, monkeypatch):
    decoded = []
    decode_record = codec.decode_record
    monkeypatch.setattr(codec, "decode_record", lambda *one: decoded.append(one) or decode_record(*one))
    head.ingest(codec.encode(sample()))
    assert head.settle(5.0)
    assert len(store.messages) == 1
    assert len(decoded) == 1


def test_decisions_are_made_for_each_version_of_an_incident(head):
    head.publish([sample(stopped=(1,)), sample(closed=True, why="job ended")])
    assert head.settle(5.0)
    assert [d.incident_version for d in head.decisions()] == [0, 1]
    assert all(isinstance(d, Decision) and not d.taken for d in head.decisions())


def test_rounds_stay_in_the_process():
    assert "rounds" not in [topic.name for topic in STORED]


def test_a_head_started_again_knows_the_communicators_of_jobs_that_go_on(tmp_path):
    """Its first message repeats the introduction; a job that closed, or never speaks again, is not opened."""
    path = tmp_path / "topology.rec"
    first = KnownTopology(path)
    for job in ("goes-on", "closed", "silent"):
        event = topology(job=job)
        first.note(event, codec.encode(event), 0.0)
    closing = sample(job="closed", closed=True, why="job ended")
    first.note(closing, codec.encode(closing), 0.0)
    # kill -9: nothing is closed

    subject = parts()
    head = Head(settings=Settings(), parts=subject, clock=ManualClock(0), known_topology=KnownTopology(path))
    head.start()
    for job in ("goes-on", "closed"):
        head.publish([progress(job), progress(job)])
    assert head.settle(5.0)
    seen = [(type(event).__name__, event.job) for event in subject.pipeline.seen]
    assert seen == [
        ("Topology", "goes-on"),
        ("Progress", "goes-on"),
        ("Progress", "goes-on"),
        ("Progress", "closed"),
        ("Progress", "closed"),
    ]
    head.stop()


def test_of_jobs_that_were_silent_for_longest_introductions_are_forgotten(monkeypatch):
    """A job whose machines vanish never says that it has ended."""
    monkeypatch.setattr("pacehound.runtime.head.known_topology.MAX_JOBS", 2)
    known = KnownTopology()
    for job in ("vanished", "goes-on", "new"):
        known.note(topology(job=job), codec.encode(topology(job=job)), 0.0)
        known.note(progress("goes-on"), b"", 0.0)
    assert {key[0] for key in known._kept} == {key[0] for key in known._made} == {"goes-on", "new"}


def test_introductions_survive_a_torn_file(tmp_path):
    path = tmp_path / "topology.rec"
    first = KnownTopology(path)
    event = topology()
    first.note(event, codec.encode(event), 0.0)
    first.close()
    path.write_bytes(path.read_bytes() + b"torn")
    assert KnownTopology(path).missing_before(progress("j")) == [(event.communicator, codec.encode(event))]
    path.write_bytes(b"no recording at all")
    assert KnownTopology(path).missing_before(progress("j")) == []


@needs_root
def test_introductions_are_written_again_after_a_full_disk(tmp_path):
    path = tmp_path / "disk" / "topology.rec"
    with small_disk(path.parent, 1):
        known = KnownTopology(path)
        before, amid = topology("before"), topology("amid")
        known.note(before, codec.encode(before), 0.0)
        somebody_elses = fill(path.parent)
        for now_s in range(9):
            known.note(amid, codec.encode(amid), float(now_s))
        assert KnownTopology(copied(path, tmp_path)).missing_before(progress("before"))
        somebody_elses.unlink()
        known.note(progress("before"), b"", 8.0 + AGAIN_AFTER_S)
        again = KnownTopology(copied(path, tmp_path))
        assert again.missing_before(progress("amid")) == [(amid.communicator, codec.encode(amid))]
        assert again.missing_before(progress("before")) == [(before.communicator, codec.encode(before))]
        known.close()


def copied(path, folder):
    return Path(shutil.copy(path, folder / "copy.rec"))


def progress(job):
    return Progress(job=job, attempt=0, time_ns=10, host="h", communicator="c", ranks=())


def test_a_fault_around_the_pipeline_is_counted_and_the_watching_goes_on(store):
    """A thread that died silently would look like health."""
    subject = parts(store)
    head = Head(settings=Settings(), parts=subject, clock=ManualClock(0))
    subject.pipeline.streams = lambda: 1 / 0
    head.start()
    head.publish([sample(stopped=(1,))])
    assert head.settle(5.0)
    assert len(head.incidents()) == 1
    assert head.telemetry.value(metric_names.WORKER_FAILURES, worker="pipeline") >= 1
    subject.pipeline.streams = dict
    head.stop()


def test_a_head_that_is_not_running_has_not_settled(store):
    head = Head(settings=Settings(), parts=parts(store), clock=ManualClock(0))
    head.publish([sample()])
    assert not head.settle(0.0)


class SlowToAnswer(MemoryStore):
    """Questions about the past wait until `answering` is set."""

    def __init__(self):
        super().__init__()
        self.answering, self.asked = threading.Event(), threading.Event()

    def earlier_runs(self, job, before_attempt):
        self.asked.set()
        self.answering.wait()
        return [EarlierRun(name="attempt 0", last_step=9, changes=())]


def test_a_store_that_does_not_answer_holds_up_neither_what_arrives_nor_the_end():
    store = SlowToAnswer()
    head = Head(settings=Settings(), parts=parts(store), clock=ManualClock(0))
    head.start()
    head.publish([replace(topology(), attempt=1), replace(sample(), attempt=1)])
    assert store.asked.wait(5)
    assert head.settle(5.0)
    assert any(isinstance(event, HostSample) for event in store.events())
    assert head.stop(5.0)
    store.answering.set()


def test_what_earlier_attempts_did_reaches_the_log_when_the_store_has_answered():
    store = SlowToAnswer()
    store.answering.set()
    head = Head(settings=Settings(), parts=parts(store), clock=ManualClock(0))
    head.start()
    head.publish([replace(topology(), attempt=1)])
    deadline_s = time.monotonic() + 5
    while not any(isinstance(event, JobHistory) for event in store.events()) and time.monotonic() < deadline_s:
        assert head.settle(5.0)
        time.sleep(0.01)
    assert [event.runs[0].name for event in store.events() if isinstance(event, JobHistory)] == ["attempt 0"]
    assert head.stop(5.0)


def test_what_rounds_usually_take_is_said_to_the_first_attempt_of_a_job_too():
    usual = UsualRounds(
        op="all_reduce", size_bytes=8, source="c10d", n_ranks=2, n_hosts=1, host_kind="2 processors", longest_s=0.1
    )
    store = SlowToAnswer()
    store.answering.set()
    store.usual_rounds = lambda: [usual]
    head = Head(settings=Settings(), parts=parts(store), clock=ManualClock(0))
    head.start()
    head.publish([topology()])
    deadline_s = time.monotonic() + 5
    while not any(isinstance(event, JobHistory) for event in store.events()) and time.monotonic() < deadline_s:
        assert head.settle(5.0)
        time.sleep(0.01)
    (said,) = (event for event in store.events() if isinstance(event, JobHistory))
    assert (said.attempt, said.runs, said.usual) == (0, (), (usual,))
    assert head.stop(5.0)
