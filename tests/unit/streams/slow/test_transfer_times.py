"""The book of transfer times: who is a peer of whom, and how much is kept."""

import pickle

import numpy as np

from pacehound.model.calls import OP_CODE, Sees
from pacehound.model.rounds import Rounds
from streams.slow.transfer_times import MAX_KINDS, MIN_ROUNDS, TransferTracker

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
    return Rounds(
        job="j",
        attempt=0,
        communicator=name,
        source="s",
        sees=sees,
        ranks=tuple(ranks),
        seq=np.arange(n),
        op=np.full(n, OP_CODE[op], np.int8),
        size_bytes=np.broadcast_to(np.asarray(size_bytes, np.int64), (n,)).copy(),
        arrival_ns=start,
        start_ns=start,
        end_ns=end,
    )


def test_a_slow_communicator_is_found_however_far_its_clocks_are_apart():
    book = TransferTracker()
    for i, (transfer, offset) in enumerate([(5.0, 0), (5.0, 50), (7.0, -50), (5.1, 0)]):
        book.add(rounds(f"dp{i}", (i, i + 4), [transfer] * 12, offset_ms=offset))
    (outlier,) = book.outliers("j", 0, 9)
    assert (outlier.communicator, outlier.peers, outlier.time_ns) == ("dp2", 3, 9)
    assert (round(outlier.transfer_s, 6), round(outlier.median_s, 6)) == (0.007, 0.005)


def test_groups_of_another_shape_size_or_operation_are_no_peers():
    book = TransferTracker()
    for i in range(2):
        book.add(rounds(f"tp{i}", (2 * i, 2 * i + 1), [1.0] * 12))
        book.add(rounds(f"dp{i}", (i, i + 2), [9.0] * 12))
        book.add(rounds(f"dp{i}", (i, i + 2), [20.0] * 12, op="all_gather"))
    book.add(rounds("dp0", (0, 2), [90.0] * 12, size_bytes=1 << 20))
    assert book.outliers("j", 0, 1) == []


def test_rounds_without_starts_or_ends_say_nothing():
    book = TransferTracker()
    for i, transfer in enumerate([1.0, 9.0]):
        book.add(rounds(f"g{i}", (i, i + 2), [transfer] * 50, sees=Sees.LAUNCH))
        book.add(rounds(f"g{i}", (i, i + 2), []))
    assert book.outliers("j", 0, 1) == []


def test_sizes_that_never_recur_fill_no_memory_and_push_out_none_that_do():
    book = TransferTracker()
    size = 0
    for _ in range(300):
        for i, transfer in enumerate([5.0, 8.0]):
            sizes = 10_000 + np.arange(size, size + 40)
            book.add(rounds(f"g{i}", (i, i + 2), [1.0] * 40, size_bytes=sizes))
            book.add(rounds(f"g{i}", (i, i + 2), [transfer]))
        size += 40
    assert [o.communicator for o in book.outliers("j", 0, 1)] == ["g1"]
    assert all(len(kinds) <= MAX_KINDS for kinds in book._recent.values())
    assert len(pickle.dumps(book)) < 20_000


def test_a_change_of_sizes_is_followed_when_all_kinds_are_taken():
    book = TransferTracker()
    for i in range(2):
        for size in range(MAX_KINDS):
            book.add(rounds(f"g{i}", (i, i + 2), [1.0] * MIN_ROUNDS, size_bytes=size))
        book.add(rounds(f"g{i}", (i, i + 2), [1.0 + i] * 30, size_bytes=1 << 20))
    assert [o.communicator for o in book.outliers("j", 0, 1)] == ["g1"]
