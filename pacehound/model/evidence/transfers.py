"""Transfers that take longer, and what tells which link it is: rates, connections, what slow ones have in common."""

from __future__ import annotations

from typing import ClassVar, Literal

from pacehound.model.evidence.piece import Piece
from pacehound.model.int64 import Int64

MOST_LINKS = 32
"""Links that a named one is held against."""


class TransferGrew(Piece, frozen=True, kw_only=True, tag="transfer_grew"):
    """The transfers of a link (two ranks) or a communicator grew: by what share of the iteration's growth, how often.

    `others_s` is the growth of other links by their two ranks, the largest ones, to compare with.
    """

    link: tuple[Int64, Int64] | None
    communicator: str
    grown_s: float
    before_s: float
    share: float
    n_seen: Int64
    n_iterations: Int64
    others_s: tuple[tuple[Int64, Int64, float], ...] = ()

    ABOUT: ClassVar = ("link", "communicator")

    def _sentence(self) -> str:
        of = f"of communicator {self.communicator!r} take longer after its last rank has entered"
        if self.link is not None:
            of = f"between rank {self.link[0]} and rank {self.link[1]} take longer"
        seen = f"in {self.n_seen} of {self.n_iterations} slow iterations"
        return f"transfers {of}: {self.share:.0%} of the growth, {seen}"


class BothDirections(Piece, frozen=True, kw_only=True, tag="both_directions"):
    """They do so in both directions of a link."""

    link: tuple[Int64, Int64]

    ABOUT: ClassVar = ("link",)

    def _sentence(self) -> str:
        return "in both directions"


class AboveAlike(Piece, frozen=True, kw_only=True, tag="above_alike"):
    """The transfers of a pair of ranks or a communicator beside the median of others of its kind.

    `took_s` of each iteration where that is so since the first step, or, a little later, since `since_step`. Where it
    is the only one of its kind (`n_peers` 0) they take `ratio` times what its other links would let them.
    """

    link: tuple[Int64, Int64] | None
    communicator: str
    ratio: float
    n_peers: Int64
    took_s: float | None = None
    since_step: Int64 | None = None

    ABOUT: ClassVar = ("link", "communicator")

    def _sentence(self) -> str:
        what, kind = f"communicator {self.communicator!r}", "communicators"
        if self.link is not None:
            what, kind = f"ranks {self.link[0]} and {self.link[1]}", "pairs"
        if self.took_s is None:
            return f"they take {self.ratio:.1f} x the median of {self.n_peers} {kind} of the same kind"
        since = "the first step seen" if self.since_step is None else f"step {self.since_step}"
        if not self.n_peers:
            return (
                f"transfers of {what} take {self.took_s * 1e3:.1f} ms of each iteration since {since}, and one of its "
                "links is far slower than the others"
            )
        return (
            f"transfers of {what} take {self.ratio:.1f} x the median of {self.n_peers} {kind} of the same kind since "
            f"{since}: {self.took_s * 1e3:.1f} ms of each iteration"
        )


class SlowRoundsOfKind(Piece, frozen=True, kw_only=True, tag="slow_rounds"):
    """The slowest kind of rounds of a communicator against its base (CCL-D's R), and P where it is known.

    `communicator` is empty where the finding has named it. `base` says where the base is from: the first rounds
    (empty), the setting `slow.base_times`, or the fleet.
    """

    communicator: str
    op: str
    size_bytes: Int64
    ratio: float
    p: float | None
    what: Literal["", "transfer", "both", "rank"]
    base: Literal["", "set", "fleet"] = ""

    ABOUT: ClassVar = ("communicator", "op", "size_bytes")

    def _sentence(self) -> str:
        base = {"": "their base", "set": "the time that was set for them", "fleet": "what is usual in the fleet"}
        words = f"rounds of {self.op} over {self.size_bytes} bytes took up to {1 + self.ratio:.1f} x {base[self.base]}"
        if self.communicator:
            words = f"communicator {self.communicator!r}: {words}"
        if self.p is None or not self.what:
            return words
        of = {
            "transfer": "the transfer itself took long", "both": "in between: both", "rank": "a rank came late"
        }[self.what]  # fmt: skip
        return f"{words} (P = {self.p:.2f}: {of})"


