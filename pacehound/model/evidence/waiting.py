"""Who stands in which call and who has not come, when nothing moves; and over which edge nothing passes."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from pacehound.model.evidence.phrases import does, have, shown_ranks
from pacehound.model.evidence.piece import OfRanks, Piece
from pacehound.model.int64 import Int64

MOST_WAITS = 64
"""Of the edges of a wait-for graph."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call: its operation, number and communicator; of a send or receive the pair, for those are numbered apart."""

    op: str
    seq: Int64
    communicator: str
    pair: tuple[Int64, Int64] | None = None

    def __str__(self) -> str:
        if self.pair is not None:
            return f"the {self.op} from rank {self.pair[0]} to rank {self.pair[1]} on {self.communicator!r}"
        return f"{self.op} {self.seq} of {self.communicator!r}"


class Waiting(OfRanks, frozen=True, kw_only=True, tag="waiting"):
    """Ranks that wait, the call of the one that waits longest and for how long.

    `waits` holds edges of the wait-for graph: who waits, for whom, in a call of which communicator.
    """

    call: Call
    longest_s: float | None
    waits: tuple[tuple[Int64, Int64, str], ...] = ()

    ABOUT: ClassVar = ()

    def _sentence(self) -> str:
        if self.longest_s is None:
            return f"{self.n_ranks} ranks wait, the longest in {self.call}"
        who = shown_ranks(self.ranks, self.n_ranks)
        if self.n_ranks == 1:
            return f"{who} has waited for {self.longest_s:.1f} s in {self.call}"
        return f"{who} wait, the longest for {self.longest_s:.1f} s in {self.call}"


class NoCalls(Piece, frozen=True, kw_only=True, tag="no_calls"):
    """Nobody has launched anything for so long."""

    for_s: float

    def _sentence(self) -> str:
        return f"no rank has launched a call for {self.for_s:.1f} s"


class StandIn(OfRanks, frozen=True, kw_only=True, tag="stand_in"):
    """Ranks that stand in a call, which everybody has entered, or in which they wait for each other."""

    call: Call
    is_entered_by_all: bool

    ABOUT: ClassVar = ("call",)

    def _sentence(self) -> str:
        who = shown_ranks(self.ranks, self.n_ranks)
        if self.is_entered_by_all:
            return f"{who} {does(self.n_ranks, 'stand')} in {self.call}, which everybody has entered"
        return f"{who} {does(self.n_ranks, 'wait')} in {self.call}"


class NotEntered(OfRanks, frozen=True, kw_only=True, tag="not_entered"):
    """Ranks that others wait for; `but` says what else is known of them."""

    but: Literal["", "most", "in no call", "in unseen calls"] = ""

    ABOUT: ClassVar = ("ranks", "but")

    def _sentence(self) -> str:
        who = shown_ranks(self.ranks, self.n_ranks)
        who_has = f"{who} {have(self.n_ranks)}"
        return {
            "": f"{who_has} not entered",
            "most": f"{who} have not entered: more than wait for them",
            "in no call": f"{who_has} not entered and {does(self.n_ranks, 'wait')} in no call that can be seen",
            "in unseen calls": f"{who} may wait in calls that are not seen",
        }[self.but]


class NotFinished(OfRanks, frozen=True, kw_only=True, tag="not_finished"):
    """Ranks whose call does not end, which others have completed, and some of these a later one too."""

    call: Call
    done: tuple[Int64, ...]
    n_done: Int64
    later_done: tuple[Int64, ...]
    n_later_done: Int64

    ABOUT: ClassVar = ("call",)

    def _sentence(self) -> str:
        later = f", and {shown_ranks(self.later_done, self.n_later_done)} a later one too" if self.later_done else ""
        return (
            f"{shown_ranks(self.ranks, self.n_ranks)} {have(self.n_ranks)} not finished {self.call}: "
            f"{shown_ranks(self.done, self.n_done)} {have(self.n_done)}{later}"
        )


class Apart(OfRanks, frozen=True, kw_only=True, tag="apart"):
    """Ranks that differ from those they wait with, and in what."""

    by: Literal[
        "order", "order of most", "own past", "all others", "open sends", "device not begun", "every call", "stacks"
    ]

    ABOUT: ClassVar = ("ranks", "by")

    def _sentence(self) -> str:
        who = shown_ranks(self.ranks, self.n_ranks)
        return {
            "order": f"{who} wait for each other: their calls are in a different order",
            "order of most": f"{who} entered two calls the other way round than most of those who wait for them",
            "own past": f"{who} called something else there than in the iteration before",
            "all others": f"{who} {does(self.n_ranks, 'differ')} from all others",
            "open sends": f"{who} {have(self.n_ranks)} sends open, which need not hold anybody",
            "device not begun": f"the devices of {who} have not begun what those of the others have",
            "every call": f"{who} is in every call that does not move, and nobody else is",
            "stacks": f"by the stacks {who} {does(self.n_ranks, 'stand')} in no call; most others do, in an unseen one",
        }[self.by]


