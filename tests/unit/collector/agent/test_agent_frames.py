"""How far running calls are, from the probing frames of a host's ranks to Progress and to the rows of dead ranks."""

from __future__ import annotations

import pytest

from collector.calls.rings import LOCAL_PEER
from pacehound.model.calls import SOURCES
from pacehound.model.codes import ALGORITHMS, OPS
from pacehound.model.events import ChannelTransfers, OpenCall, Progress
from tests.fakes.agent_run import UNIX_NS, AgentRun
from tests.fakes.frame_file import TOTAL, block, write_frame
from tests.fakes.ring_file import HANDLE, RingFile

PROFILER = SOURCES.index("profiler")
RING = ALGORITHMS.index("ring")
OTHER = b"\x09" * 16


def watched(run: AgentRun, rank: int = 0, *, members: tuple[int, ...] = (0, 1), seqs: int = 1) -> RingFile:
    """A rank of which the profiler plugin tells, with calls open."""
    ring = run.ring(rank)
    ring.group(list(members), backend=2)
    for seq in range(seqs):
        ring.launch(seq, run.now_ns, source=PROFILER, algorithm=RING)
    return ring


def open_calls(run: AgentRun, handle: bytes = HANDLE, rank: int = 0) -> tuple[OpenCall, ...]:
    said = [progress for progress in run.receiver.of(Progress) if progress.communicator == handle.hex()][-1]
    return next(one.open for one in said.ranks if one.rank == rank)


def test_a_running_call_tells_its_counts_at_once_and_its_channels_after_a_second(run: AgentRun) -> None:
    watched(run, seqs=2)
    write_frame(run.path, block(0, {0: (3, 2), 1: (4, -1), 7: (-1, 1)}))
    run.step()
    running, queued = open_calls(run)
    assert (running.send_count, running.recv_count, running.channels) == (7, 3, ())
    assert (queued.send_count, queued.recv_count, queued.channels) == (-1, -1, ())
    assert running.algorithm == "ring"

    first_ns = run.now_ns
    run.step(900)
    write_frame(run.path, block(0, {0: (3, 2), 1: (24, -1), 7: (-1, 1)}))
    run.step(200)
    running, _ = open_calls(run)
    still_ns, moved_ns = UNIX_NS + first_ns, UNIX_NS + run.now_ns
    assert (running.send_count, running.recv_count) == (27, 3)
    assert running.channels == (
        ChannelTransfers(
            channel=0,
            send_count=3,
            recv_count=2,
            send_total=TOTAL,
            recv_total=TOTAL,
            send_rate=0.0,
            recv_rate=0.0,
            still_since_ns=still_ns,
        ),
        ChannelTransfers(channel=1, send_count=24, send_total=TOTAL, send_rate=0.1, still_since_ns=moved_ns),
        ChannelTransfers(channel=7, recv_count=1, recv_total=TOTAL, recv_rate=0.0, still_since_ns=still_ns),
    )


def test_ranks_and_communicators_are_not_mixed_up(run: AgentRun) -> None:
    for rank in (0, 1):
        ring = watched(run, rank)
        ring.group([0, 1], handle=OTHER, is_world=False, backend=2)
        ring.launch(0, run.now_ns, handle=OTHER, source=PROFILER)
        write_frame(run.path, block(0, {0: (rank, 9)}), block(0, {0: (10 + rank, 9)}, handle=OTHER), rank=rank)
    run.flush()
    counts = {(h, r): open_calls(run, h, r)[0].send_count for h in (HANDLE, OTHER) for r in (0, 1)}
    assert counts == {(HANDLE, 0): 0, (HANDLE, 1): 1, (OTHER, 0): 10, (OTHER, 1): 11}


def test_the_peer_of_a_send_counts_within_its_communicator(run: AgentRun) -> None:
    ring = run.ring(2)
    ring.group([0, 1, 2, 3], backend=2)
    ring.group([2, 3], handle=OTHER, is_world=False, world_size=4, backend=2)
    for peer in (0, 1):
        ring.launch(
            0, run.now_ns, handle=OTHER, op=OPS.index("send"), direction=1, peer=peer, flags=LOCAL_PEER, source=PROFILER
        )
    write_frame(run.path, block(0, {2: (6, -1)}, handle=OTHER, peer=1, direction=1), rank=2)
    run.flush()
    assert {call.peer: call.send_count for call in open_calls(run, OTHER, 2)} == {2: -1, 3: 6}


@pytest.mark.parametrize("damage", [b"", b"\xff" * 1184, b"\0" * 5000])
def test_a_corrupt_frame_is_refused_and_everything_else_goes_on(
    run: AgentRun, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for rank in (0, 1):
        watched(run, rank)
        path = write_frame(run.path, block(0, {0: (5, 5)}), rank=rank)
    run.flush()
    path.write_bytes(damage)
    run.flush()
    run.flush()
    assert (run.agent.counts.refused_frames, run.agent.counts.failed_steps) == (1, 0)
    assert f"probing frame {path.name} is not read: " in caplog.text
    assert [open_calls(run, rank=rank)[0].send_count for rank in (0, 1)] == [5, -1]


def test_the_row_of_a_call_that_a_dead_rank_was_in_says_how_far_it_had_come(run: AgentRun) -> None:
    watched(run, seqs=2)
    write_frame(run.path, block(0, {0: (3, 2), 1: (4, -1)}))
    run.flush()
    write_frame(run.path, block(0, {0: (8, 2), 1: (4, -1)}))
    run.proc.remove(100)
    run.flush()
    rows = {row["seq"]: (row["end_ns"], row["send_count"], row["recv_count"]) for row in run.receiver.rows()}
    assert rows == {0: (0, 12, 2), 1: (0, -1, -1)}


def test_an_agent_that_starts_again_finds_the_counts_again(run: AgentRun) -> None:
    watched(run)
    write_frame(run.path, block(0, {0: (3, 2)}))
    run.flush()
    run.kill()
    run.flush()
    (call,) = open_calls(run)
    assert (call.send_count, [one.send_rate for one in call.channels]) == (3, [0.0])


def test_calls_beyond_eight_at_once_are_said_and_once(run: AgentRun, caplog: pytest.LogCaptureFixture) -> None:
    watched(run)
    for unkept in (1, 2):
        write_frame(run.path, *(block(n, {}) for n in range(8)), unkept=unkept)
        run.flush()
    assert caplog.text.count("rank 0 has had more than 8 calls under way at once") == 1
