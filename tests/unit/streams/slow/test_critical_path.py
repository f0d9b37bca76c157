"""The walk back along an iteration, and every rank's own time, on rounds written down by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest

from pacehound.model.calls import Sees
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from streams.rounds.clocks import ClockOffsets, HostClocks
from streams.rounds.round_columns import RoundColumns, TransferKey
from streams.rounds.round_table import RoundTable
from streams.slow.critical_path import Charges, Measured, RoundIndex, Stretch
from tests.fakes.events import topology
from tests.fakes.examples import tries
from tests.fakes.hand_made_rounds import BASE_NS, MS, rounds
from tests.fakes.made_pairs import drawn_pairs


def stretch(
    ranks: list[int], end_ms: float, begin_ms: float = 0.0, ahead_ms: dict[int, float] | None = None
) -> Stretch:
    ahead = {rank: round((ahead_ms or {}).get(rank, 0.0) * MS) for rank in ranks}
    return Stretch.of(
        {rank: BASE_NS + round(begin_ms * MS) + ahead[rank] for rank in ranks},
        {rank: BASE_NS + round(end_ms * MS) + ahead[rank] for rank in ranks},
    )


def index_of(blocks: Sequence[Rounds | PairRounds], offsets: ClockOffsets | None = None) -> RoundIndex:
    return RoundIndex(RoundColumns.of(blocks), offsets)


@dataclass
class One:
    """What is measured of one iteration, as `Measured` says it of each."""

    own_ns: npt.NDArray[np.int64]
    most_own_ns: npt.NDArray[np.int64]
    n_rounds: int
    charges: Charges


def one(index: RoundIndex, at: Stretch) -> One:
    measured = index.measured([at])
    return One(measured.own_ns[0], measured.most_own_ns[0], measured.n_rounds[0], measured.charges[0])


def two_hosts(ahead_ms: float) -> ClockOffsets:
    """Ranks 0 and 1 on hosts of their own, the second one's clock ahead, as small all_reduces show it."""
    clocks = HostClocks()
    for host, rank in (("a", 0), ("b", 1)):
        clocks.on_topology(topology("w", host=host, host_ranks=(rank,)))
    spans = [[(10.0 * n, 10.0 * n + 1)] * 2 for n in range(8)]
    clocks.add(RoundTable([rounds("w", (0, 1), spans, size_bytes=8, clock_ms={1: ahead_ms})]))
    return clocks.offsets()


def test_the_time_before_the_last_start_is_charged_to_the_rank_that_all_waited_for() -> None:
    index = index_of([rounds("dp", (0, 1), [[(10, 44), (40, 44)]])])
    charges = one(index, stretch([0, 1], 50)).charges
    assert charges.ranks == {0: 6 * MS, 1: 40 * MS}
    assert charges.transfers == {"dp": 4 * MS}
    assert charges.total_ns == 50 * MS
    own = one(index, stretch([0, 1], 50))
    assert own.own_ns.tolist() == [16 * MS, 46 * MS]


@pytest.mark.parametrize("ahead_ms", [50.0, -50.0])
def test_a_collective_needs_no_common_clock(ahead_ms: float) -> None:
    """The last one to start is the one that waits the least."""
    clock = {1: ahead_ms}
    index = index_of([rounds("dp", (0, 1), [[(10, 44), (40, 44)]], clock_ms=clock)])
    charges = one(index, stretch([0, 1], 50, ahead_ms=clock)).charges
    assert charges.ranks[1] >= 40 * MS
    assert charges.transfers == {"dp": 4 * MS}


@pytest.mark.parametrize("ahead_ms", [50.0, -50.0])
def test_a_pair_is_put_on_one_clock(ahead_ms: float) -> None:
    """The receiver waits from 5 on, the sender comes at 30 and its data arrive at 33."""
    clock = {1: ahead_ms}
    pair = rounds("pp", (0, 1), [[(30, 33), (5, 33)]], op="send", is_pair=True, clock_ms=clock)
    at = stretch([0, 1], 40, ahead_ms=clock)
    charges = one(index_of([pair], two_hosts(ahead_ms)), replace(at, ends_ns=at.ends_ns + np.array([0, 1]))).charges
    assert charges.transfers == {(0, 1): 3 * MS}
    assert charges.ranks[0] == pytest.approx(30 * MS)