class OutOfOrder(Piece, frozen=True, kw_only=True, tag="out_of_order"):
    """A rank has entered one call before another that came first one iteration before."""

    rank: Int64
    entered: str
    skipped: str

    ABOUT: ClassVar = ("rank",)

    def _sentence(self) -> str:
        return (
            f"rank {self.rank}: it has entered a call on {self.entered} before one on {self.skipped} that came first "
            "in the iteration before"
        )


class OutOfStep(Piece, frozen=True, kw_only=True, tag="out_of_step"):
    """A rank had made more calls than most when all ended the same iteration, or fewer (`n_calls` is negative)."""

    rank: Int64
    n_calls: Int64

    ABOUT: ClassVar = ("rank",)

    def _sentence(self) -> str:
        calls = "1 call" if abs(self.n_calls) == 1 else f"{abs(self.n_calls)} calls"
        return (
            f"rank {self.rank} had made {calls} {'more' if self.n_calls > 0 else 'fewer'} than its peers when it ended "
            "the same iteration: its calls have met with those of another one since"
        )


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that made the same call, `n_ranks` in all, and what they called."""

    ranks: tuple[Int64, ...]
    n_ranks: Int64
    call: str


class CalledDifferently(Piece, frozen=True, kw_only=True, tag="called_differently"):
    """What ranks called in a round in which they met with different calls, the largest side first."""

    communicator: str
    seq: Int64
    sides: tuple[Side, ...]

    ABOUT: ClassVar = ("communicator", "seq")

    def _sentence(self) -> str:
        sides = "; ".join(
            f"{shown_ranks(side.ranks, side.n_ranks)} {does(side.n_ranks, 'call')} {side.call}" for side in self.sides
        )
        return f"in round {self.seq} of {self.communicator!r} {sides}"


class LaunchedFewer(Piece, frozen=True, kw_only=True, tag="launched_fewer"):
    """A rank has launched fewer calls than its peers; by how many where launches are all that is seen."""

    rank: Int64
    n_calls: Int64 | None = None

    ABOUT: ClassVar = ("rank",)

    def _sentence(self) -> str:
        if self.n_calls is None:
            return f"rank {self.rank} has launched fewer calls than the other members of its communicators"
        return f"rank {self.rank} has launched {self.n_calls} calls fewer than a peer and is ahead of nobody"


class MovedOn(OfRanks, frozen=True, kw_only=True, tag="moved_on"):
    """Ranks that went on, and after how long."""

    after_s: float

    ABOUT: ClassVar = ()

    def _sentence(self) -> str:
        return f"{shown_ranks(self.ranks, self.n_ranks)} moved on after {self.after_s:.1f} s"


class StuckChannels(Piece, frozen=True, kw_only=True, tag="stuck_channels"):
    """An edge whose ends have most left to pass, by the chunks that the sender's channels have sent.

    `still_after_s` where nothing has moved there: so long after the call was launched.
    """

    link: tuple[Int64, Int64]
    channels: tuple[Int64, ...]
    n_sent: Int64
    n_to_send: Int64
    still_after_s: float | None
    is_uncounted_inside: bool

    ABOUT: ClassVar = ("link",)

    def _sentence(self) -> str:
        a, b = self.link
        words = (
            f"on channel{'s' if len(self.channels) > 1 else ''} {', '.join(map(str, self.channels))} (modulo 8) rank "
            f"{a} has sent {self.n_sent} of {self.n_to_send} chunks: more is left to it, and to rank {b} to receive, "
            "than to any other rank"
        )
        if self.still_after_s is not None:
            words += f"; nothing has moved there since {self.still_after_s:.1f} s after it launched the call"
        if self.is_uncounted_inside:
            words += f"; what reaches rank {a} inside of its host is not counted and would look the same"
        return words


class StuckRingEdge(Piece, frozen=True, kw_only=True, tag="stuck_ring_edge"):
    """The edge of a ring over which the fewest chunks have passed.

    `before` is the rank whose edge to its sender is not counted, -1 where that rank is not known.
    """

    link: tuple[Int64, Int64]
    n_passed: Int64
    before: Int64 | None
    is_assumed: bool

    ABOUT: ClassVar = ("link",)

    def _sentence(self) -> str:
        a, b = self.link
        words = (
            f"fewer chunks ({self.n_passed}) have passed from rank {a} to rank {b} than over any other edge of the ring"
        )
        if self.before is not None:
            before = f"from rank {self.before} " if self.before >= 0 else ""
            words += f"; what goes {before}to rank {a} is not counted and would look the same"
        return f"{words}; the ring is assumed: it goes through the ranks in their order" if self.is_assumed else words


class StuckTreeEdge(Piece, frozen=True, kw_only=True, tag="stuck_tree_edge"):
    """The edge of a tree over which a host has chunks to pass up; over how many hosts NCCL's own tree was assumed."""

    link: tuple[Int64, Int64]
    channel: Int64
    assumed_hosts: Int64 | None

    ABOUT: ClassVar = ("link",)

    def _sentence(self) -> str:
        a, b = self.link
        words = (
            f"on channel {self.channel} (modulo 8) rank {a} has chunks to pass up the tree to rank {b}, which waits "
            "for them"
        )
        if self.assumed_hosts is None:
            return words
        return f"{words}; the tree is assumed: NCCL's own over {self.assumed_hosts} hosts"
