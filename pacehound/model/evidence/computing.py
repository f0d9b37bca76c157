"""Ranks whose own time grew, or is longer than that of their peers; and iterations in which nobody stands apart."""

from __future__ import annotations

from typing import ClassVar, Literal

from pacehound.model.evidence.piece import OfRanks, Piece
from pacehound.model.int64 import Int64


class OwnTimeGrew(Piece, frozen=True, kw_only=True, tag="own_time_grew"):
    """By how much the own time of an iteration grew: of the culprits, of ranks that only wait, of the iteration.

    `rank_s` is the growth of each culprit and of some peers by rank (`compared`), `spread_s` that of the peers'.
    """

    ranks: tuple[Int64, ...]
    own_s: float
    peers_s: float
    iteration_s: float
    rank_s: tuple[tuple[Int64, float], ...] = ()
    spread_s: float = 0.0

    ABOUT: ClassVar = ("ranks",)

    def _sentence(self) -> str:
        return (
            f"rank{'s' if len(self.ranks) > 1 else ''} {', '.join(map(str, self.ranks))}: own time grew by "
            f"{self.own_s * 1e3:.1f} ms per iteration, that of ranks which only wait by {self.peers_s * 1e3:.1f} ms; "
            f"the iteration by {self.iteration_s * 1e3:.1f} ms"
        )


class OwnTimeApart(Piece, frozen=True, kw_only=True, tag="own_time_apart"):
    """The own time of an iteration of ranks that were slow from the first step on, and of their peers.

    `since_step` where it began a little later; `hosts` where they are whole hosts; `n_peers` is that of the part with
    fewest; `rank_s` as in `own_time_grew`, but own times and not their growth.
    """

    ranks: tuple[Int64, ...]
    own_s: float
    peers_s: float
    n_peers: Int64
    spread_s: float
    hosts: tuple[str, ...] = ()
    rank_s: tuple[tuple[Int64, float], ...] = ()
    since_step: Int64 | None = None

    ABOUT: ClassVar = ("ranks",)

    def _sentence(self) -> str:
        who = f"rank{'s' if len(self.ranks) > 1 else ''} {', '.join(map(str, self.ranks))}"
        since = "the first step seen" if self.since_step is None else f"step {self.since_step}"
        if self.hosts:
            who = f"host{'s' if len(self.hosts) > 1 else ''} {', '.join(self.hosts)} ({who})"
        peers = f"its only peer has {self.peers_s * 1e3:.1f} ms"
        if self.n_peers != 1:
            peers = (
                f"the median of its {self.n_peers} peers is {self.peers_s * 1e3:.1f} ms, their spread "
                f"{self.spread_s * 1e3:.1f} ms"
            )
        return f"{who}: {self.own_s * 1e3:.1f} ms of own time per iteration since {since}; {peers}"


class OnPath(Piece, frozen=True, kw_only=True, tag="on_path"):
    """In how many iterations (slow ones, or all of them) some of these ranks were on the critical path."""

    ranks: tuple[Int64, ...]
    n_on_path: Int64
    n_iterations: Int64
    of: Literal["slow", "all"] = "slow"

    ABOUT: ClassVar = ("ranks",)

    def _sentence(self) -> str:
        slow = "slow " if self.of == "slow" else ""
        return f"on the critical path of {self.n_on_path} of {self.n_iterations} {slow}iterations"


class NobodyApart(Piece, frozen=True, kw_only=True, tag="nobody_apart"):
    """Nobody is named for a growth, and how it lies.

    Where it wanders: on how many ranks, in how many iterations; where too many ranks share it, `of` how many.
    """

    growth: Literal["wanders", "is spread", "follows bytes", "is work", "is of other links", "is of many ranks"]
    n_ranks: Int64 = 0
    of: Int64 = 0
    n_iterations: Int64 = 0

    def _sentence(self) -> str:
        return {
            "wanders": f"the growth wanders: in {self.n_iterations} slow iterations it lay on {self.n_ranks} different "
            "ranks. That is imbalance of the work, or pauses that meet all of them; nobody stands apart",
            "is spread": "the growth is spread over ranks and transfers: nobody stands apart",
            "follows bytes": "own time follows the bytes that are moved: imbalance of the work, nobody to name",
            "is work": "no rank stands apart",
            "is of other links": "transfers between other ranks take longer, too: no link stands apart",
            "is of many ranks": f"{self.n_ranks} of {self.of} ranks compute for longer: their work, or something they "
            "share",
        }[self.growth]


class LaunchesLater(OfRanks, frozen=True, kw_only=True, tag="launches_later"):
    """Ranks whose host launches the first call of an iteration later than it did."""

    later_s: float

    def _sentence(self) -> str:
        return (
            f"rank{'s' if self.n_ranks > 1 else ''} {', '.join(map(str, self.ranks))}: the host launches its first "
            f"call of an iteration {self.later_s * 1e3:.1f} ms later than before, the others' hosts do not"
        )


class WorkForAll(Piece, frozen=True, kw_only=True, tag="work_for_all"):
    """What one rank does for all, in a rhythm of steps or of seconds."""

    rank: Int64
    every: float
    unit: Literal["steps", "s"]

    def _sentence(self) -> str:
        every = f"{self.every:.0f} steps" if self.unit == "steps" else f"{self.every:.1f} s"
        return f"rank {self.rank} alone, every {every}: work that it does for all (a log, an evaluation, a checkpoint)"


class OthersWait(OfRanks, frozen=True, kw_only=True, tag="others_wait"):
    """For whom the others wait in a stretch of calls: shares of the time, of a typical rank and of the named ones."""

    n_rounds: Int64
    waiting_share: float
    own_share: float

    def _sentence(self) -> str:
        return (
            f"in {self.n_rounds} rounds the ranks wait for others {self.waiting_share:.0%} of their time, "
            f"rank{'s' if self.n_ranks > 1 else ''} {', '.join(map(str, self.ranks))} at most {self.own_share:.0%}"
        )