def test_a_sender_that_is_through_at_once_does_not_shorten_the_transfer() -> None:
    pair = rounds("pp", (0, 1), [[(30, 30.1), (5, 38)]], op="send", is_pair=True)
    assert took(index_of([pair]), stretch([0, 1], 40)) == {(0, 1): 8 * MS}


def test_gradient_buckets_beside_the_work_hide_neither_own_time_nor_the_path() -> None:
    """A bucket lies from 5 to 45 beside tensor-parallel calls; rank 1 comes to them 8 ms late."""
    tensor = rounds("tp", (0, 1), [[(10, 20), (18, 20)], [(24, 34), (32, 34)]])
    bucket = rounds("dp", (0, 1), [[(5, 45), (5, 45)]])
    index = index_of([tensor, bucket])
    own = one(index, stretch([0, 1], 50))
    assert own.own_ns.tolist() == [30 * MS, 46 * MS]
    assert one(index, stretch([0, 1], 50)).charges.ranks == {0: 16 * MS, 1: 30 * MS}


def test_the_last_bucket_is_waited_for() -> None:
    """Nothing follows it but the end of the iteration."""
    tensor = rounds("tp", (0, 1), [[(10, 20), (18, 20)], [(24, 34), (32, 34)]])
    buckets = rounds("dp", (0, 1), [[(5, 36), (5, 36)], [(36, 45), (36, 45)]])
    index = index_of([tensor, buckets])
    assert one(index, stretch([0, 1], 50)).charges.transfers["dp"] == 9 * MS


def test_a_send_that_its_rank_does_not_wait_for_is_no_way_back() -> None:
    """Rank 0 computes from 2 to 30 while its send from 2 lies open until rank 1, late for itself, receives at 20."""
    pair = rounds("pp", (0, 1), [[(2, 21), (20, 21)]], op="send", is_pair=True)
    last = rounds("dp", (0, 1), [[(30, 31), (25, 31)]])
    index = index_of([pair, last])
    assert one(index, stretch([0, 1], 32)).charges.ranks == {0: 31 * MS}
    own = one(index, stretch([0, 1], 32))
    assert (own.own_ns[0], own.most_own_ns[0]) == (12 * MS, 31 * MS)


def test_a_send_that_is_waited_for_at_the_end_of_an_iteration_hides_no_own_time_before_the_last_call() -> None:
    """Rank 0 sends at 2, receives from 6 to 10 and from 20 to 22, computes in between, and waits for its send at 40."""
    sent = rounds("pp", (0, 1), [[(2, 40), (1, 3)]], op="send", is_pair=True)
    received = rounds("pp", (1, 0), [[(5, 10), (6, 10)], [(19, 22), (20, 22)]], op="send", is_pair=True)
    own = one(index_of([sent, received]), stretch([0, 1], 50))
    assert own.own_ns[0] == (6 - 0 + 20 - 10 + 50 - 40) * MS  # not from 22 on: it may have waited
    assert own.most_own_ns[0] == (50 - 4 - 2) * MS


def test_calls_without_a_start_or_an_end_say_nothing_of_waiting() -> None:
    index = index_of([rounds("dp", (0, 1), [[(10, 44), (40, 44)]], sees=Sees.LAUNCH)])
    assert not index.sees_transfers
    assert index.first_launch_ns(stretch([0, 1], 50)).tolist() == [10 * MS, 40 * MS]
    assert one(index, stretch([0, 1], 50)).n_rounds == 1


def test_lost_rows_are_counted_for_the_rank_that_lacks_them() -> None:
    index = index_of([rounds("dp", (0, 1), [[(10, 20), (15, 20)], [(30, 40), None]])])
    lost = index.lost_share(stretch([0, 1], 50))
    assert lost is not None
    assert lost.tolist() == [0.0, 0.5]
    assert index.lost_share(stretch([0, 1], 25)) is None


