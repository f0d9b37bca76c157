"""Rows: each call arrives once, with the times its backend lets us know, whatever happens to agent and head node."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from collector.calls import rings
from pacehound.model.calls import CallBatch, Sees
from pacehound.model.events import Progress, Topology
from tests.fakes.agent_run import MS, UNIX_NS, AgentRun
from tests.fakes.examples import examples
from tests.fakes.receiver import promises_hold

PAIR = bytes(16)[:15] + b"\x07"


def test_a_gloo_call_starts_at_the_later_of_its_launch_and_the_end_before_it(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.launch(0, 100 * MS)
    ring.launch(1, 110 * MS)  # queued behind the first
    ring.complete(0, 150 * MS)
    ring.complete(1, 170 * MS)
    ring.launch(2, 200 * MS)  # launched when nothing ran
    ring.complete(2, 220 * MS)
    run.flush()
    rows = run.receiver.rows()
    assert [(r["seq"], r["start_ns"] - UNIX_NS, r["end_ns"] - UNIX_NS) for r in rows] == [
        (0, 100 * MS, 150 * MS),
        (1, 150 * MS, 170 * MS),
        (2, 200 * MS, 220 * MS),
    ]
    assert run.receiver.of(CallBatch)[0].sees == Sees.ALL


def test_the_end_before_it_is_remembered_over_batches_and_a_kill(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.launch(0, 100 * MS)
    ring.launch(1, 110 * MS)
    ring.complete(0, 150 * MS)
    run.flush()
    run.kill()
    ring.complete(1, 900 * MS)
    run.flush()
    assert [r["start_ns"] - UNIX_NS for r in run.receiver.rows()] == [100 * MS, 150 * MS]


def test_point_to_point_calls_do_not_delay_the_start_of_collectives(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.launch(0, 100 * MS, op=11, direction=2, peer=1)
    ring.complete(0, 190 * MS, op=11, direction=2, peer=1, flags=rings.END_BOUND)
    ring.done(0, 120 * MS, 200 * MS)
    run.flush()
    starts = {(r["op"], r["peer"]): r["start_ns"] - UNIX_NS for r in run.receiver.rows()}
    assert starts == {("recv", 1): 100 * MS, ("all_reduce", -1): 120 * MS}


def test_a_start_that_the_source_saw_is_kept(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.launch(0, 100 * MS)
    ring.complete(0, 150 * MS, start_ns=120 * MS)
    run.flush()
    assert run.receiver.rows()[0]["start_ns"] == UNIX_NS + 120 * MS


def test_a_source_that_sees_only_the_launch_sends_rows_at_once_and_never_an_open_call(run: AgentRun) -> None:
    ring = run.ring(0)
    ring.group([0, 1], backend=2)
    ring.launch(0, 100 * MS)
    ring.complete(0, 101 * MS)  # the Work completes at launch: it says nothing
    ring.launch(1, 110 * MS)
    run.flush()
    (batch,) = run.receiver.of(CallBatch)
    assert batch.sees == Sees.LAUNCH
    assert batch.integers("seq").tolist() == [0, 1]
    assert batch.integers("end_ns").tolist() == [0, 0]
    assert run.receiver.of(Progress)[-1].ranks[0].open == ()


def test_a_captured_call_is_marked_and_waits_for_no_end(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.launch(0, 100 * MS, flags=rings.CAPTURED)
    run.flush()
    assert [(r["captured"], r["end_ns"]) for r in run.receiver.rows()] == [(True, 0)]


def test_the_completion_may_come_from_another_ring_and_before_its_launch(run: AgentRun) -> None:
    first, second = run.ring(0, tid=1), run.ring(0, tid=2)
    first.group([0, 1])
    second.complete(0, 150 * MS)
    run.step(1_100)
    first.launch(0, 100 * MS)
    run.flush()
    assert [(r["seq"], r["end_ns"]) for r in run.receiver.rows()] == [(0, UNIX_NS + 150 * MS)]


def test_topology_comes_before_any_row_and_again_when_a_rank_joins(run: AgentRun) -> None:
    first, second = run.ring(0), run.ring(1)
    second.launch(0, 100 * MS)  # this rank's group is still to come
    second.complete(0, 150 * MS)
    first.group([0, 1], created_ns=5 * MS)
    run.flush()
    assert run.receiver.rows() == []
    second.group([0, 1], created_ns=6 * MS)
    run.flush()
    announced = run.receiver.of(Topology)
    assert [t.host_ranks for t in announced] == [(0,), (0, 1)]
    assert announced[0].time_ns == UNIX_NS + 5 * MS
    assert (announced[0].backend, announced[0].timeout_s, announced[0].is_world) == ("gloo", 1800.0, True)
    kinds = [type(event) for event in run.receiver.events if isinstance(event, (CallBatch, Topology))]
    assert kinds == [Topology, Topology, CallBatch]


def test_a_large_group_is_put_together_from_many_member_records(run: AgentRun) -> None:
    run.ring(3).group(list(range(100)))
    run.flush()
    assert run.receiver.of(Topology)[0].members == tuple(range(100))


def test_batches_are_cut_at_1450_rows_and_numbered(run: AgentRun) -> None:
    ring = run.ring(0, capacity=16384)
    ring.group([0, 1])
    for seq in range(3000):
        ring.done(seq, 100 * MS + seq, 101 * MS + seq)
    run.flush()
    run.kill()
    ring.done(3000, 110 * MS, 111 * MS)
    run.flush()
    assert [(len(b), b.ordinal) for b in run.receiver.of(CallBatch)] == [(1450, 0), (1450, 1), (100, 2), (1, 3)]


@pytest.mark.parametrize(
    "bad",
    [
        {"seq": -1},
        {"rank": 9},
        {"rank": 1 << 31},
        {"direction": 9},
        {"direction": 1, "peer": -1},
        {"launch_ns": 1 << 63},
    ],
)
def test_a_call_that_cannot_be_is_counted_and_the_others_arrive(run: AgentRun, bad: dict[str, int]) -> None:
    ring = run.joined(0)
    ring.launch(0, 100 * MS)
    ring.call(rings.LAUNCH, **{"seq": 5, "launch_ns": 100 * MS, **bad})  # type: ignore[arg-type]
    ring.complete(0, 150 * MS)
    run.flush()
    run.step(31_000)
    assert [r["seq"] for r in run.receiver.rows()] == [0]
    assert run.agent.assembler.counts.refused == 1


def test_codes_of_a_newer_writer_are_unknown_not_fatal(run: AgentRun) -> None:
    ring = run.ring(0)
    ring.group([0, 1], backend=99)
    ring.launch(0, 100 * MS, op=200, dtype=201, redop=202, source=203)
    run.flush()
    (row,) = run.receiver.rows()
    assert (row["op"], row["dtype"], row["redop"], row["source"]) == ("unknown",) * 4


def test_contradicting_groups_are_refused_and_counted(run: AgentRun) -> None:
    first, second = run.ring(0), run.ring(1)
    first.group([0, 1])
    second.group([0, 1, 2], world_size=3)
    run.flush()
    assert [t.members for t in run.receiver.of(Topology)] == [(0, 1)]
    assert run.agent.assembler.counts.refused == 1


def test_a_completion_whose_launch_was_lost_is_a_row_of_its_own(run: AgentRun) -> None:
    completes, launches = run.ring(0, tid=1), run.ring(0, tid=2, capacity=4)
    completes.group([0, 1])
    for seq in range(10):
        launches.launch(seq, (100 + seq) * MS)
        completes.complete(seq, (200 + seq) * MS, launch_ns=(100 + seq) * MS)
    run.flush()
    run.flush()
    assert sorted((r["seq"], r["end_ns"]) for r in run.receiver.rows()) == [
        (seq, UNIX_NS + (200 + seq) * MS) for seq in range(10)
    ]
    assert run.receiver.of(Progress)[-1].dropped_total == 0


def test_a_second_completion_of_a_call_is_counted_and_gives_no_second_row(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.launch(0, 100 * MS)
    ring.complete(0, 150 * MS, launch_ns=100 * MS)
    ring.complete(0, 160 * MS, launch_ns=100 * MS)
    run.flush()
    run.flush()
    assert len(run.receiver.rows()) == 1
    assert run.agent.assembler.counts.unmatched == 1


class Script:
    """Ranks that launch and complete in any order, an agent killed at any point, a receiver that comes and goes."""

    def __init__(self, run: AgentRun) -> None:
        self.run = run
        self.rings = {
            (rank, thread): run.ring(rank, tid=10 * rank + thread + 1, capacity=512)
            for rank in (0, 1)
            for thread in (0, 1)
        }
        for (_, thread), ring in self.rings.items():
            if thread == 0:
                ring.group([0, 1])
                ring.group([0, 1], handle=PAIR, is_world=False, name="pair", backend=1)
        self.next_seq: Counter[tuple[int, bytes, int]] = Counter()
        self.open: list[tuple[int, bytes, int, int]] = []
        self.expected: dict[tuple[str, int, int, str], int] = {}

    def launch(self, rank: int, handle: bytes, direction: int, thread: int) -> None:
        seq = self.next_seq[rank, handle, direction]
        self.next_seq[rank, handle, direction] += 1
        peer = 1 - rank if direction else -1
        self.rings[rank, thread].launch(seq, self.run.now_ns, handle=handle, direction=direction, peer=peer)
        self.open.append((rank, handle, direction, seq))
        self.expected[handle.hex(), rank, seq, ("none", "send", "recv")[direction]] = 0

    def complete(self, which: int, thread: int) -> None:
        if not self.open:
            return
        rank, handle, direction, seq = self.open.pop(which % len(self.open))
        peer = 1 - rank if direction else -1
        end_ns = self.run.now_ns
        self.rings[rank, thread].complete(seq, end_ns, handle=handle, direction=direction, peer=peer)
        self.expected[handle.hex(), rank, seq, ("none", "send", "recv")[direction]] = UNIX_NS + end_ns

    def close(self) -> None:
        for ring in self.rings.values():
            ring.close_file()


HANDLES = st.sampled_from([bytes(range(16)), PAIR])
STEP = st.one_of(
    st.tuples(st.just("launch"), st.integers(0, 1), HANDLES, st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.just("complete"), st.integers(0, 50), st.integers(0, 1)),
    st.tuples(st.just("step"), st.sampled_from([50, 300, 1_100])),
    st.tuples(st.just("kill")),
    st.tuples(st.just("away"), st.booleans()),
    st.tuples(st.just("mute"), st.booleans()),
)


@examples(10, deep=1_250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(STEP, max_size=60))
def test_any_interleaving_with_kills_gives_each_row_once_and_keeps_every_promise(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[object, ...]]
) -> None:
    run = AgentRun(tmp_path_factory.mktemp("run"))
    script = Script(run)
    for name, *arguments in plan:
        match name:
            case "launch":
                script.launch(*arguments)  # type: ignore[arg-type]
            case "complete":
                script.complete(*arguments)  # type: ignore[arg-type]
            case "step":
                run.step(*arguments)  # type: ignore[arg-type]
            case "kill":
                run.kill()
            case "away":
                run.receiver.is_away = bool(arguments[0])
            case "mute":  # the receiver takes messages, but its answers do not come back
                run.delivery_tasks.loses_answers = bool(arguments[0])
    run.delivery_tasks.loses_answers = False
    run.end()
    run.deliver()
    arrived = [(r["communicator"], r["rank"], r["seq"], r["direction"]) for r in run.receiver.rows()]
    assert Counter(arrived) == Counter(list(script.expected))
    ends = {(r["communicator"], r["rank"], r["seq"], r["direction"]): r["end_ns"] for r in run.receiver.rows()}
    assert ends == script.expected
    assert all(r["launch_ns"] <= r["start_ns"] <= r["end_ns"] for r in run.receiver.rows() if r["end_ns"])
    assert promises_hold(run.receiver.events)
    assert all(batch.dropped == 0 for batch in run.receiver.of(CallBatch))
    assert run.agent.assembler.counts.late_rows == 0
    ordinals = Counter((b.communicator, b.ordinal) for b in run.receiver.of(CallBatch))
    assert set(ordinals.values()) <= {1}
    run.agent.let_go()
    run.outbox.close()
    script.close()


def test_a_sequence_number_that_no_rank_reaches_is_refused_and_the_agent_goes_on(run: AgentRun) -> None:
    """What is missing below it was counted as lost, until the sum fitted into no message and no step was ended."""
    rings = [run.joined(rank) for rank in (0, 1)]
    for ring in rings:
        for seq in (0, 2**63 - 2, 2**63 - 1):
            ring.done(seq, 100 * MS, 101 * MS)
    run.flush()
    run.flush()
    assert run.agent.assembler.counts.refused == 8
    assert "seq 9223372036854775806" in run.agent.assembler.counts.reasons[0]
    assert sorted((row["rank"], row["seq"]) for row in run.receiver.rows()) == [(0, 0), (1, 0)]
