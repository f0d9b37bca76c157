"""The tracker of transfer times: who is a peer of whom, and how much is kept."""

import pickle

import numpy as np

from pacehound.model.calls import Sees
from streams.rounds.round_table import RoundTable
from streams.slow.thresholds import TYPICAL_ROUNDS
from streams.slow.transfer_times import MAX_KINDS, TransferTracker
from tests.fakes.hand_made_rounds import rounds_at

MS = 10**6


def rounds(name, ranks, transfers_ms, size_bytes=1024, op="all_reduce", sees=Sees.ALL, late_ms=3.0, offset_ms=0.0):
    """Rounds of given transfer times; the last rank starts late and its clock may be ahead."""
    n = len(transfers_ms)
    start = np.arange(1, n + 1)[:, None] * 1000 * MS + np.zeros((n, len(ranks)), np.int64)
    start[:, -1] += round(late_ms * MS)
    end = start.max(axis=1, keepdims=True) + np.round(np.asarray(transfers_ms) * MS).astype(np.int64)[:, None]
    end = np.repeat(end, len(ranks), axis=1)
    for times in (start, end):
        times[:, -1] += round(offset_ms * MS)
    return rounds_at(name, ranks, start, end, op=op, size_bytes=size_bytes, sees=sees)


def test_a_slow_communicator_is_found_however_far_its_clocks_are_apart():
    tracker = TransferTracker()
    for i, (transfer, offset) in enumerate([(5.0, 0), (5.0, 50), (7.0, -50), (5.1, 0)]):
        tracker.add(RoundTable([rounds(f"dp{i}", (i, i + 4), [transfer] * 12, offset_ms=offset)]))
    (outlier,) = tracker.outliers("j", 0, 9)
    assert (outlier.communicator, outlier.peers, outlier.time_ns) == ("dp2", 3, 9)
    assert (round(outlier.transfer_s, 6), round(outlier.median_s, 6)) == (0.007, 0.005)


def test_groups_of_another_shape_size_or_operation_are_no_peers():
    tracker = TransferTracker()
    for i in range(2):
        tracker.add(RoundTable([rounds(f"tp{i}", (2 * i, 2 * i + 1), [1.0] * 12)]))
        tracker.add(RoundTable([rounds(f"dp{i}", (i, i + 2), [9.0] * 12)]))
        tracker.add(RoundTable([rounds(f"dp{i}", (i, i + 2), [20.0] * 12, op="all_gather")]))
    tracker.add(RoundTable([rounds("dp0", (0, 2), [90.0] * 12, size_bytes=1 << 20)]))
    assert tracker.outliers("j", 0, 1) == []


def test_rounds_without_starts_or_ends_say_nothing():
    tracker = TransferTracker()
    for i, transfer in enumerate([1.0, 9.0]):
        tracker.add(RoundTable([rounds(f"g{i}", (i, i + 2), [transfer] * 50, sees=Sees.LAUNCH)]))
        tracker.add(RoundTable([rounds(f"g{i}", (i, i + 2), [])]))
    assert tracker.outliers("j", 0, 1) == []


def test_sizes_that_never_recur_fill_no_memory_and_push_out_none_that_do():
    tracker = TransferTracker()
    size = 0
    for _ in range(50):
        for i, transfer in enumerate([5.0, 8.0]):
            sizes = 10_000 + np.arange(size, size + 40)
            tracker.add(RoundTable([rounds(f"g{i}", (i, i + 2), [1.0] * 40, size_bytes=sizes)]))
            tracker.add(RoundTable([rounds(f"g{i}", (i, i + 2), [transfer])]))
        size += 40
    assert [o.communicator for o in tracker.outliers("j", 0, 1)] == ["g1"]
    assert all(len(kinds) <= MAX_KINDS for kinds in tracker._recent.values())
    assert len(pickle.dumps(tracker)) < 20_000


def test_a_change_of_sizes_is_followed_when_all_kinds_are_taken():
    tracker = TransferTracker()
    for i in range(2):
        for size in range(MAX_KINDS):
            tracker.add(RoundTable([rounds(f"g{i}", (i, i + 2), [1.0] * TYPICAL_ROUNDS, size_bytes=size)]))
        tracker.add(RoundTable([rounds(f"g{i}", (i, i + 2), [1.0 + i] * 30, size_bytes=1 << 20)]))
    assert [o.communicator for o in tracker.outliers("j", 0, 1)] == ["g1"]
