"""Communicators whose ranks say their own place alone, as the NCCL shim has them."""

from __future__ import annotations

import random
import struct

import pytest

from collector.calls import rings
from pacehound.model.calls import FIRST_PLACE, CallBatch, Sees
from pacehound.model.events import UNKNOWN_MEMBER, Progress, Topology
from tests.fakes.agent_run import MS, AgentRun
from tests.fakes.examples import tries
from tests.fakes.ring_file import RingFile

PAIR = b"\x07" * 16
SHIM = 2


def place(ring: RingFile, index: int, size: int, created_ns: int = 1) -> None:
    body = struct.pack("<QiiiBBHI68s", created_ns, 0, 4, size, False, 2, 0, 0, b"nccl")
    ring.raw(rings.GROUP, body, handle=PAIR)
    ring.raw(rings.PLACE, struct.pack("<ii", size, index), handle=PAIR)


def test_peers_are_named_by_their_places_until_their_ranks_have_said_theirs(run: AgentRun) -> None:
    first, second = run.ring(3), run.ring(1)
    place(first, 0, 2)  # world rank 3 is rank 0 of the communicator
    local = rings.LOCAL_PEER | rings.ASYNC
    first.call(rings.LAUNCH, 0, launch_ns=MS, handle=PAIR, op=10, direction=1, peer=1, flags=local, source=SHIM)
    first.call(rings.LAUNCH, 0, launch_ns=MS, handle=PAIR, op=4, peer=0, flags=local, source=SHIM)
    run.flush()
    assert [topology.members for topology in run.receiver.of(Topology)] == [(3, UNKNOWN_MEMBER)]
    run.kill()  # what is known of it is remembered
    place(second, 1, 2)
    first.call(rings.LAUNCH, 1, launch_ns=2 * MS, handle=PAIR, op=10, direction=1, peer=1, flags=local, source=SHIM)
    second.call(rings.LAUNCH, 0, launch_ns=2 * MS, handle=PAIR, op=11, direction=2, peer=0, flags=local, source=SHIM)
    run.flush()
    assert run.receiver.of(Topology)[-1].members == (3, 1)
    rows = {(row["rank"], row["op"], row["peer"], row["direction"], row["seq"]) for row in run.receiver.rows()}
    assert rows == {
        (3, "send", FIRST_PLACE - 1, "send", 0),
        (3, "broadcast", 3, "none", 0),
        (3, "send", 1, "send", 1),
        (1, "recv", 3, "recv", 0),
    }
    assert {(batch.source, batch.sees) for batch in run.receiver.of(CallBatch)} == {("shim", Sees.LAUNCH)}
    last = [progress for progress in run.receiver.of(Progress) if progress.communicator == PAIR.hex()][-1]
    counted = {(theirs.rank, pair.peer, pair.last_launched) for theirs in last.ranks for pair in theirs.pairs}
    assert counted == {(3, 1, 1), (1, 3, 0)}
    assert run.agent.assembler.counts.refused == 0


def test_a_peer_that_the_communicator_does_not_have_is_refused(run: AgentRun) -> None:
    ring = run.ring(0)
    place(ring, 0, 1)
    flags = rings.LOCAL_PEER
    ring.call(rings.LAUNCH, 0, launch_ns=MS, handle=PAIR, op=10, direction=1, peer=5, flags=flags, source=SHIM)
    ring.launch(0, MS, handle=PAIR, source=SHIM)
    run.flush()
    assert [row["op"] for row in run.receiver.rows()] == ["all_reduce"]
    assert run.agent.assembler.counts.refused == 1


def test_who_claims_a_place_that_is_taken_has_not_joined(run: AgentRun) -> None:
    for rank in (0, 1):
        place(run.ring(rank), 0, 2)
    run.flush()
    assert {(topology.host_ranks, topology.members) for topology in run.receiver.of(Topology)} == {((0,), (0, -1))}
    assert "rank 1 says 0707" in run.agent.assembler.counts.reasons[0]


def test_a_rank_with_a_place_outside_of_its_communicator_has_not_joined(run: AgentRun) -> None:
    place(run.ring(0), 2, 2)
    run.flush()
    assert run.receiver.of(Topology) == []
    assert "place 2 in a communicator of 2" in run.agent.assembler.counts.reasons[0]


def test_a_communicator_that_spans_hosts_is_told_with_the_places_of_this_one(run: AgentRun) -> None:
    ring = run.ring(2)
    place(ring, 1, 4)
    ring.launch(0, MS, handle=PAIR, source=SHIM)
    run.flush()
    (told,) = run.receiver.of(Topology)
    assert (told.members, told.host_ranks, told.is_partial) == ((-1, 2, -1, -1), (2,), True)
    assert [(row["rank"], row["seq"], row["peer"]) for row in run.receiver.rows()] == [(2, 0, -1)]
    ring.raw(rings.DESTROY, b"", handle=PAIR)
    run.flush()
    run.flush()
    assert [p for p in run.receiver.of(Progress) if p.communicator == PAIR.hex()][-1].closed
    assert run.agent.assembler.state().pending_groups == {}


def random_record(rng: random.Random) -> tuple[int, bytes]:
    """A record of any kind whose fields are small numbers, extremes or noise."""
    words = [rng.choice([0, 1, 2, 3, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, rng.getrandbits(32)]) for _ in range(24)]
    if rng.random() < 0.5:
        words[0] = words[0] & 0x1F0F0F0F  # an op, a type, a reduction and a direction that may be
    return rng.choice([*range(10), 255]), struct.pack("<24I", *words)


@pytest.mark.parametrize("seed", tries(7, deep=70))
def test_records_that_make_no_sense_do_not_end_the_agent(run: AgentRun, seed: int) -> None:
    rng = random.Random(seed)
    rings_of = [run.ring(rank, capacity=256) for rank in range(3)]
    for ring in rings_of:
        place(ring, ring.rank, 3, created_ns=1)
    for _ in range(5):
        for ring in rings_of:
            for _ in range(rng.randrange(60)):
                kind, body = random_record(rng)
                handle = rng.choice([PAIR, bytes(16), rng.randbytes(16)])
                ring.raw(kind, body, handle=handle, rank=rng.choice([None, 0, 5, 1 << 31]))
        run.step(1_100)
    run.step(40_000)  # what waited for a group is given up
    sound = b"\x09" * 16
    for ring in rings_of:
        ring.group([0, 1, 2], handle=sound, is_world=False)
        ring.launch(7, MS, handle=sound, source=SHIM)
    run.flush()
    rows = [row for row in run.receiver.rows() if row["communicator"] == sound.hex()]
    assert [(row["rank"], row["seq"]) for row in rows] == [(0, 7), (1, 7), (2, 7)]
