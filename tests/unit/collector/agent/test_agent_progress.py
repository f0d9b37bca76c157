"""Progress: what is promised, what is open, what was lost, and when a communicator is over."""

from __future__ import annotations

from collector.agent.node_agent import GUARD_NS
from collector.calls.rings import CAPTURED, FAILED
from pacehound.model.calls import SOURCES, CallBatch
from pacehound.model.events import Markers, OpenCall, PairProgress, Progress
from tests.fakes.agent_run import MS, UNIX_NS, AgentRun
from tests.fakes.ring_file import HANDLE

OTHER = b"\x09" * 16


def last_progress(run: AgentRun, handle: bytes = HANDLE) -> Progress:
    return [p for p in run.receiver.of(Progress) if p.communicator == handle.hex()][-1]


def test_progress_comes_once_a_second_and_promises_no_more_than_was_read(run: AgentRun) -> None:
    run.joined(0)
    times = []
    for _ in range(61):
        run.step(50)
        times.append(run.now_ns)
    said = run.receiver.of(Progress)
    assert len(said) == 4
    assert [p.time_ns for p in said] == [UNIX_NS + times[i] - GUARD_NS for i in (0, 20, 40, 60)]


def test_an_open_call_is_shown_oldest_first_and_at_most_four(run: AgentRun) -> None:
    ring = run.joined(0)
    for seq in range(7):
        ring.launch(seq, (100 + seq) * MS)
    ring.complete(1, 200 * MS)
    run.flush()
    (rank,) = last_progress(run).ranks
    assert (rank.rank, rank.last_launched, rank.last_completed) == (0, 6, 1)
    assert [call.seq for call in rank.open] == [0, 2, 3, 4]
    assert rank.open[0] == OpenCall(
        seq=0, op="all_reduce", count=256, dtype="float32", launch_ns=UNIX_NS + 100 * MS, peer=-1, redop="sum"
    )


def test_sends_do_not_hide_the_call_in_which_a_rank_stands(run: AgentRun) -> None:
    """A pipeline waits for its sends at the end of a step; the receive before that is the oldest of what is not one."""
    ring = run.ring(2)
    ring.group([0, 1, 2, 3])
    for seq in range(9):
        ring.launch(seq, (110 + seq) * MS, op=8, direction=1, peer=3)
    ring.launch(5, 130 * MS, op=9, direction=2, peer=0)
    run.flush()
    (rank,) = last_progress(run).ranks
    assert [(call.direction, call.seq) for call in rank.open] == [*(("send", seq) for seq in range(4)), ("recv", 5)]


def test_calls_to_and_from_each_peer_are_counted_apart(run: AgentRun) -> None:
    ring = run.ring(2)
    ring.group([0, 1, 2, 3])
    ring.launch(0, 100 * MS)
    for seq in range(3):
        ring.launch(seq, (110 + seq) * MS, op=8, direction=1, peer=3)
    ring.complete(1, 120 * MS, op=8, direction=1, peer=3)
    ring.launch(0, 130 * MS, op=9, direction=2, peer=0)
    run.flush()
    (rank,) = last_progress(run).ranks
    assert (rank.last_launched, rank.last_completed) == (0, -1)
    assert rank.pairs == (
        PairProgress(peer=0, direction="recv", last_launched=0, last_completed=-1),
        PairProgress(peer=3, direction="send", last_launched=2, last_completed=1),
    )
    run.kill()
    run.flush()
    assert last_progress(run).ranks[0].pairs == rank.pairs


def test_where_launches_alone_are_seen_completion_is_said_to_be_unseen(run: AgentRun) -> None:
    ring = run.ring(0)
    ring.group([0, 1], backend=2)
    ring.group([0, 1], handle=OTHER, is_world=False)
    run.flush()
    assert not last_progress(run).sees_completion  # by its backend: nothing was called yet
    assert last_progress(run, OTHER).sees_completion
    ring.launch(0, 100 * MS, handle=OTHER)
    ring.launch(1, 110 * MS, handle=OTHER, source=SOURCES.index("shim"))
    run.flush()
    assert not last_progress(run, OTHER).sees_completion  # one of its two sources sees no end


