"""One rank represents its host in small calls: nobody's calls, their order or the time in them change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.calls import representative_rank as module
from collector.calls import rings
from collector.calls import rows as call_rows
from collector.calls.communicators import BACKENDS, Communicator
from collector.calls.representative_rank import MAX_SPREAD_NS, MIN_SAVED_ROWS, SMALL_BYTES, choose_representatives
from collector.calls.rings import CALL, Records
from pacehound.clock import ClockPair
from pacehound.model import codec
from pacehound.model.calls import DTYPE_CODE, OP_CODE, SOURCES, CallBatch
from tests.fakes.examples import examples

LATER_NS = 1 << 60
INSTANTS = ("launch_ns", "start_ns", "end_ns")


def communicator(n_here: int, *, n_members: int = 0, backend: str = "gloo", number: int = 0) -> Communicator:
    return Communicator(
        handle=bytes([number]) * 16,
        attempt=0,
        name="",
        is_world=False,
        members=tuple(range(max(n_members, n_here))),
        world_size=max(n_members, n_here),
        generation=0,
        backend=BACKENDS.index(backend),
        timeout_ms=0,
        created_ns=1,
        host_ranks=list(range(n_here)),
    )


def rounds(
    n_rounds: int,
    n_ranks: int,
    *,
    seed: int = 0,
    jitter_ns: int = 100_000,
    every_ns: int = 1_000_000,
    end_jitter_ns: int = 2_000,
) -> Records:
    """Small all_reduces that all enter within the jitter, and leave within another once the last has entered."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(n_rounds * n_ranks, CALL)
    rows["seq"], rows["rank"] = np.repeat(np.arange(n_rounds), n_ranks), np.tile(np.arange(n_ranks), n_rounds)
    rows["op"], rows["dtype"], rows["count"] = OP_CODE["all_reduce"], DTYPE_CODE["float32"], 16
    rows["source"], rows["peer"], rows["send_count"], rows["recv_count"] = SOURCES.index("c10d"), -1, -1, -1
    launch_ns = every_ns * (1 + rows["seq"]) + rng.integers(0, max(jitter_ns, 1), len(rows))
    last_ns = launch_ns.reshape(n_rounds, n_ranks).max(axis=1)
    rows["launch_ns"] = rows["start_ns"] = launch_ns
    rows["end_ns"] = np.repeat(last_ns, n_ranks) + 5_000 + rng.integers(0, end_jitter_ns, len(rows))
    return rows


def arrived(
    rows: Records, known: list[Communicator], numbers: np.ndarray | None = None, before_ns: int = LATER_NS
) -> tuple[list[CallBatch], int]:
    """The batches at the other end, and how many rows were sent."""
    numbers = np.zeros(len(rows), np.int64) if numbers is None else numbers
    chosen = choose_representatives(rows, numbers, known, before_ns)
    clock = ClockPair(monotonic_ns=0, unix_ns=0)
    sent = list(call_rows.batches(rows, numbers, known, job="j", host="h", clock=clock, representatives=chosen))
    read = [event for batch in sent for event in codec.decode(codec.encode(batch)) if isinstance(event, CallBatch)]
    return read, sum(map(len, sent))


def by_call(batches: list[CallBatch]) -> dict[tuple[Any, ...], tuple[int, ...]]:
    names = ("communicator", "rank", "seq", "op", "count", "dtype", "direction", "peer")
    rows = [row for batch in batches for row in batch.rows.to_pylist()]
    return {tuple(row[name] for name in names): tuple(row[name] for name in INSTANTS) for row in rows}


def plain(rows: Records, known: list[Communicator], numbers: np.ndarray | None = None) -> dict[Any, tuple[int, ...]]:
    """What is sent by an agent without representatives."""
    numbers = np.zeros(len(rows), np.int64) if numbers is None else numbers
    clock = ClockPair(monotonic_ns=0, unix_ns=0)
    return by_call(list(call_rows.batches(rows, numbers, known, job="j", host="h", clock=clock)))


def test_one_row_of_eight_is_sent_where_all_ranks_do_the_same():
    rows, known = rounds(300, 8), [communicator(8)]
    read, n_sent = arrived(rows, known)
    assert n_sent == 300
    assert by_call(read).keys() == plain(rows, known).keys()
    assert all(0 < batch.within_ns <= MAX_SPREAD_NS for batch in read)


