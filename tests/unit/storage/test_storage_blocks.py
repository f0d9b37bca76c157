"""Blocks are the same for every reader, however it polls and whenever its time is up."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pacehound.bus import Message
from storage.blocks import BLOCK_BYTES, BLOCK_OFFSETS, Span, cut, natural_end, proposed
from storage.held_messages import PATIENCE, HeldMessages
from tests.fakes.examples import examples


def message(offset, size=0, place=("calls", 0)):
    return Message(topic=place[0], key="", partition=place[1], offset=offset, value=b"x" * size)


def test_a_block_ends_at_a_multiple_of_offsets_wherever_it_begins():
    for first in (0, 1, BLOCK_OFFSETS - 1, BLOCK_OFFSETS, 3 * BLOCK_OFFSETS + 5):
        end = natural_end([message(first)])
        assert (end + 1) % BLOCK_OFFSETS == 0
        assert 0 <= end - first < BLOCK_OFFSETS


def test_a_block_of_large_messages_ends_with_the_one_that_fills_it_for_every_reader():
    messages = [message(o, BLOCK_BYTES // 3 + 1) for o in range(10)]
    assert natural_end(messages) == natural_end(messages[:3]) == 2
    assert proposed(messages[:2], is_due=False) is None
    assert proposed(messages[:3], is_due=False).last == 2
    assert proposed(messages[3:], is_due=False).name == "calls/0/3-5"


def test_a_block_whose_end_was_decided_waits_for_its_last_message():
    span = Span(topic="calls", partition=0, first=0, last=4)
    assert cut([message(o) for o in range(4)], span) is None
    block, rest = cut([message(o) for o in range(7)], span)
    assert [m.offset for m in block.messages] == [0, 1, 2, 3, 4]
    assert [m.offset for m in rest] == [5, 6]


def test_a_decided_last_message_that_was_compacted_away_is_not_waited_for_for_ever():
    span = Span(topic="calls", partition=0, first=0, last=4)
    block, rest = cut([message(0), message(3), message(9)], span)
    assert ([m.offset for m in block.messages], [m.offset for m in rest]) == ([0, 3], [9])


@examples(40)
@given(
    offsets=st.lists(st.integers(0, 4 * BLOCK_OFFSETS), min_size=1, max_size=120, unique=True).map(sorted),
    readers=st.lists(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=25), min_size=1, max_size=5),
)
def test_readers_that_keep_to_decided_ends_write_the_same_blocks_and_every_message_in_one(offsets, readers):
    """Each reader begins where the last commit was, with portions and flush times of its own; any may stop anywhere."""
    log = [message(o) for o in offsets]
    decided, written, committed = {}, {}, 0

    def read(steps):
        nonlocal committed
        position, held = committed, []
        for portion, is_due in steps:
            held += log[position : position + portion]
            position += portion
            while span := proposed(held, is_due=is_due):
                span = replace(span, last=decided.setdefault(span.first, span.last))
                parts = cut(held, span)
                if parts is None:
                    break
                block, held = parts
                assert written.setdefault(span.first, block) == block
                if is_due:  # a commit that lags behind
                    committed = min(position, len(log)) - len(held)

    for steps in readers:
        read(steps)
    read([(len(log), True)])
    assert sorted(m.offset for block in written.values() for m in block.messages) == offsets


def test_a_shelf_knows_what_it_holds_through_writing_losing_and_starting_again():
    held = HeldMessages()
    last = BLOCK_OFFSETS - 1
    held.put([message(o, 10) for o in range(last + 7)] + [message(5, 1, ("results", 1))], now_s=1.0)
    assert (len(held), held.held_bytes) == (last + 8, 10 * last + 71)
    assert held.unasked() == {("calls", 0): 0, ("results", 1): 5}
    assert [block.span.name for block in held.ready(1.5, flush_s=2.0)] == [f"calls/0/0-{last}"]
    assert [block.span.name for block in held.ready(3.0, flush_s=2.0)] == [f"calls/0/0-{last}", "results/1/5-5"]
    held.done(next(held.ready(1.5, 2.0)), now_s=9.0)
    assert (len(held), held.held_bytes) == (7, 61)
    # The rest counts from the block before it.
    assert [block.span.topic for block in held.ready(10.0, flush_s=2.0)] == ["results"]
    held.put([message(3, 10)], now_s=10.0)  # read anew from an earlier offset
    assert (len(held), held.held_bytes) == (2, 11)
    held.forget([("calls", 0), ("nowhere", 0)])
    assert (len(held), held.held_bytes) == (1, 1)


def test_what_hosts_say_of_themselves_waits_longer_for_more():
    held = HeldMessages()
    held.put([message(5, 1, ("hosts", 1)), message(5, 1, ("results", 1))], now_s=1.0)
    assert [block.span.topic for block in held.ready(2.0 * PATIENCE["hosts"], flush_s=2.0)] == ["results"]
    assert [block.span.topic for block in held.ready(1.0 + 2.0 * PATIENCE["hosts"], 2.0)] == ["hosts", "results"]
    assert len(list(held.ready(1.0, flush_s=0.0))) == 2  # at the end nothing waits


def test_behind_a_block_comes_the_next_whole_one_and_what_is_due_elsewhere():
    held = HeldMessages()
    held.put([message(o) for o in range(2 * BLOCK_OFFSETS + 7)] + [message(5, 1, ("results", 1))], now_s=1.0)
    first = {("calls", 0): next(held.ready(1.5, flush_s=2.0)).span}
    behind = list(held.behind(first, 3.0, flush_s=2.0))
    second_block = range(BLOCK_OFFSETS, 2 * BLOCK_OFFSETS)
    assert [block.span.name for block in behind] == [f"calls/0/{second_block[0]}-{second_block[-1]}", "results/1/5-5"]
    assert [m.offset for block in behind for m in block.messages] == [*second_block, 5]
    second = {("calls", 0): replace(first["calls", 0], last=2 * BLOCK_OFFSETS - 1)}
    assert [b.span.name for b in held.behind(second, 3.0, 2.0)] == ["results/1/5-5"]  # the rest is not due then
    unread = {("calls", 0): replace(first["calls", 0], last=10 * BLOCK_OFFSETS)}
    assert [b.span.name for b in held.behind(unread, 3.0, 2.0)] == ["results/1/5-5"]


def test_a_block_behind_everything_that_was_begun_is_no_repeat():
    held = HeldMessages()
    place = ("calls", 0)
    held.put([message(64)], now_s=0.0)
    assert held[place].is_repeat(64)  # the store was not asked yet
    held.know({place: 63})
    assert not held[place].is_repeat(64)
    held.know({place: 70})
    assert held[place].is_repeat(64)
    assert not held[place].is_repeat(71)
    held[place].has_failed = True
    assert held[place].is_repeat(71)
