"""Where ranks are: the TP x DP x PP layout of a job, and the rings and trees that communicators use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Ranks in a tensor x data x pipeline grid, in Megatron's default order (tp fastest, then dp, then pp).

    `rank = tp_index + tp * (dp_index + dp * pp_index)`

    >>> layout = Layout(tp=2, dp=2, pp=2)
    >>> layout.world_size, layout.position(5)
    (8, (1, 0, 1))
    >>> list(layout.groups("tp"))
    [(0, 1), (2, 3), (4, 5), (6, 7)]
    >>> list(layout.groups("pp"))
    [(0, 4), (1, 5), (2, 6), (3, 7)]
    """

    tp: int = 1
    dp: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "dp", "pp"):
            if getattr(self, name) < 1:
                raise ValueError(f"layout has {name}={getattr(self, name)}; a parallel size is at least 1")

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp * self.dp * self.pp

    def position(self, rank: int) -> tuple[int, int, int]:
        """(tp, dp, pp) indices of a rank."""
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is outside the world of {self.world_size}")
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def rank(self, tp_index: int, dp_index: int, pp_index: int) -> int:
        """World rank at a position of the grid."""
        return tp_index + self.tp * (dp_index + self.dp * pp_index)

    def groups(self, kind: str) -> Iterator[tuple[int, ...]]:
        """World ranks of each `"tp"`, `"dp"` or `"pp"` group, smallest first rank first."""
        if kind == "tp":
            for pp_index in range(self.pp):
                for dp_index in range(self.dp):
                    yield tuple(self.rank(t, dp_index, pp_index) for t in range(self.tp))
        elif kind == "dp":
            for pp_index in range(self.pp):
                for tp_index in range(self.tp):
                    yield tuple(self.rank(tp_index, d, pp_index) for d in range(self.dp))
        elif kind == "pp":
            for dp_index in range(self.dp):
                for tp_index in range(self.tp):
                    yield tuple(self.rank(tp_index, dp_index, p) for p in range(self.pp))
        else:
            raise ValueError(f"unknown kind of group {kind!r}; use 'tp', 'dp' or 'pp'")


def ring_edges(ranks: tuple[int, ...]) -> list[tuple[int, int]]:
    """Directed links of a ring over `ranks`, in order.

    >>> ring_edges((4, 5, 7))
    [(4, 5), (5, 7), (7, 4)]
    """
    if len(ranks) < 2:
        return []
    return [(ranks[i], ranks[(i + 1) % len(ranks)]) for i in range(len(ranks))]
