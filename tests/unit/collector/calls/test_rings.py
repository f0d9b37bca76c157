"""The ring reader gives each record once, in order, and refuses what is no ring."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.calls import rings
from collector.calls.rings import CALL, RingReader, UnreadableRing
from tests.fakes.examples import examples
from tests.fakes.ring_file import RingFile, header_bytes


def seqs(records: rings.Records) -> list[int]:
    return [int(seq) for seq in records.view(CALL)["seq"]]


def test_each_record_is_read_once_and_in_order(tmp_path: Path) -> None:
    ring = RingFile(tmp_path, capacity=8)
    reader = RingReader(ring.path)
    assert reader.read().records.size == 0
    for seq in range(5):
        ring.launch(seq, launch_ns=seq + 1)
    first = reader.read()
    assert (seqs(first.records), first.lost) == ([0, 1, 2, 3, 4], 0)
    assert reader.read().records.size == 0
    for seq in range(5, 11):
        ring.launch(seq, launch_ns=seq + 1)
    second = reader.read()
    assert (seqs(second.records), second.lost) == ([5, 6, 7, 8, 9, 10], 0)
    assert second.records.view(CALL)["launch_ns"].tolist() == [6, 7, 8, 9, 10, 11]


def test_records_that_were_overwritten_are_counted(tmp_path: Path) -> None:
    ring = RingFile(tmp_path, capacity=8)
    reader = RingReader(ring.path)
    for seq in range(21):
        ring.launch(seq, launch_ns=1)
    read = reader.read()
    assert (seqs(read.records), read.lost) == (list(range(13, 21)), 13)
    assert reader.position == 21


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("before", [0, 3, 8, 13])
def test_a_ring_whose_writer_died_at_any_step_is_read_to_the_end(tmp_path: Path, steps: int, before: int) -> None:
    ring = RingFile(tmp_path, capacity=8)
    for seq in range(before):
        ring.launch(seq, launch_ns=1)
    ring.call(rings.LAUNCH, before, launch_ns=1, steps=steps)
    reader = RingReader(ring.path)
    records, lost = [], 0
    for _ in range(4):
        read = reader.read()
        records += seqs(read.records)
        lost += read.lost
    # Steps 1 and 2 have already destroyed the oldest record of a full ring; step 3 has completed a new one.
    newest = before + (1 if steps == 3 else 0)
    oldest = max(0, before + (1 if steps else 0) - 8)
    assert records == list(range(oldest, newest))
    assert lost == oldest


def test_a_whole_record_that_is_not_counted_yet_is_read_once(tmp_path: Path) -> None:
    ring = RingFile(tmp_path, capacity=8)
    reader = RingReader(ring.path)
    ring.call(rings.LAUNCH, 0, launch_ns=1, steps=3)
    assert seqs(reader.read().records) == [0]
    for _ in range(3):
        assert reader.read().records.size == 0
    ring.launch(0, launch_ns=1)  # the writer goes on: it writes record 0 again as the same bytes, then counts it
    ring.launch(1, launch_ns=1)
    assert seqs(reader.read().records) == [1]


def test_a_record_that_never_gets_its_stamp_is_skipped_and_counted(tmp_path: Path) -> None:
    ring = RingFile(tmp_path, capacity=8)
    reader = RingReader(ring.path)
    ring.launch(0, launch_ns=1)
    ring.call(rings.LAUNCH, 1, launch_ns=1, steps=2)
    ring.written = 2
    ring.launch(2, launch_ns=1)
    assert seqs(reader.read().records) == [0]
    read = reader.read()
    assert (seqs(read.records), read.lost) == ([2], 1)


def test_a_record_that_is_overwritten_while_it_is_copied_is_lost_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = RingFile(tmp_path, capacity=4)
    reader = RingReader(ring.path)
    for seq in range(4):
        ring.launch(seq, launch_ns=1)
    copy = reader._copy

    def slow_copy(first: int, count: int) -> rings.Records:
        monkeypatch.undo()
        slots = copy(first, count)
        ring.launch(4, launch_ns=1)  # the writer comes round: what was copied of record 0 may be of record 4 already
        slots.view(CALL)["seq"][0] = 999
        return slots

    monkeypatch.setattr(reader, "_copy", slow_copy)
    read = reader.read()
    assert (seqs(read.records), read.lost) == ([1, 2, 3], 1)
    assert seqs(reader.read().records) == [4]


@examples(25)
@given(plan=st.lists(st.integers(0, 12), min_size=1, max_size=12), capacity=st.sampled_from([1, 2, 8]))
def test_any_rhythm_of_writing_and_reading_loses_only_what_it_counts(
    tmp_path_factory: pytest.TempPathFactory, plan: list[int], capacity: int
) -> None:
    ring = RingFile(tmp_path_factory.mktemp("rings"), capacity=capacity)
    reader = RingReader(ring.path)
    seen: list[int] = []
    for burst in plan:
        for _ in range(burst):
            ring.launch(ring.written, launch_ns=1)
        read = reader.read()
        expected = list(range(max(reader.position - len(read.records), 0), reader.position))
        assert seqs(read.records) == expected
        seen += seqs(read.records)
        assert read.lost == max(0, burst - capacity)
    assert seen == sorted(set(seen))
    assert reader.position == ring.written
    reader.close()
    ring.close_file()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "too few"),
        (b"\x7fELF" * 2000, "no ring"),
        (header_bytes(capacity=8), "too few for 8 records"),
        (header_bytes(capacity=8, version=9) + bytes(1024), "version 9"),
        (header_bytes(capacity=7) + bytes(1024), "power of two"),
        (header_bytes(capacity=8, pid=0) + bytes(1024), "pid 0"),
        (header_bytes(capacity=8)[:60], "too few"),
    ],
)
def test_a_file_that_is_no_ring_is_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "foreign.ring"
    path.write_bytes(content)
    with pytest.raises(UnreadableRing, match=reason):
        RingReader(path)


def test_a_ring_that_is_cut_short_while_open_is_refused_not_fatal(tmp_path: Path) -> None:
    ring = RingFile(tmp_path, capacity=64)
    reader = RingReader(ring.path)
    for seq in range(40):
        ring.launch(seq, launch_ns=1)
    os.truncate(ring.path, 4096 + 10 * 128)
    with pytest.raises(UnreadableRing, match="cut short"):
        reader.read()


@pytest.mark.parametrize(
    ("count", "said"),
    [(1 << 40, "none of the last 8"), (1 << 60, "records are written"), ((1 << 63) + 3, "records are written")],
    ids=["more", "more than a thread writes", "so many that the stamps begin anew"],
)
def test_a_counter_that_contradicts_the_stamps_is_refused(tmp_path: Path, count: int, said: str) -> None:
    """Where stamps overflow it was believed: 2^63 records were lost, and with two such rings no state was saved."""
    ring = RingFile(tmp_path, capacity=8)
    ring.launch(0, launch_ns=1)
    reader = RingReader(ring.path)
    assert seqs(reader.read().records) == [0]
    with ring.path.open("r+b") as file:
        os.pwrite(file.fileno(), count.to_bytes(8, "little"), 128)
    assert reader.read().records.size == 0
    with pytest.raises(UnreadableRing, match=said):
        reader.read()


@examples(32)
@given(content=st.binary(max_size=6000), offset=st.integers(0, 4096 + 8 * 128))
def test_any_bytes_over_a_ring_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, offset: int
) -> None:
    ring = RingFile(tmp_path_factory.mktemp("rings"), capacity=8)
    for seq in range(11):
        ring.launch(seq, launch_ns=1)
    with ring.path.open("r+b") as file:
        os.pwrite(file.fileno(), content, offset)
    ring.close_file()
    try:
        reader = RingReader(ring.path)
        for _ in range(3):
            reader.read()
        reader.close()
    except UnreadableRing:
        pass
