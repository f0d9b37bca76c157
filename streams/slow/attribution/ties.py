"""Ranks that wait for each other in calls that are not seen: their own times move together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.growth import Growth
from streams.slow.attribution.observations import Observations, members_of
from streams.slow.attribution.records import Float64Array, Int64Array, IterationRecord, columns_of, lost_columns
from streams.slow.thresholds import FAR_MOVE, MIN_TOGETHER, SIMILAR_GROWTH

TIED, TIED_WHEN_QUIET, TIED_AT_ALL = 0.4, 0.25, 0.15
"""Ranks whose own times correlate so much wait for each other in calls that are not seen: in all iterations, in quiet
ones, and in quiet ones with those that have lost calls.

What each of them does behind the last such call stays its own, so that they do not agree wholly.
"""

MOST_ASKED = 8
"""Others of a communicator that are asked whether they move with two of it; and where more ranks than these move
together, nobody else is asked (chosen: so many are not slow by themselves at once)."""

MOST_TRANSFERS = 32
"""Transfers, the ones that have grown most, that ranks may wait for unseen (chosen: it bounds the work)."""


def tied_ranks(
    slow: Sequence[IterationRecord],
    quiet: Sequence[IterationRecord],
    growth: Growth,
    chosen: Int64Array,
    keys: Mapping[TransferKey, int],
    observed: Observations,
) -> tuple[int, ...]:
    """The chosen ranks whose own times move together from iteration to iteration, and have grown by about as much.

    What all ranks have in common (more bytes, a slower filesystem) is taken off first, and iterations in which a rank
    has lost calls are left out for it, as long as enough are left.

    Not those whose own times move as those of others do that have not grown and are in one communicator with both: that
    is work which all of them have (tokens of one expert, say).

    And ranks of one host that no call ties to each other, but for one that takes next to no time: a job in which some
    ranks exchange nothing with others has a dimension of parallelism that is not seen.
    """
    if len(chosen) < 2:
        return ()
    ranks = growth.ranks
    # Some ranks are enough to know what all have in common.
    sample = np.unique(np.linspace(0, len(ranks) - 1, min(len(ranks), 64)).astype(np.int64))
    parts = []
    for records in (slow, quiet):
        common = _median(_moves(records, ranks[sample]), axis=1)
        moves = _without_outliers(_moves(records, ranks[chosen]) - common)
        n_seen = np.maximum((moves != 0).sum(axis=0), 1)
        parts.append(moves / np.maximum(np.sqrt((moves**2).sum(axis=0) / n_seen), 1.0))
    together, n_both = _correlation(np.concatenate(parts))
    when_quiet, n_quiet = _correlation(parts[1])
    # Where hardly an iteration is whole: nobody waits long while it is quiet, so that lost calls matter little then.
    lossy, n_lossy = _correlation(_lossy_moves(quiet, ranks[chosen]))
    is_tied = (together >= TIED) & ((when_quiet >= TIED_WHEN_QUIET) | (n_quiet < MIN_TOGETHER))
    is_tied &= (lossy >= TIED_AT_ALL) | (n_lossy < MIN_TOGETHER)
    is_tied = np.where(n_both >= MIN_TOGETHER, is_tied, (lossy >= TIED_WHEN_QUIET) | (n_lossy < MIN_TOGETHER))
    grown = growth.own[chosen]
    is_similar = np.abs(grown[:, None] - grown[None, :]) <= SIMILAR_GROWTH * np.maximum(grown[:, None], grown[None, :])
    is_tied &= is_similar & ~_have_the_same_work(quiet, common, growth, chosen, is_tied & is_similar, keys, observed)
    is_tied |= is_similar & _never_meet(ranks[chosen].tolist(), growth, keys, observed, quiet[-1].step_time_s)
    np.fill_diagonal(is_tied, False)
    return tuple(ranks[chosen[is_tied.any(axis=1)]].tolist())


def _have_the_same_work(
    quiet: Sequence[IterationRecord],
    common: Float64Array,
    growth: Growth,
    chosen: Int64Array,
    is_tied: npt.NDArray[np.bool_],
    keys: Mapping[TransferKey, int],
    observed: Observations,
) -> npt.NDArray[np.bool_]:
    """Which two of the chosen, of those tied, move with half of the others in a communicator of both; `(n, n)`.

    `common` is what all ranks have in common in each quiet iteration.
    """
    same = np.zeros_like(is_tied)
    if not is_tied.any() or len(chosen) > MOST_ASKED:
        return same
    ranks, of_chosen = growth.ranks, set(growth.ranks[chosen].tolist())
    groups = [set(members_of(key, observed)) for key in keys if not isinstance(key, tuple)]
    groups = [group for group in groups if 2 < len(group) < len(ranks) and len(group & of_chosen) > 1]
    for i, j in np.argwhere(np.triu(is_tied, 1)).tolist():
        pair = [int(ranks[chosen[i]]), int(ranks[chosen[j]])]
        others = sorted(set().union(*(group - of_chosen for group in groups if group.issuperset(pair))))[:MOST_ASKED]
        if not others:
            continue
        asked = np.array([*pair, *others], np.int64)
        whole, n_whole = _correlation(_without_outliers(np.nan_to_num(_moves(quiet, asked) - common)))
        lossy, n_lossy = _correlation(_lossy_moves(quiet, asked))
        moves_along = np.where(n_whole >= MIN_TOGETHER, whole >= TIED, (lossy >= TIED_WHEN_QUIET) & (n_lossy > 0))
        same[i, j] = same[j, i] = 2 * moves_along[:2, 2:].all(axis=0).sum() >= len(others)
    return same


def waits_for_transfers(
    slow: Sequence[IterationRecord],
    growth: Growth,
    chosen: Int64Array,
    keys: Mapping[TransferKey, int],
    observed: Observations,
) -> npt.NDArray[np.bool_]:
    """Which of the chosen ranks seem to wait, in calls that are not seen, for others whose transfers take longer.

    Their own times have grown by as much as a communicator's or a pair's transfers to which they do not belong, and go
    up and down with these. Shape `(n_chosen,)`.
    """
    waits = np.zeros(len(chosen), np.bool_)
    if not len(chosen) or not len(keys):
        return waits
    ranks = growth.ranks[chosen]
    own = columns_of(slow, "own_ns", ranks)
    own[lost_columns(slow, ranks) > 0] = np.nan
    # Of typical iterations: a lost call makes one transfer shorter, and the own time of who waits for it longer.
    typical = _median(own, axis=0)
    grown = np.where(np.isfinite(own).any(axis=0), typical[0] - growth.quiet_own[chosen], growth.own[chosen])
    moves = _without_outliers(np.nan_to_num(own - typical))
    names = list(keys)
    longest = np.argsort(-growth.transfer, kind="stable")[:MOST_TRANSFERS]
    for number in longest[growth.transfer[longest] >= 0.5 * growth.own[chosen].min()].tolist():
        took_ns = np.array([r.transfer_ns[number] if number < len(r.transfer_ns) else 0.0 for r in slow], np.float64)
        transfer = float(np.median(took_ns)) - float(growth.quiet_transfer[number])
        is_similar = np.abs(grown - transfer) <= SIMILAR_GROWTH * np.maximum(grown, transfer)
        others = ~np.isin(ranks, members_of(names[number], observed))
        together, n_both = _correlation(moves, _without_outliers((took_ns - np.median(took_ns))[:, None]))
        waits |= is_similar & others & ((n_both < MIN_TOGETHER) | (together >= TIED))[:, 0]
    return waits


def _never_meet(
    of: Sequence[int], growth: Growth, keys: Mapping[TransferKey, int], observed: Observations, step_time_s: float
) -> npt.NDArray[np.bool_]:
    """Which two of some ranks are on one host and in no way tied by calls, shape `(n, n)`."""
    hosts = [observed.hosts.get(rank) for rank in of]
    same = np.array([[a == b and a is not None for b in hosts] for a in hosts]) & ~np.eye(len(of), dtype=np.bool_)
    if not same.any():
        return same
    root: dict[int, int] = {}

    def found(rank: int) -> int:
        while root.setdefault(rank, rank) != rank:
            root[rank] = root[root[rank]]
            rank = root[rank]
        return rank

    for key, number in keys.items():
        members = members_of(key, observed)
        is_light = len(members) == len(growth.ranks) and growth.quiet_transfer[number] < 1e7 * step_time_s
        if len(members) > 1 and growth.quiet_transfer[number] > 0 and not is_light:
            first = found(members[0])
            for rank in members[1:]:
                root[found(rank)] = first
    roots = np.array([found(rank) for rank in of])
    never_meet: npt.NDArray[np.bool_] = same & (roots[:, None] != roots[None, :])
    return never_meet


def _median(values: Float64Array, *, axis: int) -> Float64Array:
    """Over what was seen along an axis, which keeps one place; 0 where nothing was."""
    ordered = np.sort(values, axis=axis)  # NaN goes last
    n_seen = np.isfinite(values).sum(axis=axis, keepdims=True)
    return np.nan_to_num(np.take_along_axis(ordered, np.maximum(n_seen - 1, 0) // 2, axis=axis))


def _moves(records: Sequence[IterationRecord], ranks: Int64Array) -> Float64Array:
    """Own times less the median of each rank, shape `(n_iterations, n_ranks)`; NaN where a rank has lost calls."""
    own = columns_of(records, "own_ns", ranks)
    own[lost_columns(records, ranks) > 0] = np.nan
    moves: Float64Array = own - _median(own, axis=0)
    return moves


def _lossy_moves(records: Sequence[IterationRecord], ranks: Int64Array) -> Float64Array:
    """The same of all iterations, less the mean: here a lost call is what lies far off, and all of it counts.

    Without it ranks that have nothing to do with each other were taken for tied by a few iterations (correlations of
    0.26 to 0.36, over 22 to 27).
    """
    own = columns_of(records, "own_ns", ranks)
    n_seen = np.maximum(np.isfinite(own).sum(axis=0), 1)
    moves: Float64Array = np.nan_to_num(own - np.nansum(own, axis=0) / n_seen)
    return moves


def _without_outliers(moves: Float64Array) -> Float64Array:
    """Moves of `(n_iterations, n_ranks)`; 0 where they were not seen, or are much further from 0 than most of a rank's.

    Whoever waits for another rank does so in every iteration. One pause of a host, which all of its ranks felt, would
    else be all that a correlation sees.
    """
    size = np.where(moves != 0, np.abs(moves), np.nan)
    kept: Float64Array = np.where(size <= FAR_MOVE * _median(size, axis=0), moves, 0.0)
    return kept


def _correlation(moves: Float64Array, others: Float64Array | None = None) -> tuple[Float64Array, Float64Array]:
    """Of each column of `(n_iterations, n_ranks)` with each of the others', its own where there are none.

    Where neither is 0, and over how many iterations that is.
    """
    others = moves if others is None else others
    seen, others_seen = (moves != 0).astype(np.float64), (others != 0).astype(np.float64)
    spread = np.sqrt((moves**2).T @ others_seen * (seen.T @ others**2))
    return (moves.T @ others) / np.maximum(spread, 1e-9), seen.T @ others_seen
