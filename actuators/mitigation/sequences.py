"""Sequences of a global batch to ranks and micro-batches so that all have the same work (what-if paper 5.3).

Attention makes the work of a sequence of l tokens a l + b l^2, so that micro-batches with equally many tokens take
different times. Sequences are sorted by their work, the largest first, and each goes to the rank with the least so far
(greedy multiway partition: the slowest of R ranks has at most 4/3 - 1/(3 R) times the least that can be). Within a rank
they go, the longest first, to the micro-batch with the fewest tokens so far, so that memory is even.

Every rank reckons the whole division from the same lengths, so that no sequence is agreed upon over the network.
Needs the standard library alone, for it runs in a data loader.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from actuators.mitigation.thresholds import ATTENTION_EQUALS_REST_AT_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a sequence costs: `per_token` l + `per_pair` l^2, in any unit."""

    per_token: float = 1.0
    per_pair: float = 1.0 / ATTENTION_EQUALS_REST_AT_TOKENS

    def of(self, length: int) -> float:
        """Of a sequence of so many tokens."""
        return length * (self.per_token + self.per_pair * length)


def partition(lengths: Sequence[int], n_ranks: int, work: Work | None = None) -> list[list[int]]:
    """For each rank the indices of its sequences, the largest first.

    >>> partition([8, 1, 1, 1, 7, 2], 2, Work(per_pair=0.0))
    [[0, 1, 2], [4, 5, 3]]
    """
    if n_ranks < 1:
        raise ValueError(f"{n_ranks} ranks cannot share sequences; there is one at least")
    cost = work or Work()
    known = {length: cost.of(length) for length in set(lengths)}
    costs = [known[length] for length in lengths]
    parts: list[list[int]] = [[] for _ in range(n_ranks)]
    heap = [(0.0, rank) for rank in range(n_ranks)]
    for index in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        load, rank = heap[0]
        parts[rank].append(index)
        heapq.heapreplace(heap, (load + costs[index], rank))
    return parts


def micro_batches(
    own: Sequence[int], lengths: Sequence[int], n_micro_batches: int, most_tokens: int | None = None
) -> list[list[int]]:
    """The sequences of a rank in micro-batches of even numbers of tokens.

    Raises
    ------
    ValueError
        They do not fit into so many micro-batches of `most_tokens`.

    """
    batches: list[list[int]] = [[] for _ in range(n_micro_batches)]
    heap = [(0, batch) for batch in range(n_micro_batches)]
    for index in sorted(own, key=lengths.__getitem__, reverse=True):
        tokens, batch = heap[0]
        if most_tokens is not None and tokens + lengths[index] > most_tokens:
            raise ValueError(
                f"a sequence of {lengths[index]} tokens does not fit into any of {n_micro_batches} micro-batches of"
                f" {most_tokens}; the emptiest has {tokens}: take more micro-batches or fewer sequences"
            )
        batches[batch].append(index)
        heapq.heapreplace(heap, (tokens + lengths[index], batch))
    return batches


def balanced(
    global_batches: Iterable[Sequence[int]],
    length_of: Callable[[int], int],
    *,
    rank: int,
    n_ranks: int,
    n_micro_batches: int,
    work: Work | None = None,
    most_tokens: int | None = None,
) -> Iterator[list[list[int]]]:
    """What a data loader of one replica draws: for each global batch its micro-batches, as items of the data set.

    Parameters
    ----------
    global_batches
        The items of each, the same on all ranks (a sampler with a shared seed).
    length_of
        Tokens of an item.
    rank, n_ranks
        Which replica this is, of how many.
    n_micro_batches
        Of each replica.
    work
        What a sequence costs.
    most_tokens
        Of a micro-batch, as memory allows.

    Examples
    --------
    >>> batches = [[10, 11, 12, 13]]
    >>> lengths = {10: 100, 11: 10, 12: 10, 13: 90}
    >>> list(balanced(batches, lengths.__getitem__, rank=0, n_ranks=2, n_micro_batches=1))
    [[[10]]]
    >>> list(balanced(batches, lengths.__getitem__, rank=1, n_ranks=2, n_micro_batches=1))
    [[[13, 11, 12]]]

    """
    if not 0 <= rank < n_ranks:
        raise ValueError(f"rank {rank} is none of {n_ranks} replicas; it begins at 0")
    for items in global_batches:
        lengths = [length_of(item) for item in items]
        own = partition(lengths, n_ranks, work)[rank]
        yield [[items[i] for i in batch] for batch in micro_batches(own, lengths, n_micro_batches, most_tokens)]
