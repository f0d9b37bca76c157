"""Messages of a partition -> blocks that are cut at the same offsets by everybody, every time; pure.

A block is what one insert per table writes, and its token is where it begins: a table drops a token that it has seen.
So the messages between two offsets must always be the same block, also when a writer that was killed is followed by
one that polls other portions, at other times.

Three things end a block that begins at offset `first`:

1. A fixed multiple of offsets (`BLOCK_OFFSETS`): the next one after `first`.
2. `BLOCK_BYTES` of payload, counted from `first`: messages are what they are.
3. The flush time: a quiet partition must not wait until its block is full (`storage.held_messages`).

The first two follow from the log and from `first` alone, so a replay finds them again. The third does not: which
message was the last when the time was up is nowhere in the log. So no end is used before it is *decided*: written down
in the store under (log, topic, partition, first), where the first to write is right and everybody else, a writer that
was stopped for minutes and woke up among them, reads what was decided and keeps to it (`storage.block_boundaries`).
A block that is longer than what has been read is waited for.

The ways that were not taken: to commit only whole blocks of fixed offsets and to leave the rest to the identity of
rows (the tail of every partition would be there twice until a merge, and a quiet partition would be read again and
again); to cut at multiples of the messages' time (a message that comes late belongs to a block that is written).

`first` is the offset of the first message that is there: offsets may have gaps (compaction, retention).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pacehound.bus import Message, Place

BLOCK_OFFSETS = 1_024
"""Of small messages, as many as a busy partition brings within its flush time: an insert costs the same for one row as
for thousands."""

BLOCK_BYTES = 16 * 1024 * 1024
"""At 64 KB a message, about 370,000 calls: what a decision costs is small beside their inserts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets `first` to `last`, both included, of one partition.

    >>> Span(topic="calls", partition=3, first=256, last=511).name
    'calls/3/256-511'
    """

    topic: str
    partition: int
    first: int
    last: int

    @property
    def place(self) -> Place:
        """The partition."""
        return self.topic, self.partition

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.topic}/{self.partition}/{self.first}-{self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A span and its messages, in order."""

    span: Span
    messages: tuple[Message, ...] = field(repr=False)


def last_of_block(first: int) -> int:
    """The last offset that a block which begins at `first` may have, whatever its messages are."""
    return (first // BLOCK_OFFSETS + 1) * BLOCK_OFFSETS - 1


def natural_end(messages: Sequence[Message]) -> int:
    """The last offset that the block of the first of `messages` may have, as far as the log alone says.

    Parameters
    ----------
    messages
        Messages of one partition, in order; at least one.

    Returns
    -------
    The last offset before the next multiple of `BLOCK_OFFSETS`, or the message with which `BLOCK_BYTES` are full.

    """
    end = last_of_block(messages[0].offset)
    held_bytes = 0
    for message in messages:
        if message.offset > end:
            break
        held_bytes += len(message.value)
        if held_bytes >= BLOCK_BYTES:
            return message.offset
    return end


def proposed(messages: Sequence[Message], *, is_due: bool) -> Span | None:
    """The block to write next, as this reader would cut it; `None` when it should wait for more.

    Parameters
    ----------
    messages
        Messages of one partition that are not written, in order.
    is_due
        The flush time is up: what is there is a block.

    Examples
    --------
    >>> def at(*offsets):
    ...     return [Message(topic="t", key="", partition=0, offset=o, value=b"") for o in offsets]
    >>> proposed(at(70, 71), is_due=False) is None
    True
    >>> proposed(at(70, 71), is_due=True).name
    't/0/70-71'
    >>> proposed(at(70, 71, 1_023, 1_024), is_due=False).name
    't/0/70-1023'

    """
    if not messages:
        return None
    first, newest, end = messages[0], messages[-1].offset, natural_end(messages)
    if newest < end:
        if not is_due:
            return None
        end = newest
    return Span(topic=first.topic, partition=first.partition, first=first.offset, last=end)


def cut(messages: Sequence[Message], span: Span) -> tuple[Block, list[Message]] | None:
    """The block of `span` and the messages behind it; `None` when its last message has not been read yet."""
    if not messages or messages[-1].offset < span.last:
        return None
    taken = tuple(m for m in messages if m.offset <= span.last)
    return Block(span=span, messages=taken), list(messages[len(taken) :])