def test_times_that_contradict_each_other_do_not_keep_the_walk_going() -> None:
    """Each round ends on one rank before it began on the other: no order is consistent with that."""
    made = [
        rounds(f"c{i}", (0, 1), [[(40 - i, 41), (41, 40)], [(41, 40), (40 - i, 41)]], op="broadcast") for i in range(20)
    ]
    assert one(index_of(made), stretch([0, 1], 50)).charges.total_ns >= 0


@pytest.mark.parametrize("seed", range(5))
def test_own_time_is_what_the_union_of_the_calls_leaves(seed: int) -> None:
    """The array pass over all ranks agrees with merging the intervals of each rank one by one."""
    rng = np.random.default_rng(seed)
    blocks: list[Rounds] = []
    for number in range(6):
        ranks = sorted(rng.choice(9, int(rng.integers(2, 6)), replace=False).tolist())
        starts = rng.uniform(0, 90, (8, len(ranks)))
        spans = [
            [(float(s), float(s + d)) for s, d in zip(row, rng.uniform(0, 9, len(ranks)), strict=True)]
            for row in starts
        ]
        blocks.append(rounds(f"c{number}", ranks, spans, op="broadcast"))
    index = index_of(blocks)
    at = Stretch.of(
        {rank: BASE_NS + rank * MS for rank in range(9)}, {rank: BASE_NS + (70 + 3 * rank) * MS for rank in range(9)}
    )
    beside = one(index, at).own_ns
    for place, rank in enumerate(at.ranks.tolist()):
        begin, end = int(at.begins_ns[place]), int(at.ends_ns[place])
        spans = sorted(
            (max(int(s), begin), int(e))
            for block in blocks
            if rank in block.ranks
            for s, e in zip(
                block.start_ns[:, block.ranks.index(rank)], block.end_ns[:, block.ranks.index(rank)], strict=True
            )
            if begin < e <= end
        )
        free, until = end - begin, begin
        for entered, left in spans:
            free -= max(left - max(entered, until), 0)
            until = max(until, left)
        assert beside[place] >= free  # what runs beside the work does not count
        if not index._is_beside[index._rank == rank].any():
            assert beside[place] == free


@pytest.mark.parametrize("seed", tries(12))
def test_iterations_are_the_same_whether_they_are_measured_one_by_one_or_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks: list[Rounds] = []
    for number, ranks in enumerate(([0, 1, 2], [1, 2], [0, 2])):
        starts = np.sort(rng.uniform(0, 90, (12, len(ranks))), axis=0)
        spans = [[(float(s), float(s) + 4) for s in row] for row in starts]
        blocks.append(rounds(f"c{number}", ranks, spans, op=("broadcast", "all_reduce")[number % 2]))
    index = index_of(blocks, (None, two_hosts(5.0))[seed % 2])
    ends_ns = BASE_NS + np.sort(rng.integers(0, 95 * MS, (6, 3)), axis=0)
    order = rng.permutation(3).tolist()
    stretches = Stretch.following(order, [ends_ns[i][order].tolist() for i in range(6)])
    assert [(at.ranks.tolist(), at.ends_ns.tolist()) for at in stretches] == [
        ([0, 1, 2], ends_ns[i].tolist()) for i in range(1, 6)
    ]
    measured = index.measured(stretches)
    assert [told(at, measured) for at in range(5)] == [told(0, index.measured([at])) for at in stretches]
    assert sum(measured.n_rounds) > 0


def told(at: int, measured: Measured) -> list[object]:
    """All of one of the iterations, exactly, and in the order in which it is told."""
    charges = measured.charges[at]
    columns = (measured.own_ns, measured.most_own_ns, measured.transfers_ns)
    return [
        [column[at].tolist() for column in columns],
        (measured.n_rounds[at], measured.size_bytes[at]),
        (list(charges.ranks.items()), list(charges.transfers.items())),
    ]


def all_of(index: RoundIndex, at: Stretch) -> list[str]:
    """Everything that is asked of an index, exactly, and in the order in which it is told."""
    return [
        str(index.keys),
        str(index.sees_transfers),
        str(told(0, index.measured([at]))),
        str(index.lost_share(at)),
        str(index.first_launch_ns(at).tolist()),
    ]


