"""Calls of which the size may differ: where it usually does not, one that differs and does not end is a mismatch."""

from __future__ import annotations

import numpy as np
import pytest

from pacehound.model.codes import OPS
from pacehound.model.events import CallSignature, OpenCall, Progress, RankProgress, SignatureMismatch
from streams.rounds.assembly import ClosedRounds, RoundGrid
from streams.rounds.mismatches import OPEN_FOR_NS, UNEVEN_FOR_NS, MismatchWatch
from streams.rounds.signatures import packed
from tests.fakes.events import topology

MEMBERS = (0, 1, 2)
SECOND_NS = 1_000_000_000


def closed(*counts: int, ends_ns: tuple[int, ...] = (9, 9, 9), op: str = "all_gather", seq: int = 4) -> ClosedRounds:
    """One round of three ranks."""
    signatures = [packed(CallSignature(op, count, "float32")) for count in counts]
    return ClosedRounds(
        seq=np.array([seq]),
        op=np.array([OPS.index(op)], np.int8),
        size_bytes=np.array([32]),
        arrival_ns=np.full((1, 3), 5),
        start_ns=np.full((1, 3), 5),
        end_ns=np.array([ends_ns]),
        signature=np.array([signatures]),
        is_uniform=len(set(signatures)) == 1,
    )


@pytest.fixture
def watch() -> MismatchWatch:
    return MismatchWatch(topology(members=MEMBERS))


def who(found: list[SignatureMismatch]) -> list[tuple[int, ...]]:
    """The counts that ranks called with, of each mismatch."""
    return [tuple(signature.count for _, signature in one.called) for one in found]


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_sizes_that_differ_in_a_round_that_has_not_ended_are_a_mismatch(watch: MismatchWatch, op: str) -> None:
    assert watch.in_closed(closed(8, 8, 8, op=op, seq=3), sees_ends=True) == []
    assert who(watch.in_closed(closed(8, 8, 16, ends_ns=(9, 0, 9), op=op), sees_ends=True)) == [(8, 8, 16)]


def test_where_such_a_round_has_ended_sizes_are_meant_to_differ(watch: MismatchWatch) -> None:
    assert watch.in_closed(closed(8, 8, 16, seq=3), sees_ends=True) == []
    assert watch.in_closed(closed(8, 4, 8, ends_ns=(9, 0, 0)), sees_ends=True) == []
    of_another = closed(8, 4, 8, ends_ns=(9, 0, 0), op="reduce_scatter", seq=5)
    assert who(watch.in_closed(of_another, sees_ends=True)) == [(8, 4, 8)]


def test_where_no_end_is_seen_nothing_follows_from_sizes(watch: MismatchWatch) -> None:
    assert watch.in_closed(closed(8, 8, 16, ends_ns=(0, 0, 0)), sees_ends=False) == []
    assert who(watch.in_closed(closed(8, 8, 16, ends_ns=(0, 0, 0), op="all_reduce"), sees_ends=False)) == [(8, 8, 16)]


@pytest.mark.parametrize(("op", "open_for_ns"), [("all_reduce", OPEN_FOR_NS), ("all_gather", UNEVEN_FOR_NS)])
def test_open_calls_of_different_sizes_are_one_after_a_while(watch: MismatchWatch, op: str, open_for_ns: int) -> None:
    def open_since(now_ns: int) -> Progress:
        ranks = tuple(
            RankProgress(
                rank=rank,
                last_launched=4,
                last_completed=3,
                open=(OpenCall(seq=4, op=op, count=8 << (rank == 1), dtype="float32", launch_ns=SECOND_NS),),
            )
            for rank in MEMBERS
        )
        return Progress(job="j", attempt=0, time_ns=now_ns, host="h", communicator="c", ranks=ranks)

    grid = RoundGrid(len(MEMBERS))
    assert watch.in_open(open_since(SECOND_NS + open_for_ns - 1), grid, sees_ends=True) == []
    assert who(watch.in_open(open_since(SECOND_NS + open_for_ns), grid, sees_ends=True)) == [(8, 16, 8)]
