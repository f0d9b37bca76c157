"""A command that starts its ranks several times: each time is an attempt of its own, though they count as before."""

from __future__ import annotations

import pytest

from pacehound.model.codes import JOINING
from pacehound.model.events import HostSample, Markers, Progress, Topology
from pacehound.model.identity import communicator_id
from tests.fakes.agent_run import AgentRun
from tests.fakes.ring_file import HANDLE, RingFile


def again(run: AgentRun, rank: int, *, time: int = 2) -> RingFile:
    """The ring of another process of this rank that has joined the world."""
    ring = started(run, rank, time=time)
    ring.group([0, 1])
    return ring


def started(run: AgentRun, rank: int, *, said: int = 0, time: int = 2) -> RingFile:
    pid = 100 * time + rank
    run.proc.put(pid)
    return RingFile(run.path / "rings", rank=rank, pid=pid, tid=pid, attempt=said)


def both_have_left(run: AgentRun) -> None:
    for rank in (0, 1):
        run.joined(rank)
    run.flush()
    for rank in (0, 1):
        run.proc.remove(100 + rank)


def attempts(run: AgentRun) -> list[int]:
    return sorted({sample.attempt for sample in run.receiver.of(HostSample) if not sample.closed})


@pytest.mark.parametrize("is_killed", [False, True])
def test_ranks_that_begin_when_all_have_left_are_another_attempt_with_communicators_of_its_own(
    run: AgentRun, is_killed: bool
) -> None:
    both_have_left(run)  # and the next ones begin before anybody has looked
    if is_killed:
        run.kill()
    rings_again = [again(run, rank) for rank in (0, 1)]
    rings_again[0].done(0, run.now_ns, run.now_ns)
    rings_again[0].marker(0, run.now_ns)
    run.flush()
    first, second = (
        {topology.communicator for topology in run.receiver.of(Topology) if topology.attempt == attempt}
        for attempt in (0, 1)
    )
    assert len(first) == len(second) == 1
    assert first != second
    assert first == {HANDLE.hex()}, "those of the first attempt have the ids that their ranks gave them"
    assert {row["communicator"] for row in run.receiver.rows()} == second
    assert [(said.attempt, said.steps) for said in run.receiver.of(Markers)] == [(1, (0,))]
    progress = [said for said in run.receiver.of(Progress) if said.attempt == 1]
    assert {said.communicator for said in progress} == second
    assert {(sample.attempt, sample.is_later_launch) for sample in run.receiver.of(HostSample)} == {
        (0, False),
        (1, True),
    }
    closed = [(sample.attempt, sample.closed_why) for sample in run.receiver.of(HostSample) if sample.closed]
    assert closed == [(0, "job ended")]


def test_whoever_begins_beside_ranks_that_are_there_is_of_their_attempt(run: AgentRun) -> None:
    both_have_left(run)
    again(run, 0)
    run.flush()
    again(run, 1)
    run.flush()
    assert attempts(run) == [0, 1]


def test_a_rank_that_begins_anew_while_others_go_on_is_of_their_attempt(run: AgentRun) -> None:
    for rank in (0, 1):
        run.joined(rank)
    run.flush()
    run.proc.remove(101)
    again(run, 1)
    run.flush()
    assert attempts(run) == [0]


def test_ranks_that_count_on_by_themselves_are_taken_at_their_word(run: AgentRun) -> None:
    both_have_left(run)
    started(run, 0, said=1).group([0, 1], handle=bytes(reversed(HANDLE)))
    run.flush()
    assert attempts(run) == [0, 1]
    (topology,) = [said for said in run.receiver.of(Topology) if said.attempt == 1]
    assert topology.communicator == bytes(reversed(HANDLE)).hex()


def test_who_was_there_when_the_others_joined_has_joined_with_them_however_soon_they_left(run: AgentRun) -> None:
    run.ring(0).group([0, 1], created_ns=1_000 * 10_000_000 + 1)  # a tick is a hundredth of a second
    run.flush()
    run.proc.remove(100)
    run.joined(1)
    run.flush()
    assert attempts(run) == [0]


def test_who_has_waited_to_join_and_left_makes_no_attempt(run: AgentRun) -> None:
    run.ring(0).group([0, 1], name=JOINING)
    run.flush()
    run.proc.remove(100)
    again(run, 0)
    run.flush()
    assert attempts(run) == [0]


def test_a_third_time_is_a_third_attempt(run: AgentRun) -> None:
    both_have_left(run)
    again(run, 0)
    run.flush()
    run.proc.remove(200)
    again(run, 0, time=3)
    run.flush()
    assert attempts(run) == [0, 1, 2]
    assert len({topology.communicator for topology in run.receiver.of(Topology)}) == 3


@pytest.mark.parametrize("said", [0, 1])
def test_hosts_whose_ranks_count_otherwise_give_the_communicators_of_an_attempt_the_same_ids(
    run: AgentRun, said: int
) -> None:
    # torchrun counts a restart where a rank failed; a host that only hears of it starts its ranks again uncounted.
    both_have_left(run)
    ring = started(run, 0, said=said)
    ring.group([0, 1], handle=bytes.fromhex(communicator_id("j", said, "0", [0, 1], 0)))
    run.flush()
    (second,) = {topology.communicator for topology in run.receiver.of(Topology) if topology.attempt == 1}
    assert second == communicator_id("j", 1, "0", [0, 1], 0)
