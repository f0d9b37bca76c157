"""A restart: whatever an agent knew when it saved, the next one knows."""

from __future__ import annotations

import struct

from collector.agent.node_agent import GUARD_NS
from collector.calls import rings
from pacehound.model.events import HostSample, Progress, Topology
from tests.fakes.agent_run import MS, UNIX_NS, AgentRun
from tests.fakes.ring_file import HANDLE


def test_a_completion_that_waits_for_its_launch(run: AgentRun) -> None:
    first, second = run.ring(0, tid=1), run.ring(0, tid=2)
    first.group([0, 1])
    second.complete(0, 150 * MS)
    run.step(1_100)
    run.kill()
    first.launch(0, 100 * MS)
    run.flush()
    assert [r["end_ns"] for r in run.receiver.rows()] == [UNIX_NS + 150 * MS]


def test_a_group_whose_members_are_still_to_come(run: AgentRun) -> None:
    ring = run.ring(0)
    ring.raw(rings.GROUP, struct.pack("<QiiiBBHI68s", 1, 0, 2, 2, 1, 1, 0, 0, b"g"))
    run.flush()
    run.kill()
    ring.raw(rings.MEMBERS, struct.pack("<iii", 2, 0, 1))
    run.flush()
    assert [t.members for t in run.receiver.of(Topology)] == [(0, 1)]


def test_a_group_that_was_just_destroyed(run: AgentRun) -> None:
    ring = run.joined(0)
    run.flush()
    ring.destroy()
    run.step(1_100)
    assert not run.receiver.of(Progress)[-1].closed
    run.kill()
    run.flush()
    assert run.receiver.of(Progress)[-1].closed


def test_what_was_promised(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.launch(0, run.now_ns)
    run.flush()
    run.kill()
    ring.complete(0, run.now_ns - GUARD_NS)
    run.flush()
    assert run.agent.assembler.counts.late_rows == 1


def test_that_rings_have_lost_records_and_which_ends_are_uncertain(run: AgentRun) -> None:
    launches, completes = run.ring(0, tid=1), run.ring(0, tid=2, capacity=4)
    launches.group([0, 1])
    for seq in range(10):
        launches.launch(seq, (100 + seq) * MS)
    for seq in range(9):
        completes.complete(seq, (300 + seq) * MS)
    run.flush()
    run.kill()
    launches.launch(10, run.now_ns)
    run.flush()
    assert [call.seq for call in run.receiver.of(Progress)[-1].ranks[0].open] == [10]
    completes.complete(12, run.now_ns, launch_ns=run.now_ns)  # its launch was lost
    run.flush()
    run.flush()
    assert run.receiver.rows()[-1]["seq"] == 12


def test_that_it_had_closed(run: AgentRun) -> None:
    run.joined(0)
    run.receiver.is_away = True
    run.end()
    run.flush()
    run.kill()
    run.deliver()
    run.flush()
    assert sum(sample.closed for sample in run.receiver.of(HostSample)) == 1
    assert [p.closed for p in run.receiver.of(Progress) if p.communicator == HANDLE.hex()].count(True) == 1
