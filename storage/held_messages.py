"""What was read of a partition and is not in the store; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pacehound.bus import Message, Place
from pacehound.model.topics import HOSTS
from storage.blocks import BLOCK_BYTES, Block, Span, cut, last_of_block, proposed

PATIENCE = {HOSTS.name: 5.0}
"""By topic, how many flush times its messages wait for more. What hosts say of themselves, in a few rows each and once
or twice a second, would be most of all inserts; findings are told elsewhere, and nobody follows it by the second."""


@dataclass(slots=True, kw_only=True)
class Held:
    """One partition.

    Attributes
    ----------
    messages
        In order; none of them is written, as far as this writer knows.
    n_bytes
        Of their payload.
    since_s
        When the oldest of them was read.
    begun
        The last offset that some writer has decided about; `None` before the store was asked. A block that begins
        behind it was never begun by anybody.
    decided
        The block to write next, once that was decided.
    has_failed
        A try at it was cut off: it may be in the store, wholly or in part.

    """

    messages: list[Message] = field(default_factory=list)
    n_bytes: int = 0
    since_s: float = 0.0
    begun: int | None = None
    decided: Span | None = None
    has_failed: bool = False

    def is_repeat(self, first: int) -> bool:
        """May a block that begins at `first` be in the store already?"""
        return self.has_failed or self.begun is None or first <= self.begun

    @property
    def may_be_full(self) -> bool:
        """Is there a whole block? False only where there is none: it is asked at every step, and reads no message."""
        is_whole = bool(self.messages) and self.messages[-1].offset >= last_of_block(self.messages[0].offset)
        return is_whole or self.n_bytes >= BLOCK_BYTES


class HeldMessages:
    """Messages by partition, from the poll to the store."""

    def __init__(self) -> None:
        self._held: dict[Place, Held] = {}

    @property
    def held_bytes(self) -> int:
        """Of the payload of all of them."""
        return sum(held.n_bytes for held in self._held.values())

    def __len__(self) -> int:
        return sum(len(held.messages) for held in self._held.values())

    def __getitem__(self, place: Place) -> Held:
        return self._held[place]

    def put(self, messages: Iterable[Message], now_s: float) -> None:
        """Take what was polled.

        A reader that begins again at an earlier offset (a bus that was asked anew) replaces what was held of that
        partition.
        """
        for message in messages:
            held = self._held.setdefault((message.topic, message.partition), Held())
            if held.messages and message.offset <= held.messages[-1].offset:
                self._held[message.topic, message.partition] = held = Held()
            if not held.messages:
                held.since_s = now_s
            held.messages.append(message)
            held.n_bytes += len(message.value)

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions belong to somebody else now."""
        for place in places:
            self._held.pop(place, None)

    def unasked(self) -> dict[Place, int]:
        """Partitions of which the store has not been asked yet, with their first offset."""
        return {p: held.messages[0].offset for p, held in self._held.items() if held.begun is None and held.messages}

    def ready(self, now_s: float, flush_s: float) -> Iterator[Block]:
        """The next block of each partition that has one, as decided or else as proposed; what is held longest first."""
        return self.behind({}, now_s, flush_s)

    def behind(self, spans: Mapping[Place, Span], now_s: float, flush_s: float) -> Iterator[Block]:
        """What will be ready once `spans`, some of what is ready now, are written."""
        for place, held in sorted(self._held.items(), key=lambda item: item[1].since_s):
            is_due = now_s - held.since_s >= flush_s * PATIENCE.get(place[0], 1.0)
            rest, decided = held.messages, held.decided
            if not (is_due or decided or held.may_be_full):
                continue
            if place in spans:
                parts = cut(rest, spans[place])
                rest, decided, is_due = parts[1] if parts else [], None, False
            span = decided or proposed(rest, is_due=is_due)
            parts = cut(rest, span) if span is not None else None
            if parts is not None:
                yield parts[0]

    def block(self, place: Place, span: Span) -> Block | None:
        """The messages of `span`; `None` while its last one has not been read."""
        parts = cut(self._held[place].messages, span)
        return parts[0] if parts else None

    def done(self, block: Block, now_s: float) -> None:
        """A block is in the store."""
        held = self._held[block.span.place]
        held.messages = held.messages[len(block.messages) :]
        held.decided, held.has_failed, held.since_s = None, False, now_s
        held.n_bytes -= sum(len(m.value) for m in block.messages)

    @property
    def waits_for_more(self) -> bool:
        """Somebody else has cut a block that is longer than what was read of it."""
        return any(h.decided and h.messages and h.messages[-1].offset < h.decided.last for h in self._held.values())

    def know(self, begun: Mapping[Place, int]) -> None:
        """What the store says of partitions."""
        for place, last in begun.items():
            self._held[place].begun = last