def test_calls_that_went_into_a_graph_are_counted(run: AgentRun) -> None:
    ring = run.joined(0)
    for seq in range(3):
        ring.launch(seq, (100 + seq) * MS, flags=CAPTURED)
    ring.launch(3, 110 * MS)
    run.flush()
    assert last_progress(run).captured_total == 3
    assert [call.seq for call in last_progress(run).ranks[0].open] == [3]


def test_the_rows_of_a_second_come_before_the_progress_that_covers_them(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.done(0, run.now_ns, run.now_ns)
    ring.marker(0, run.now_ns)
    run.step()
    kinds = [type(e) for e in run.receiver.events if isinstance(e, (CallBatch, Markers, Progress))]
    assert kinds == [Markers, CallBatch, Progress]


def test_a_row_that_comes_after_its_promise_is_sent_and_counted(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.launch(0, run.now_ns)
    run.flush()
    ring.complete(0, run.now_ns - GUARD_NS)
    run.flush()
    assert len(run.receiver.rows()) == 1
    assert run.agent.assembler.counts.late_rows == 1


def test_the_world_announces_every_communicator(run: AgentRun) -> None:
    ring = run.joined(0)
    run.flush()
    assert last_progress(run).announced == (HANDLE.hex(),)
    ring.group([0], handle=OTHER, is_world=False, world_size=2)
    run.flush()
    assert last_progress(run).announced == (HANDLE.hex(), OTHER.hex())
    assert last_progress(run, OTHER).announced == ()


def test_markers_travel_on_the_world_and_only_the_first_optimizer_marks_a_step(run: AgentRun) -> None:
    ring = run.ring(0)
    ring.marker(0, 90 * MS)  # before the world is known
    ring.group([0, 1])
    ring.marker(1, 100 * MS)
    ring.marker(1, 101 * MS, ordinal=1)
    ring.marker(1, 102 * MS, marker=1)
    ring.marker(1, 103 * MS, marker=77)
    run.flush()
    (said,) = run.receiver.of(Markers)
    assert said.communicator == HANDLE.hex()
    assert said.names == ("optimizer_step", "optimizer_step", "checkpoint_begin")
    assert said.steps == (0, 1, 1)
    assert said.times_ns == (UNIX_NS + 90 * MS, UNIX_NS + 100 * MS, UNIX_NS + 102 * MS)
    assert run.agent.assembler.counts.refused == 1


def test_calls_that_a_ring_lost_are_counted_and_travel_with_the_data(run: AgentRun) -> None:
    ring = run.ring(0, capacity=16)
    ring.group([0, 1])
    run.flush()
    for seq in range(20):
        ring.done(seq, run.now_ns, run.now_ns)
    run.flush()
    ring.done(20, run.now_ns, run.now_ns)
    run.flush()
    arrived = [r["seq"] for r in run.receiver.rows()]
    assert arrived == [*range(12, 21)]
    assert sum(batch.dropped for batch in run.receiver.of(CallBatch)) == 12
    assert last_progress(run).dropped_total == 12
    assert last_progress(run).ranks[0].open == ()


def test_a_call_whose_end_may_be_lost_is_not_shown_as_open(run: AgentRun) -> None:
    """A loss must not turn a call that ended long ago into a hang."""
    launches, completes = run.ring(0, tid=1), run.ring(0, tid=2, capacity=4)
    launches.group([0, 1])
    for seq in range(10):
        launches.launch(seq, (100 + seq) * MS)
    run.flush()
    assert [call.seq for call in last_progress(run).ranks[0].open] == [0, 1, 2, 3]
    for seq in range(9):
        completes.complete(seq, (300 + seq) * MS)
    run.flush()
    progress = last_progress(run)
    assert [r["seq"] for r in run.receiver.rows()] == [5, 6, 7, 8]
    assert progress.dropped_total == 5
    assert progress.ranks[0].open == ()  # call 9 may have ended in what was lost
    launches.launch(10, run.now_ns)
    run.flush()
    assert [call.seq for call in last_progress(run).ranks[0].open] == [10]
    completes.complete(9, run.now_ns)
    run.flush()
    assert [r["seq"] for r in run.receiver.rows()][-1] == 9
    assert last_progress(run).dropped_total == 5


def test_records_that_come_out_of_order_over_two_threads_are_no_loss(run: AgentRun) -> None:
    first, second = run.ring(0, tid=1), run.ring(0, tid=2)
    first.group([0, 1])
    first.launch(0, 100 * MS)
    first.launch(2, 120 * MS)
    run.step(1_100)
    second.launch(1, 110 * MS)
    run.flush()
    run.flush()
    assert last_progress(run).dropped_total == 0


def test_a_call_that_failed_stays_open_until_its_rank_goes_on(run: AgentRun) -> None:
    """A call that timed out has not completed: to its peers the rank stands where it stood."""
    ring = run.joined(0)
    ring.done(0, 100 * MS, 110 * MS)
    ring.launch(1, 120 * MS)
    ring.complete(1, 130 * MS, flags=FAILED)
    run.step(1_100)
    run.flush()
    (told,) = last_progress(run).ranks
    assert (told.last_launched, told.last_completed, [call.seq for call in told.open]) == (1, 0, [1])
    assert [row["seq"] for row in run.receiver.rows()] == [0]
    ring.done(2, 2_000 * MS, 2_010 * MS)
    run.step(1_100)
    run.flush()
    (told,) = last_progress(run).ranks
    assert (told.last_launched, told.last_completed, told.open) == (2, 2, ())
    assert {row["seq"]: bool(row["end_ns"]) for row in run.receiver.rows()} == {0: True, 1: False, 2: True}


def test_a_destroyed_communicator_gives_up_what_is_open_and_closes(run: AgentRun) -> None:
    ring, other_thread = run.ring(0, tid=1), run.ring(0, tid=2)
    ring.group([0, 1])
    ring.group([0, 1], handle=OTHER, is_world=False)
    ring.launch(0, 100 * MS, handle=OTHER)
    ring.launch(1, 110 * MS, handle=OTHER)
    ring.destroy(handle=OTHER)
    run.step(1_100)
    other_thread.complete(0, 120 * MS, handle=OTHER)  # was on its way when the group went
    run.flush()
    run.flush()
    assert {r["seq"]: bool(r["end_ns"]) for r in run.receiver.rows()} == {0: True, 1: False}
    assert [p.closed for p in run.receiver.of(Progress) if p.communicator == OTHER.hex()][-1] is True
    assert sum(p.closed for p in run.receiver.of(Progress)) == 1
    assert last_progress(run).closed is False


def test_a_communicator_stays_open_until_all_ranks_of_the_host_have_left(run: AgentRun) -> None:
    first, second = run.ring(0), run.ring(1)
    first.group([0, 1])
    first.destroy()
    run.flush()
    assert not last_progress(run).closed  # rank 1 lives on this host and has not even joined
    second.group([0, 1])
    run.flush()
    assert not last_progress(run).closed
    second.destroy()
    run.flush()
    assert last_progress(run).closed
    said = len(run.receiver.of(Progress))
    run.flush()
    assert len(run.receiver.of(Progress)) == said


def test_the_end_of_the_job_gives_up_open_calls_and_closes_everything(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.done(0, 100 * MS, 150 * MS)
    ring.launch(1, 160 * MS)
    run.end("job killed")
    run.deliver()
    assert {r["seq"]: r["end_ns"] for r in run.receiver.rows()} == {0: UNIX_NS + 150 * MS, 1: 0}
    assert last_progress(run).closed
    assert last_progress(run).ranks[0].open == ()


def test_an_end_that_cannot_be_read_still_ends_the_run(run: AgentRun) -> None:
    run.joined(0)
    (run.path / "ended.json").write_text('{"exit_co')
    run.step(1_000)
    assert not run.agent.has_closed
    run.step(2_000)
    assert run.agent.has_closed


def test_a_ring_that_breaks_leaves_the_other_ranks_alone(run: AgentRun) -> None:
    first, second = run.ring(0), run.ring(1)
    first.group([0, 1])
    second.group([0, 1])
    first.launch(0, 100 * MS)
    run.flush()
    first.path.write_bytes(b"")
    (run.path / "rings" / "foreign.ring").write_bytes(b"not a ring")
    second.done(0, 100 * MS, 150 * MS)
    run.flush()
    assert [(r["rank"], r["seq"]) for r in run.receiver.rows()] == [(1, 0)]
    assert run.agent.counts.refused_rings == 2
    assert last_progress(run).ranks[0].open == ()  # its end would never be seen
