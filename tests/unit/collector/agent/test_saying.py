"""What an agent says at once, and what is lost of it where the outbox has no room."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collector.agent.outbox import Outbox
from collector.agent.saying import in_one, outgoing_vitals
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.events import (
    OPTIMIZER_STEP,
    HostVitals,
    Markers,
    PairProgress,
    Progress,
    RankProgress,
    Topology,
)
from pacehound.model.flushes import ALWAYS, COLUMNS, MAX_FLUSH_ROWS, MAX_FLUSH_SAID, CallPart, Flush, Heartbeat
from pacehound.model.routing import Event
from pacehound.model.shards import HOME_KEY, SHARD_KEY, Place
from tests.fakes.agent_run import AgentRun
from tests.fakes.receiver import promises_hold


def worked(run: AgentRun, seconds: int = 3, away_after: int | None = None) -> None:
    """Two ranks on the world and on a group of their own each; the receiver is away from a second on."""
    rings = [run.joined(0), run.joined(1)]
    for second in range(seconds):
        run.receiver.is_away |= second == away_after
        for ring in rings:
            for number in range(20):
                ring.done(20 * second + number, run.now_ns, run.now_ns)
        run.step(1_100)


def raw(run: AgentRun) -> list[Event]:
    return [event for message in run.receiver.messages for event in codec.decode(message)]


def test_calls_of_all_ranks_travel_in_one_message_per_flush(tmp_path: Path) -> None:
    run = AgentRun(tmp_path / "together")
    worked(run)
    run.end()
    run.deliver()
    said = raw(run)
    assert not [event for event in said if isinstance(event, (CallBatch, Progress, Topology))]
    flushes = [event for event in said if isinstance(event, Flush)]
    assert {flush.key for flush in flushes} == {"shard:job-1/0/0"}
    assert {rank for flush in flushes for rank in flush.columns.get("rank", ())} == {0, 1}
    assert len(run.receiver.rows()) == 120
    assert promises_hold(run.receiver.events)


def test_calls_and_the_promise_behind_them_are_one_record_and_what_closes_is_another(tmp_path: Path) -> None:
    run = AgentRun(tmp_path / "together")
    worked(run)
    run.end()
    run.deliver()
    flushes = [event for event in raw(run) if isinstance(event, Flush)]
    with_calls = [flush for flush in flushes if flush.parts]
    assert len(with_calls) >= 3
    assert all(flush.promises for flush in with_calls[:-1])
    closing = [flush for flush in flushes if any(promise.closed for promise in flush.promises)]
    assert closing
    assert not any(flush.parts for flush in closing), "calls may be dropped, and what closes never is"


def test_marks_stand_before_the_promise_that_calls_have_with_them() -> None:
    said = Flush(job="j", attempt=0, host="h", shard=0)
    calls = replace(said, parts=(CallPart(communicator="c", source="nccl", ordinal=0, sees=3, n_rows=0),))
    of_whom = {"job": "j", "attempt": 0, "host": "h", "communicator": "c"}
    marks = Markers(**of_whom, ranks=(0,), names=(OPTIMIZER_STEP,), steps=(3,), times_ns=(4,))
    promise = Progress(**of_whom, time_ns=5, ranks=())
    beat = Heartbeat(time_ns=5, communicators=(), quiet_ns=2)
    told = [calls, replace(said, markers=(marks,)), replace(said, promises=(promise,), heartbeat=beat)]
    assert list(in_one(told)) == [told[1], replace(calls, promises=(promise,), heartbeat=beat)]


def test_calls_and_promises_that_are_much_together_stay_apart() -> None:
    """A message has as many of either as fits what Kafka takes at once."""
    said = Flush(job="j", attempt=0, host="h", shard=0)
    n_rows = MAX_FLUSH_ROWS // 2
    of_whom = {"job": "j", "attempt": 0, "host": "h", "communicator": "c"}
    promise = replace(said, promises=(Progress(**of_whom, time_ns=5, ranks=()),))
    pairs = tuple(
        PairProgress(peer=peer, direction="send", last_launched=1, last_completed=1)
        for peer in range(MAX_FLUSH_SAID // 2)
    )
    many = RankProgress(rank=0, last_launched=1, last_completed=1, pairs=pairs)

    def calls(n: int) -> Flush:
        part = CallPart(communicator="c", source="nccl", ordinal=0, sees=3, n_rows=n)
        return replace(said, parts=(part,), columns={name: np.zeros(n, COLUMNS[name]) for name in ALWAYS})

    assert len(list(in_one([calls(n_rows), promise]))) == 1
    assert len(list(in_one([calls(n_rows + 1), promise]))) == 2
    much = replace(said, promises=(Progress(**of_whom, time_ns=5, ranks=(many,)),))
    assert len(list(in_one([calls(1), much]))) == 2


def test_calls_that_are_dropped_leave_no_promise_behind_them(tmp_path: Path) -> None:
    """The next one would promise that all has been sent; a kill does not bring it back."""
    run = AgentRun(tmp_path)
    worked(run, 5, away_after=1)
    n_waiting = len(run.outbox)
    while not run.outbox.counts.dropped_calls:  # first what explains the rest makes room
        run.outbox.make_room(run.outbox.max_bytes - run.outbox.held_bytes + 1)
    assert len(run.outbox) < n_waiting
    run.outbox.save([], run.outbox.state or b"", 0)
    run.kill()
    left = [event for message in run.outbox.take(1 << 30)[1] for event in codec.decode(message)]
    flushes = [one for one in left if isinstance(one, Flush)]
    assert any(one.parts for one in flushes)
    assert not any(one.promises or one.heartbeat for one in flushes)


def test_what_hardware_is_like_makes_room_before_calls_do_and_costs_none_of_them() -> None:
    vitals = HostVitals(job="job-1", attempt=0, time_ns=5, host="node-1")
    message = outgoing_vitals(vitals, Place(3))
    assert (message.kind, message.calls, message.reported) == ("diagnostics", 0, 0)
    (said,) = codec.decode(message.payload)
    assert isinstance(said, Flush)
    assert (said.vitals, said.key, said.promised_ns) == ((vitals,), "shard:job-1/0/3", {})
    assert said.quiet_ns is None, "a host that may be quiet goes on to be"


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    said = []
    for form in ("together", "apart"):
        run = AgentRun(tmp_path / form, f"agent.messages={form}")
        worked(run)
        run.end()
        run.deliver()
        said.append(run)
    together, apart = said
    assert [str(row) for row in together.receiver.rows()] == [str(row) for row in apart.receiver.rows()]
    assert together.receiver.of(Progress) == apart.receiver.of(Progress)
    assert not [event for event in raw(apart) if isinstance(event, Flush)]


def test_an_agent_goes_on_in_the_form_in_which_its_run_began(tmp_path: Path) -> None:
    run = AgentRun(tmp_path / "run", "agent.messages=apart")
    worked(run, 1)
    run.settings = AgentRun(tmp_path / "other").settings
    run.kill()
    run.end()
    run.deliver()
    assert not [event for event in raw(run) if isinstance(event, Flush)]


@pytest.mark.parametrize("form", ["together", "apart"])
def test_what_is_dropped_is_counted_on_its_communicator_and_no_promise_covers_it(tmp_path: Path, form: str) -> None:
    run = AgentRun(tmp_path / form, "agent.max_backlog_bytes=120000", f"agent.messages={form}")
    run.receiver.is_away = True
    worked(run, 60)
    run.end()
    run.deliver()
    arrived = len(run.receiver.rows())
    assert 0 < arrived < 60 * 40
    assert run.receiver.of(Progress)[-1].dropped_total == 60 * 40 - arrived == run.outbox.counts.dropped_calls
    first = next(event for event in run.receiver.events if isinstance(event, (CallBatch, Progress)))
    assert isinstance(first, CallBatch)  # no promise is older than the calls that are left


def test_a_message_of_a_shard_that_cannot_be_read_is_dropped_all_the_same(tmp_path: Path) -> None:
    from collector.agent.outbox import Outgoing

    outbox = Outbox(tmp_path / "outbox.sqlite", 1_000)
    damaged = Outgoing(kind="calls", stream=f"{SHARD_KEY}j/0/0", calls=7, payload=b"\xff" * 900)
    outbox.save([damaged], b"", 0)
    assert {name: lost.calls for name, lost in outbox.make_room(900).items()} == {damaged.stream: 7}
    outbox.close()


def test_a_host_of_a_large_job_says_all_of_it_at_home_for_as_long_as_its_run_goes_on(tmp_path: Path) -> None:
    """A run that began before there were homes goes on without one, whoever follows it."""
    for name, has_homes in (("new", True), ("of before", False)):
        run = AgentRun(tmp_path / name, "agent.digests_from_ranks=0")
        if not has_homes:
            begun = msgspec.msgpack.decode(msgspec.msgpack.encode(run.agent._state()), type=dict)
            del begun["has_homes"]
            run.outbox.save([], msgspec.msgpack.encode(begun), 0)
            run.kill()
        ring = run.ring(9, world_size=4_096)
        ring.group([9, 1_033, 2_057], world_size=4_096, is_world=False, handle=b"p" * 16)
        ring.group([1, 9], world_size=4_096, is_world=False, handle=b"d" * 16)
        run.flush()
        run.kill()
        run.flush()
        keys = {event.key for event in raw(run) if isinstance(event, Flush)}
        assert len(keys) == (1 if has_homes else 2)
        assert all(key.startswith(HOME_KEY) for key in keys) == has_homes


class LargeJob:
    """Rank 9 of 4,096 on two communicators, which are told call by call; each second it makes a call on each."""

    def __init__(self, path: Path, *overrides: str) -> None:
        self.run = AgentRun(path, "agent.digests_from_ranks=0", *overrides)
        self.ring = self.run.ring(9, world_size=4_096)
        self.calls = {b"p" * 16: 0, b"d" * 16: 0}
        self.is_in_a_call = False
        for handle, members in zip(self.calls, ([9, 1_033, 2_057], [1, 9]), strict=True):
            self.ring.group(members, world_size=4_096, is_world=False, handle=handle)
        self.names = {handle.hex() for handle in self.calls}

    def works(self, n_seconds: int, *, stands: bool = False) -> list[Flush]:
        """What is said meanwhile; a rank that stands has begun a call on each, and neither ends."""
        n_before = len(raw(self.run))
        for _ in range(n_seconds):
            for handle, seq in self.calls.items():
                if not self.is_in_a_call:
                    self.ring.launch(seq, self.run.now_ns, handle=handle)
                if not stands:
                    self.ring.complete(seq, self.run.now_ns, handle=handle)
                    self.calls[handle] += 1
            self.is_in_a_call = stands
            self.run.step(1_000)
        return [event for event in raw(self.run)[n_before:] if isinstance(event, Flush)]


def test_of_ranks_that_go_on_a_host_of_a_large_job_says_up_to_when_and_how_far_they_are_now_and_then(
    tmp_path: Path,
) -> None:
    job = LargeJob(tmp_path)
    job.works(8)
    going_on = job.works(8)
    assert all(flush.promised_ns.keys() == job.names for flush in going_on), "that is known of each of them"
    assert sorted(len(flush.promises) for flush in going_on) == [0] * 6 + [2] * 2, "each four seconds"
    assert all(flush.parts for flush in going_on), "one message has all of it"
    for before, after in pairwise(going_on):
        assert after.column("end_ns").min() > max(before.promised_ns.values())


def test_a_host_of_a_large_job_says_at_once_where_its_ranks_stand_and_since_when(tmp_path: Path) -> None:
    job = LargeJob(tmp_path)
    job.works(10)
    stands = job.works(5, stands=True)
    promises = [promise for flush in stands for promise in flush.promises]
    at_ns = sorted({promise.time_ns for promise in promises})
    assert {promise.communicator for promise in promises} == job.names
    assert len(promises) == 2 * len(at_ns), "each of them once"
    assert len(at_ns) >= 5, "each second, and the last word before as well"
    assert all(promise.ranks[0].open for promise in promises if promise.time_ns > at_ns[1])
    assert all(flush.promises for flush in job.works(1)), "that it stands no more"
    assert any(not flush.promises for flush in job.works(2))


def test_whoever_follows_an_agent_of_a_large_job_says_all_again(tmp_path: Path) -> None:
    job = LargeJob(tmp_path)
    job.works(10)
    assert not job.works(1)[-1].promises
    job.run.kill()
    assert job.works(1)[-1].promises


def test_a_host_of_a_large_job_says_all_again_behind_what_had_to_make_room(tmp_path: Path) -> None:
    job = LargeJob(tmp_path, "agent.max_backlog_bytes=60000")
    job.works(8)
    job.run.receiver.is_away = True
    job.works(60)
    assert job.run.outbox.counts.dropped_calls
    job.run.receiver.is_away = False
    job.works(5)
    kept = [event for event in raw(job.run) if isinstance(event, Flush)]
    numbers = [int(flush.column("seq").max(initial=-1)) for flush in kept]
    behind_gap = next(at for at, (before, after) in enumerate(pairwise(numbers), 1) if after > before + 1)
    first = next(flush for flush in kept[behind_gap:] if flush.promised_ns)
    assert {promise.communicator for promise in first.promises} == job.names
    assert sum(promise.dropped_total for promise in first.promises) == job.run.outbox.counts.dropped_calls