@examples(8, deep=1_250)
@given(data=st.data())
def test_calls_sums_and_order_are_what_they_were_whatever_the_ranks_do(data):
    """Several communicators whose calls lie close together, late ranks, ranks of other hosts."""
    n_ranks = data.draw(st.integers(2, 5))
    parts, numbers, known = [], [], []
    for number in range(data.draw(st.integers(1, 3))):
        part = rounds(
            data.draw(st.integers(1, 60)),
            n_ranks,
            seed=data.draw(st.integers(0, 1_000)),
            jitter_ns=data.draw(st.sampled_from([0, 10_000, 300_000, 2_000_000])),
            every_ns=data.draw(st.sampled_from([30_000, 250_000, 1_000_000])),
            end_jitter_ns=data.draw(st.sampled_from([2_000, MAX_SPREAD_NS])),
        )
        late = data.draw(st.integers(0, n_ranks - 1))
        by_ns = data.draw(st.sampled_from([0, 50_000, 400_000, 900_000]))
        for name in INSTANTS:
            part[name][part["rank"] == late] += np.uint64(by_ns)
        lost = data.draw(st.sampled_from([0.0, 0.1]))
        part = part[np.random.default_rng(number).random(len(part)) >= lost]
        parts.append(part)
        numbers.append(np.full(len(part), number))
        known.append(communicator(n_ranks, n_members=n_ranks + 3 * number, number=number + 1))
    rows, of_rows = np.concatenate(parts), np.concatenate(numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIN_SAVED_ROWS", 1)
        read, _ = arrived(rows, known, of_rows)
    truth, found = plain(rows, known, of_rows), by_call(read)
    assert found.keys() == truth.keys()
    within_ns = max((batch.within_ns for batch in read), default=0)
    calls = sorted(truth)
    true_ns = np.array([truth[call] for call in calls])
    said_ns = np.array([found[call] for call in calls])
    assert np.abs(true_ns - said_ns).max() <= within_ns <= MAX_SPREAD_NS
    assert (np.diff(said_ns, axis=1) >= 0).all()
    lines = [call[:2] for call in calls]
    for line in set(lines):
        mine = [at for at, known_line in enumerate(lines) if known_line == line]
        assert np.abs((said_ns - true_ns)[mine].sum(axis=0)).max() <= len(mine)  # each average is rounded
    for rank in range(n_ranks):
        mine = [at for at, call in enumerate(calls) if call[1] == rank]
        for instant in range(3):
            order = np.argsort(true_ns[mine, instant], kind="stable")
            assert (
                np.diff(said_ns[mine, instant][order]) >= np.minimum(np.diff(true_ns[mine, instant][order]), 1)
            ).all()


def test_no_time_is_off_by_more_than_ranks_that_are_represented_may_be_apart():
    """Rank 0 mostly ends 0.4 ms before the other, and now and then 0.4 ms after it: far from its average."""
    rows = rounds(400, 2, jitter_ns=0, every_ns=2_000_000)
    launch_ns = rows["launch_ns"].reshape(400, 2)
    launch_ns[:, 1] += np.uint64(1_000)
    rows["start_ns"] = rows["launch_ns"]
    ends_ns = rows["end_ns"].reshape(400, 2)
    ends_ns[:, 1] = launch_ns[:, 1] + np.uint64(500_000)
    is_late = np.arange(400) % 10 == 0
    ends_ns[:, 0] = np.where(is_late, ends_ns[:, 1] + np.uint64(400_000), ends_ns[:, 1] - np.uint64(400_000))
    assert exact_rounds(rows, [communicator(2)]) == set(np.flatnonzero(is_late).tolist())


def exact_rounds(rows: Records, known: list[Communicator], before_ns: int = LATER_NS) -> set[int]:
    """Rounds of which every rank has a row."""
    chosen = choose_representatives(rows, np.zeros(len(rows), np.int64), known, before_ns)
    return set(rows["seq"].tolist()) - set(rows["seq"][chosen.is_represented].tolist())


def changed(rows: Records, seq: int, rank: int, **fields: int) -> Records:
    rows = rows.copy()
    at = np.flatnonzero((rows["seq"] == seq) & (rows["rank"] == rank))
    for name, value in fields.items():
        rows[name][at] = value
    return rows


@pytest.mark.parametrize(
    "fields",
    [
        {"count": SMALL_BYTES},
        {"count": 17},
        {"op": OP_CODE["all_gather"]},
        {"peer": 1},
        {"flags": rings.CAPTURED},
        {"flags": rings.FAILED},
        {"send_count": 3},
        {"launch_ns": 1_000_000 * 151 - 600_000},
        {"end_ns": 0, "start_ns": 0},
    ],
    ids=[
        "larger",
        "another size",
        "another call",
        "another root",
        "captured",
        "failed",
        "counted",
        "waits",
        "given up",
    ],
)
def test_a_round_in_which_one_rank_differs_is_sent_by_all_ranks(fields):
    rows, known = rounds(300, 4), [communicator(4)]
    assert exact_rounds(rows, known) == set()
    assert exact_rounds(changed(rows, 150, 2, **fields), known) == {150}


def test_large_messages_and_pairs_are_sent_by_all_ranks():
    rows, known = rounds(300, 4), [communicator(4)]
    large, pairs = rows.copy(), rows.copy()
    large["count"] = SMALL_BYTES // 4 + 1
    pairs["direction"], pairs["peer"] = 1, 0
    assert exact_rounds(large, known) == exact_rounds(pairs, known) == set(range(300))


def test_a_round_that_lacks_a_rank_of_this_host_is_sent_by_all_ranks_and_ranks_of_others_are_not_waited_for():
    rows = rounds(300, 4)
    kept = rows[(rows["seq"] != 150) | (rows["rank"] != 2)]
    assert exact_rounds(kept, [communicator(4, n_members=16)]) == {150}


def test_what_was_launched_after_a_call_that_is_still_open_is_sent_by_all_ranks():
    rows, known = rounds(300, 4), [communicator(4)]
    before_ns = int(rows["launch_ns"][rows["seq"] == 150].min())
    assert exact_rounds(rows, known, before_ns) == set(range(150, 300))


def test_where_few_rows_are_saved_none_is():
    n_rounds = MIN_SAVED_ROWS // 3
    assert exact_rounds(rounds(n_rounds, 4), [communicator(4)]) == set(range(n_rounds))


def test_a_source_that_sees_launches_alone_has_representatives_too():
    rows, known = rounds(300, 4), [communicator(4, backend="nccl")]
    rows["start_ns"] = rows["end_ns"] = 0
    read, n_sent = arrived(rows, known)
    assert n_sent == 300
    assert {times[1:] for times in by_call(read).values()} == {(0, 0)}


def test_the_rank_that_came_last_is_the_representative():
    """The transfer begins when it does, and the others have waited for it."""
    rows = rounds(300, 4)
    chosen = choose_representatives(rows, np.zeros(len(rows), np.int64), [communicator(4)], LATER_NS)
    starts = rows["start_ns"].reshape(300, 4)
    assert (rows["rank"][chosen.is_representative] == starts.argmax(axis=1)).all()
