"""S2: how many micro-batches each replica computes, so that the slowest is done as early as can be; exact.

    minimise  max_i m_i t_i      subject to  sum_i m_i = M,  1 <= m_i <= cap_i,  m_i whole

A bottleneck T suffices if the replicas can take M micro-batches that take T or less each: sum_i min(cap_i, floor(T /
t_i)) >= M. That sum grows with T, so the least T is found by bisection, here from a secant's point that leaves less
than one micro-batch per replica to give away; the last ones go, one by one, to where they end earliest. What comes out
is not only an optimum: no other distribution has a smaller largest time, nor a smaller second largest with that one,
and so on.

Falcon minimises the variance of m_i t_i instead (equation 1, which it calls equivalent; it is not: its bottleneck may
be larger), by a quadratic program over whole numbers that takes 36 s for 512 replicas (table 6). `quadratic` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from actuators.mitigation.survival import Floats

Ints = npt.NDArray[np.int64]
_MOST_CUTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """A distribution over replicas.

    Attributes
    ----------
    counts
        `(n_replicas,)`: how many micro-batches each computes.
    bottleneck_s
        When the slowest is done.
    weights
        `(n_replicas,)`: what each replica multiplies the mean gradient of its micro-batches with before gradients are
        averaged over replicas, so that the update is that of the global batch.

    """

    counts: Ints
    bottleneck_s: float
    weights: Floats


def distribute(times_s: npt.ArrayLike, total: int, caps: npt.ArrayLike | None = None) -> MicroBatches:
    """The best distribution of `total` micro-batches.

    Parameters
    ----------
    times_s
        `(n_replicas,)`: seconds per micro-batch of each replica.
    total
        M, at least one for each replica.
    caps
        `(n_replicas,)`: how many fit into the memory of each; none where it is left out.

    Raises
    ------
    ValueError
        Times that are not positive and finite, fewer micro-batches than replicas, more than the caps allow.

    Examples
    --------
    >>> plan = distribute([1.0, 1.0, 1.0, 2.0], 28)
    >>> plan.counts.tolist(), plan.bottleneck_s
    ([8, 8, 8, 4], 8.0)

    """
    times = np.asarray(times_s, np.float64)
    n = len(times)
    limit = np.full(n, total, np.int64) if caps is None else np.minimum(np.asarray(caps, np.int64), total)
    _check(times, total, limit)
    counts = _lower(times, total, limit)
    _give_rest(counts, times, total - int(counts.sum()), limit)
    return MicroBatches(counts=counts, bottleneck_s=float((counts * times).max()), weights=gradient_weights(counts))


def gradient_weights(counts: npt.ArrayLike) -> Floats:
    """What makes the mean over replicas the mean over all micro-batches: m_i D / M.

    With losses that are means over tokens, give the tokens of each replica instead of its micro-batches.

    >>> gradient_weights([3, 1]).tolist()
    [1.5, 0.5]
    """
    share = np.asarray(counts, np.float64)
    return np.asarray(share * len(share) / share.sum())


def _lower(times: Floats, total: int, limit: Ints) -> Ints:
    """What fits below some bottleneck: at most `total`, and less than one micro-batch per replica fewer."""
    n = len(times)
    low_s, high_s = 0.0, np.inf
    at_s = total / float((1.0 / times).sum())
    counts = np.ones(n, np.int64)
    for _ in range(_MOST_CUTS):
        tried = (at_s / times).astype(np.int64)
        tried = np.clip(tried - (tried * times > at_s), 1, limit)  # a quotient may be rounded up to a whole number
        missing = total - int(tried.sum())
        if missing >= 0:
            counts, low_s = tried, at_s
            if missing <= n:
                break
        else:
            high_s = at_s
        # The secant over those that can still take or give, kept between what is known to be too little and too much.
        movable = (tried < limit) if missing > 0 else (tried > 1)
        speed = float((1.0 / times[movable]).sum())
        guess_s = at_s + missing / speed if speed > 0 else np.inf
        if not low_s < guess_s < high_s:
            guess_s = (low_s + high_s) / 2 if np.isfinite(high_s) else 2 * at_s
        if not low_s < guess_s < high_s:
            break  # no number lies between them
        at_s = guess_s
    return counts


def _give_rest(counts: Ints, times: Floats, rest: int, limit: Ints) -> None:
    """The rest, each to where it ends earliest: `rest` smallest of the times at which further ones would end."""
    while rest > 0:
        open_to = np.flatnonzero(counts < limit)
        ends_s = (counts[open_to] + 1) * times[open_to]
        if rest < len(open_to):
            first = np.argpartition(ends_s, rest - 1)[:rest]
            until_s = float(ends_s[first].max())
        else:
            first, until_s = np.arange(len(open_to)), float(ends_s.max())
        # Somebody may take a second one before the last of these takes its first.
        again_s = ends_s[first] + times[open_to][first]
        if (again_s < until_s).any():
            until_s = min(until_s, float(again_s.min()))
            first = np.flatnonzero(ends_s <= until_s)
            first = first[np.argsort(ends_s[first], kind="stable")][:rest]
        counts[open_to[first]] += 1
        rest -= len(first)


def _check(times: Floats, total: int, limit: Ints) -> None:
    n = len(times)
    if n == 0 or not np.isfinite(times).all() or (times <= 0).any():
        wrong = times[~(np.isfinite(times) & (times > 0))][:3].tolist()
        raise ValueError(
            f"times per micro-batch must be positive and finite, of one replica at least; there are {wrong}"
        )
    if len(limit) != n or (limit < 1).any():
        raise ValueError(f"caps must be {n} numbers of at least 1; a replica that takes none has to leave the job")
    if total < n:
        raise ValueError(f"{total} micro-batches are fewer than {n} replicas; each computes one at least")
    if int(limit.sum()) < total:
        raise ValueError(f"memory allows {int(limit.sum())} micro-batches and there are {total}; raise the caps")


def in_words(before: Sequence[int], after: Sequence[int]) -> str:
    """What changes, in a sentence.

    >>> in_words([8, 8, 8, 8], [9, 9, 9, 5])
    'replica 0: 8 to 9, replica 1: 8 to 9, replica 2: 8 to 9, replica 3: 8 to 5'
    """
    changed = [f"replica {i}: {b} to {a}" for i, (b, a) in enumerate(zip(before, after, strict=True)) if a != b]
    more = f" and {len(changed) - 8} more" if len(changed) > 8 else ""
    return ", ".join(changed[:8]) + more if changed else "nothing changes"