@pytest.mark.parametrize("seed", tries(12))
def test_digests_of_pairs_say_what_they_say_as_rounds_of_each_pair(seed: int) -> None:
    """Beside collectives of two and more ranks and single pairs, in any place, seen in part or on other clocks."""
    rng = np.random.default_rng(seed)
    blocks: list[Rounds | PairRounds] = []
    for number in range(3):
        sees = (Sees.ALL, Sees.ALL, Sees.LAUNCH | Sees.END)[int(rng.integers(3))]
        drawn = {"base_ns": BASE_NS, "within_ns": 90 * MS, "n_ranks": 4, "sees": sees}
        blocks.append(drawn_pairs(rng, int(rng.integers(0, 40)), **drawn))  # type: ignore[arg-type]
        blocks += list(drawn_pairs(rng, 3, **drawn).by_pair())  # type: ignore[arg-type]
        width = int(rng.integers(2, 5))
        starts = rng.uniform(0, 90, (4, width))
        spans = [[(float(s), float(s) + 4) for s in row] for row in starts]
        blocks.append(rounds(f"c{number}", range(width), spans, op="broadcast"))
    blocks = [blocks[at] for at in rng.permutation(len(blocks)).tolist()]
    apart = [one for some in blocks for one in ([some] if isinstance(some, Rounds) else some.by_pair())]
    offsets = (None, two_hosts(5.0))[seed % 2]
    at = Stretch.of(
        {rank: BASE_NS + rank * MS for rank in range(4)}, {rank: BASE_NS + (80 + 3 * rank) * MS for rank in range(4)}
    )
    found, wanted = index_of(blocks, offsets), index_of(apart, offsets)
    assert all_of(found, at) == all_of(wanted, at)
    assert one(found, at).n_rounds > 0


@pytest.mark.parametrize("seed", tries(12))
def test_an_iteration_is_the_same_without_the_rounds_that_were_over_before_it(seed: int) -> None:
    """However they came: collectives, single pairs and digests of pairs, cut into parts at any block."""
    rng = np.random.default_rng(seed)
    blocks: list[Rounds | PairRounds] = []
    for number in range(4):
        drawn = {"base_ns": BASE_NS, "within_ns": 90 * MS, "n_ranks": 4}
        blocks += [drawn_pairs(rng, int(rng.integers(0, 40)), **drawn), *drawn_pairs(rng, 3, **drawn).by_pair()]  # type: ignore[arg-type]
        starts = np.sort(rng.uniform(0, 90, (12, 4)), axis=0)
        spans = [[(float(s), float(s) + 4) for s in row] for row in starts]
        blocks.append(rounds(f"c{number}", range(4), spans, op=("broadcast", "all_reduce")[number % 2]))
    blocks = [blocks[at] for at in rng.permutation(len(blocks)).tolist()]
    begins_ms = {rank: 40.0 + rank for rank in range(4)}
    at = Stretch.of(
        {rank: BASE_NS + round(ms * MS) for rank, ms in begins_ms.items()},
        dict.fromkeys(range(4), BASE_NS + 85 * MS),
    )
    cut = int(rng.integers(len(blocks)))
    parts = [RoundColumns.of(some) for some in (blocks[:cut], blocks[cut:])]
    whole, left = RoundColumns.of(blocks), RoundColumns.together(parts).after(int(at.begins_ns.min()))
    assert 0 < len(left) < len(whole)
    found, wanted = RoundIndex(left), RoundIndex(whole)
    assert took(found, at) == took(wanted, at)
    assert one(found, at).n_rounds == one(wanted, at).n_rounds
    assert one(found, at).own_ns.tolist() == one(wanted, at).own_ns.tolist()
    assert one(found, at).most_own_ns.tolist() == one(wanted, at).most_own_ns.tolist()
    assert one(found, at).charges == one(wanted, at).charges


def took(index: RoundIndex, at: Stretch) -> dict[TransferKey, float]:
    """By communicator or pair, the time of its transfers, where it had some."""
    return {key: ns for key, ns in zip(index.keys, index.measured([at]).transfers_ns[0].tolist(), strict=True) if ns}