class ManyTransfers(Piece, frozen=True, kw_only=True, tag="many_transfers"):
    """Many transfers take longer, none by much; the rank that all of the slowest have, where they have one."""

    n: Int64
    shared_rank: Int64 | None

    def _sentence(self) -> str:
        words = f"transfers of {self.n} communicators and pairs take longer, none of them by much"
        if self.shared_rank is None:
            return words
        return f"{words}; all of the slowest have rank {self.shared_rank}: its network interface"


class LinksMeet(Piece, frozen=True, kw_only=True, tag="links_meet"):
    """Slow links that meet in one rank."""

    rank: Int64
    links: tuple[tuple[Int64, Int64], ...]

    ABOUT: ClassVar = ("rank",)

    def _sentence(self) -> str:
        links = ", ".join(f"{a}-{b}" for a, b in self.links)
        return f"all slow links ({links}) meet in rank {self.rank}: it may be its network interface"


class ShareHost(Piece, frozen=True, kw_only=True, tag="share_host"):
    """Slow communicators that have a host in common which no quiet one has."""

    host: str
    n: Int64

    ABOUT: ClassVar = ("host",)

    def _sentence(self) -> str:
        return f"{self.n} slow communicators share host {self.host}, which no quiet one has"


class EdgeRates(Piece, frozen=True, kw_only=True, tag="edge_rates"):
    """At what shares of a reference an edge's sender sends and its receiver receives, in an operation.

    The reference is each rank's own earlier rate, or that of ranks in its place.
    """

    sender: Int64
    receiver: Int64
    op: str
    send_share: float
    receive_share: float
    reference: Literal["earlier", "place"]

    ABOUT: ClassVar = ("sender", "receiver")

    def _sentence(self) -> str:
        of = "its earlier rate" if self.reference == "earlier" else "the rate of ranks in its place"
        return (
            f"rank {self.sender} sends at {self.send_share:.0%} of {of} in {self.op}, rank {self.receiver} receives at "
            f"{self.receive_share:.0%}"
        )


class AssumedEdges(Piece, frozen=True, kw_only=True, tag="assumed_edges"):
    """Who sends to whom was not seen and is assumed, `n_hosts` of a tree; or was seen on a channel, and is no tree."""

    algorithm: Literal["ring", "tree"]
    n_hosts: Int64 = 0
    odd_channel: Int64 | None = None

    def _sentence(self) -> str:
        if self.odd_channel is not None:
            return f"the edges seen on channel {self.odd_channel} are no tree of NCCL's own over {self.n_hosts} hosts"
        if self.algorithm == "tree":
            return f"the tree is assumed: NCCL's own over {self.n_hosts} hosts"
        return "the ring is assumed: it goes through the ranks in their order"


class Connection(Piece, frozen=True, kw_only=True, tag="connection"):
    """What the kernel counts of a connection, beside its peers; `resent_share` where much was sent again."""

    sender: Int64
    receiver: Int64
    busy_share: float
    bytes_per_s: float
    peers_bytes_per_s: float
    resent_share: float | None = None

    ABOUT: ClassVar = ("sender", "receiver")

    def _sentence(self) -> str:
        words = (
            f"the connection from rank {self.sender} to rank {self.receiver} is busy {self.busy_share:.0%} of the time "
            f"and gets {self.bytes_per_s / 1e6:.1f} MB/s through, its peers {self.peers_bytes_per_s / 1e6:.1f} MB/s"
        )
        return words if self.resent_share is None else f"{words}; {self.resent_share:.1%} of its data was sent again"
