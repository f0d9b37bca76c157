"""Probing frames: what two copies of one say, what they cannot say, and how counts become rates."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.calls import frames
from collector.calls.frame_set import FrameSet
from collector.calls.frames import FrameLook, FrameReader, Moved, Operation, UnreadableFrame, parse
from collector.calls.transfer_rates import WINDOW_NS, TransferSampler
from tests.fakes.frame_file import TOTAL, block, frame_bytes, write_frame
from tests.fakes.ring_file import HANDLE

COMMUNICATOR = int.from_bytes(HANDLE[:8], "little")
NONE = (-1, -1)


def test_a_running_operation_is_named_with_its_counts() -> None:
    copy = frame_bytes(block(7, {0: (3, 2), 4: (0, -1)}), block(9, {}, peer=5, direction=2), rank=3, unkept=1)
    look = parse(copy, copy)
    assert (look.rank, look.is_measured, look.begun, look.unkept) == (3, True, 3, 1)
    assert look.running == {
        Operation(COMMUNICATOR, 3, 7): Moved(
            ((3, 2), NONE, NONE, NONE, (0, -1), NONE, NONE, NONE),
            ((TOTAL, TOTAL), NONE, NONE, NONE, (TOTAL, -1), NONE, NONE, NONE),
        ),
        Operation(COMMUNICATOR, 3, 9, 5, 2): Moved((NONE,) * 8, (NONE,) * 8),
    }


def test_the_counts_are_those_that_stood_before_the_name_was_seen_again() -> None:
    before, after = (frame_bytes(block(7, {0: (sent, 0)})) for sent in (3, 4))
    assert [moved.done[0] for moved in parse(before, after).running.values()] == [(3, 0)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (block(7, {0: (3, 0)}), block(8, {0: (1, 0)})),  # the block has changed hands in between
        (block(7, {0: (3, 0)}), block(7, {0: (3, 0)}, handle=b"\x05" * 16)),
        (block(7, {0: (3, 0)}, handle=bytes(16)), block(7, {0: (3, 0)}, handle=bytes(16))),  # being filled
        (block(7, {0: (TOTAL + 1, 0)}),) * 2,  # more than was announced
        (block(7, {})[:16] + b"\xfe" * 128,) * 2,  # more than is ever announced
        (block(7, {}, peer=4),) * 2,
        (block(7, {}, direction=3),) * 2,
    ],
)
def test_a_block_that_makes_no_sense_is_left_out_and_the_others_are_not(first: bytes, second: bytes) -> None:
    good = block(1, {0: (1, 1)})
    assert list(parse(frame_bytes(first, good), frame_bytes(second, good)).running) == [Operation(COMMUNICATOR, 0, 1)]


def test_an_operation_that_has_ended_is_left_out() -> None:
    copy = frame_bytes(block(7, {0: (3, 0)}), block(8, {}), running=0b10)
    assert list(parse(copy, copy).running) == [Operation(COMMUNICATOR, 0, 8)]


WHOLE = frame_bytes(block(7, {0: (3, 0)}))


@given(first=st.binary(min_size=1184, max_size=1184), body=st.binary(max_size=1300), keep=st.integers(0, 32))
@example(first=WHOLE, body=b"\xff" * 1300, keep=32)
@example(first=WHOLE, body=b"", keep=0)
def test_whatever_stands_there_is_read_or_refused(first: bytes, body: bytes, keep: int) -> None:
    second = (WHOLE[:keep] + body)[: max(len(body), keep)]
    for one, other in ((first, second), (second, first), (second, second), (second, WHOLE), (WHOLE, second)):
        try:
            look = parse(one, other)
        except UnreadableFrame:
            continue
        assert len(look.running) <= frames.BLOCKS
        for operation, moved in look.running.items():
            assert 0 <= operation.seq < 1 << 40
            assert 0 <= operation.rank < frames.MAX_RANK
            assert len(moved.done) == len(moved.announced) == frames.CHANNELS
            for done, announced in zip(sum(moved.done, ()), sum(moved.announced, ()), strict=True):
                assert -1 <= done <= announced < frames.MAX_COUNT
        sampler = TransferSampler()
        sampler.look([look], 0)
        sampler.look([look], WINDOW_NS)
        for transfers in sampler.running.values():
            assert all(-1 <= total < frames.CHANNELS * frames.MAX_COUNT for total in transfers.totals)


@given(st.lists(st.tuples(st.integers(0, 1183), st.integers(0, 255)), max_size=20))
def test_a_damaged_frame_is_read_or_refused(damage: list[tuple[int, int]]) -> None:
    copy = bytearray(frame_bytes(*(block(n, {n: (n, n)}) for n in range(8))))
    for at, value in damage:
        copy[at] = value
    try:
        assert len(parse(bytes(copy), bytes(copy)).running) <= 8
    except UnreadableFrame:
        pass


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ({"magic": 1}, "no probing frame"),
        ({"version": 2}, "version 2; this build reads version 1"),
        ({"rank": -1}, "rank -1 and 8 channels"),
        ({"n_channels": 300}, "rank 0 and 300 channels"),
    ],
)
def test_a_foreign_frame_is_refused_with_what_is_wrong(head: dict[str, int], words: str) -> None:
    copy = frame_bytes(**head)
    with pytest.raises(UnreadableFrame, match=words):
        parse(copy, copy)


@pytest.mark.parametrize("name", ["frame.frame", "1-2.frame", "0-2-3.frame", "1-2-3-4.frame", "-1-2-3.frame"])
def test_a_name_that_says_not_whose_it_is_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(frame_bytes())
    with pytest.raises(UnreadableFrame, match="its name"):
        FrameReader(tmp_path / name)


def test_a_frame_that_is_cut_short_or_gone_is_refused_once_and_the_others_are_read(tmp_path: Path) -> None:
    kept, cut = (write_frame(tmp_path, block(7, {}), rank=rank) for rank in (0, 1))
    (tmp_path / "frames" / "folder.frame").mkdir()
    found = FrameSet(tmp_path / "frames")
    looks, refused = found.look(lambda _: 0)
    assert ([look.rank for look in looks], [file.name for file in refused]) == ([0, 1], ["folder.frame"])
    cut.write_bytes(b"short")
    looks, refused = found.look(lambda _: 0)
    assert ([look.rank for look in looks], [file.name for file in refused]) == ([0], [cut.name])
    assert "5 bytes, not 1184" in refused[0].reason
    kept.unlink()  # it is open, and says what it last said
    looks, refused = found.look(lambda _: 0)
    found.close()
    assert (len(looks), refused) == (0, [])


def test_the_frame_of_a_process_that_has_left_is_let_go(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_frame(tmp_path, rank=rank)
    found = FrameSet(tmp_path / "frames")
    found.look(lambda _: 0)
    found.retire({(101, 1000)})
    assert [look.rank for look in found.look(lambda _: 0)[0]] == [0]
    found.close()


def test_operations_of_a_process_that_counts_otherwise_have_the_communicators_of_its_attempt(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_frame(tmp_path, block(7, {0: (1, 2)}), rank=rank)
    found = FrameSet(tmp_path / "frames")
    own, other = (list(look.running) for look in found.look(lambda process: 5 if process == (101, 1000) else 0)[0])
    assert [operation.communicator ^ 5 for operation in other] == [operation.communicator for operation in own]
    found.close()


def look(seq: int, *counts: tuple[int, int], is_measured: bool = True) -> FrameLook:
    copy = frame_bytes(block(seq, dict(enumerate(counts))), mode=int(is_measured))
    return parse(copy, copy)


def test_a_rate_is_what_passed_in_the_last_window_per_millisecond() -> None:
    sampler = TransferSampler()
    sampler.look([look(0, (10, 0), (10, -1))], 0)
    (now,) = sampler.running.values()
    assert now.rates[:2] == ((None, None), (None, None))
    sampler.look([look(0, (12, 0), (10, -1))], WINDOW_NS // 2)  # too soon for a rate
    (now,) = sampler.running.values()
    assert (now.counts[0], now.rates[0]) == ((12, 0), (None, None))
    sampler.look([look(0, (15, 0), (10, -1))], 2 * WINDOW_NS)
    (now,) = sampler.running.values()
    assert now.rates[:3] == ((5 / 200, 0.0), (0.0, None), (None, None))
    sampler.look([look(0, (15, 0), (10, -1))], 3 * WINDOW_NS)
    (now,) = sampler.running.values()
    assert now.rates[0] == (0.0, 0.0)


def test_a_channel_is_still_since_its_counts_were_first_as_they_are() -> None:
    sampler = TransferSampler()
    for time_ns, sent in ((100, 1), (200, 2), (300, 2), (400, 3), (500, 3)):
        sampler.look([look(0, (sent, 0), (7, 7))], time_ns)
    (now,) = sampler.running.values()
    assert (now.seen_since_ns, now.still_since_ns[:2], now.totals) == (100, (400, 100), (10, 7))


def test_an_operation_that_is_over_is_forgotten_and_one_with_its_place_begins_anew() -> None:
    sampler = TransferSampler()
    sampler.look([look(0, (5, 5))], 0)
    sampler.look([look(1, (9, 9))], WINDOW_NS)
    (now,) = sampler.running.items()
    assert (now[0].seq, now[1].seen_since_ns, now[1].rates[0]) == (1, WINDOW_NS, (None, None))
    sampler.look([], 2 * WINDOW_NS)
    assert sampler.running == {}


def test_counts_that_are_no_longer_kept_are_not_taken_for_a_standstill() -> None:
    sampler = TransferSampler()
    sampler.look([look(0, (5, 5))], 0)
    sampler.look([look(0, (5, 5), is_measured=False)], WINDOW_NS)
    assert sampler.running == {}


def test_a_count_that_goes_back_gives_no_negative_rate() -> None:
    sampler = TransferSampler()
    sampler.look([look(0, (5, 5))], 0)
    sampler.look([look(0, (2, 9))], WINDOW_NS)
    (now,) = sampler.running.values()
    assert now.rates[0] == (0.0, 4 / (WINDOW_NS / 1e6))
