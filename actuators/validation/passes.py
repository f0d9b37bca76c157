"""Which links are measured at the same time: all of them in a number of passes that does not grow with the ranks.

Falcon 4.3 and figure 9: a communicator is divided into transfers between two ranks that share nobody. A ring takes two
passes, or three where its ranks are odd in number; a binary tree takes four.
"""

from __future__ import annotations

from collections.abc import Sequence

from pacehound.errors import InvalidInput

Link = tuple[int, int]
"""Who sends, and to whom: positions in the communicator."""

Pass = tuple[Link, ...]
"""Transfers at the same time; nobody is in two of them."""


def ring_passes(n_ranks: int) -> tuple[Pass, ...]:
    """The links `i -> i + 1` of a ring, each once.

    >>> ring_passes(4)
    (((0, 1), (2, 3)), ((1, 2), (3, 0)))
    >>> ring_passes(3)
    (((0, 1),), ((1, 2),), ((2, 0),))
    >>> ring_passes(1)
    ()
    """
    if n_ranks < 2:
        return ()
    whole = n_ranks - n_ranks % 2
    passes = [
        tuple((rank, rank + 1) for rank in range(0, whole, 2)),
        tuple((rank, (rank + 1) % n_ranks) for rank in range(1, n_ranks if whole == n_ranks else n_ranks - 1, 2)),
    ]
    if whole != n_ranks:
        passes.append(((n_ranks - 1, 0),))
    return tuple(passes)


def tree_passes(parents: Sequence[int]) -> tuple[Pass, ...]:
    """The links from each rank of a binary tree to its parent, each once.

    Parameters
    ----------
    parents
        Of each rank; -1 for the root.

    Raises
    ------
    InvalidInput
        It is no binary tree: a rank has three children, none is the root or two are, or there is a circle.

    Examples
    --------
    >>> tree_passes([1, -1, 1])
    (((0, 1),), ((2, 1),))

    """
    children: dict[int, list[int]] = {}
    for rank, parent in enumerate(parents):
        if not -1 <= parent < len(parents) or parent == rank:
            raise InvalidInput(f"rank {rank} has the parent {parent} in a tree of {len(parents)} ranks")
        children.setdefault(parent, []).append(rank)
    if len(children.get(-1, ())) != 1:
        raise InvalidInput(f"a tree has one root, not {len(children.get(-1, ()))}")
    crowded = [parent for parent, below in children.items() if len(below) > 2]
    if crowded:
        n_children = len(children[crowded[0]])
        raise InvalidInput(f"rank {crowded[0]} has {n_children} children; a binary tree has two at most")
    levels = {children[-1][0]: 0}
    waiting = [children[-1][0]]
    for parent in waiting:
        for rank in children.get(parent, ()):
            levels[rank] = levels[parent] + 1
            waiting.append(rank)
    if len(levels) != len(parents):
        raise InvalidInput(f"{len(parents) - len(levels)} ranks go in a circle: they hang from no root")
    # Senders of one pass are on levels of one parity, so that nobody sends and receives; left and right children apart.
    passes = [
        tuple(
            (below[side], parent)
            for parent, below in sorted(children.items())
            if parent >= 0 and len(below) > side and levels[below[side]] % 2 == parity
        )
        for parity in (1, 0)
        for side in (0, 1)
    ]
    return tuple(one for one in passes if one)


def reversed_passes(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """The same links the other way: a cable may be slow in one direction.

    >>> reversed_passes(ring_passes(2))
    (((1, 0),), ((0, 1),))
    """
    return tuple(tuple((there, here) for here, there in one) for one in passes)
