"""Streams of one job in one order, whatever is sent twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.calls import Sees
from pacehound.model.events import HostSample, Topology
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.settings import Settings
from streams.rounds.merge import CLOSED_NS, Merge
from streams.snapshots.schema import state_codec
from tests.fakes.events import topology
from tests.fakes.examples import tries
from tests.fakes.hand_made_rounds import rounds_at
from tests.fakes.made_pairs import drawn_pairs, pairs_of


def test_an_event_that_was_sent_twice_before_its_turn_comes_twice() -> None:
    """Who takes it knows it by its identity; here it must only not break the order of the others."""
    sample = HostSample(job="j", attempt=0, time_ns=5, host="h", processes=())
    merge: Merge[HostSample] = Merge()
    merge.expect("host:j/h")
    for _ in range(3):
        merge.push("host:j/h", sample)
    merge.advance("host:j/h", 10)
    assert merge.take_events(10) == [sample] * 3


def sample(time_ns: int, host: str) -> HostSample:
    return HostSample(job="j", attempt=0, time_ns=time_ns, host=host, processes=())


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.sampled_from("xyz")), max_size=12), st.booleans()
)
def test_events_come_by_time_stream_and_host_also_after_a_snapshot(
    pushed: list[tuple[int, str, str]], is_restored: bool
) -> None:
    merge: Merge[HostSample] = Merge()
    for time_ns, stream, host in pushed:
        merge.push(stream, sample(time_ns, host))
    if is_restored:
        codec = state_codec(Settings())
        merge = codec.decode(codec.encode(merge))
    taken = merge.take_events(3)
    assert [(event.time_ns, event.host) for event in taken] == [(at, host) for at, _, host in sorted(pushed)]


@given(st.permutations(["first", "second", "third"]))
def test_what_one_host_says_at_one_time_comes_by_its_id(names: list[str]) -> None:
    merge: Merge[Topology] = Merge()
    said = [topology(name, host="h") for name in names]
    for event in said:
        merge.push("stream", event)
    assert merge.take_events(0) == sorted(said, key=lambda event: event.identity())


@given(st.permutations(range(5)))
def test_what_comes_behind_the_watermark_of_its_stream_comes_in_its_own_order(times_ns: list[int]) -> None:
    """Iterations that waited for a rank are told of together, and are due at once."""
    merge: Merge[HostSample] = Merge()
    merge.advance("w", 10)
    for time_ns in times_ns:
        merge.push("w", sample(time_ns, "h"))
    assert [event.time_ns for event in merge.take_events(10)] == list(range(5))


def lines_of(taken: list[Rounds | PairRounds]) -> list[tuple[str, tuple[int, ...], int, str]]:
    """Of each line whose it is, its number and its times, in order."""
    blocks = [block for one in taken for block in ([one] if isinstance(one, Rounds) else one.by_pair())]
    return [
        (block.communicator, block.ranks, int(seq), str((arrival.tolist(), end.tolist())))
        for block in blocks
        for seq, arrival, end in zip(block.seq, block.arrival_ns, block.end_ns, strict=True)
    ]


@pytest.mark.parametrize("seed", tries(8))
def test_digests_of_pairs_are_due_when_each_pair_s_rounds_would_be(seed: int) -> None:
    """However they were cut, whatever their streams have promised before, and over snapshots."""
    rng = np.random.default_rng(seed)
    whole = drawn_pairs(rng, 120)
    apart: Merge[HostSample] = Merge()
    at_once: Merge[HostSample] = Merge()
    parts = [part for part in np.array_split(np.arange(len(whole)), 4) if len(part)]
    turns = [*((0, part) for part in parts), *((1, n) for n in rng.integers(0, 120, 6).tolist()), (2, "c")]
    for kind, what in [turns[at] for at in rng.permutation(len(turns)).tolist()]:
        if kind == 0:
            own = whole.chosen(what)
            at_once.push_rounds(own)
            for rounds in own.by_pair():
                apart.push_rounds(rounds)
        stream, to_ns = ("c", CLOSED_NS) if kind == 2 else ("ab"[int(rng.integers(2))], int(rng.integers(120)))
        until_ns = int(rng.integers(140))
        for merge in (apart, at_once):
            if kind:
                merge.advance(stream, to_ns)
        assert at_once.first_time_ns == apart.first_time_ns
        assert at_once.last_time_ns == apart.last_time_ns
        assert lines_of(at_once.take_rounds(until_ns)) == lines_of(apart.take_rounds(until_ns))
        if rng.random() < 0.3:
            at_once = state_codec(Settings()).decode(state_codec(Settings()).encode(at_once))
    assert lines_of(at_once.take_rounds(CLOSED_NS)) == lines_of(apart.take_rounds(CLOSED_NS))
    assert at_once.first_time_ns is None


@pytest.mark.parametrize("seed", tries(3))
def test_digests_of_pairs_come_in_one_order_however_they_have_come(seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = drawn_pairs(rng, 120)
    blocks = list(whole.by_pair())
    taken = []
    for _ in range(2):
        merge: Merge[HostSample] = Merge()
        shuffled = [blocks[at] for at in rng.permutation(len(blocks)).tolist()]
        for begin in range(0, len(shuffled), 7):
            merge.push_rounds(pairs_of(shuffled[begin : begin + 7]))
        (one,) = merge.take_rounds(CLOSED_NS)
        assert isinstance(one, PairRounds)
        taken.append(one)
    for one in taken:
        assert one.communicators == whole.communicators
        assert lines_of([one]) == lines_of([whole])
        assert np.array_equal(one.size_bytes, whole.size_bytes)


def test_where_all_streams_of_digests_have_ended_none_are_used() -> None:
    merge: Merge[HostSample] = Merge()
    for stream in "abc":
        merge.advance(stream, CLOSED_NS)
    merge.push_rounds(drawn_pairs(np.random.default_rng(1), 30))
    assert merge.take_rounds(CLOSED_NS) == []
    assert merge.first_time_ns is None


@pytest.mark.parametrize("seed", range(10))
def test_a_round_is_due_at_its_last_end_and_where_none_is_known_at_its_last_arrival(seed: int) -> None:
    rng = np.random.default_rng(seed)
    merge: Merge[HostSample] = Merge()
    due: dict[str, list[int]] = {}
    for number in range(6):
        start_ns = rng.integers(1, 90, (4, 3))
        end_ns = np.where(rng.random((4, 3)) < 0.6, start_ns + rng.integers(1, 9, (4, 3)), 0)
        sees = (Sees.ALL, Sees.LAUNCH)[int(rng.integers(2))]
        block = rounds_at(f"c{number}", (0, 1, 2), start_ns, end_ns, sees=sees)
        merge.push_rounds(block)
        due[block.communicator] = block.times_ns.tolist()
    for until_ns in range(0, 110, 10):
        for taken in merge.take_rounds(until_ns):
            assert isinstance(taken, Rounds)
            assert all(until_ns - 10 < time_ns <= until_ns for time_ns in taken.times_ns.tolist())
            for time_ns in taken.times_ns.tolist():
                due[taken.communicator].remove(time_ns)
    assert not any(due.values())
