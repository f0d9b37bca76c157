"""When to go on to the next action: multi-level ski rental (Falcon 5.2, algorithm 1), and what the past changes of it.

A fail-slow takes r_0 seconds of every second, for nobody knows how long. Action i costs c_i and leaves r_i (r_0 >= r_1
>= ...). With L the loss so far, Falcon takes action i when L reaches c_i. Write C_i for c_1 + ... + c_i. Whoever knew
the end would have taken one action j at once, or none: OPT(t) = min_j (c_j + r_j t), c_0 = 0.

**Bound.** Let action i be taken when L = x_i, x_1 <= x_2 <= .... After it was taken the loss grows by r_i at most, so
L(t) <= x_j + r_j t and c_j + r_j t >= c_j + L - x_j for every action j that was taken; for those that were not it is
>= c_(i+1); and nothing done would have cost at least L. With d_i = min(0, min_(j<=i) (c_j - x_j)) therefore

    cost / OPT  <=  max over i, and over L in [x_i, x_(i+1)], of  (L + C_i) / min(L + d_i, c_(i+1))

whatever the r_i are and whenever it ends: `worst_ratio`. It is largest at the ends of these intervals. For x = c it is
at most 2 + max_i C_(i-1) / c_i: exactly 2 for one action, and for several a little more, because each is paid for. (2
cannot be reached with several. Let the last one end the loss, and be taken at t: who has paid for another one before
has paid more than OPT(t) by then, and pays c_k besides, which is not below OPT(t).)

**With a past.** Of how long such fail-slows lasted, S(t) is known (`survival`). The x_i are chosen so that the expected
cost  sum_i r_i (I(t_(i+1)) - I(t_i)) + c_i S(t_i),  I the integral of S, is least within lambda c_i <= x_i <= c_i /
lambda, where that saves `LEAST_SAVING_SHARE` at least. If the past misleads, at most 1 + (1 + max_i C_(i-1) / c_i) /
lambda times the optimum is paid: `stated_bound` (for one action 1 + 1/lambda, which is the best there is for such
advice).

References
----------
Falcon 5.2; Purohit, Svitkina, Kumar: Improving online algorithms via ML predictions (NeurIPS 2018), theorem 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from actuators.mitigation.survival import Floats, Survival
from actuators.mitigation.thresholds import LEAST_PAST, LEAST_SAVING_SHARE, MOMENTS_PER_ACTION, TRUST_IN_THE_PAST

_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """At which losses actions are due.

    Attributes
    ----------
    losses_s
        One for each action, in the order of their prices.
    worst_ratio
        What is paid is at most so many times the optimum, however long it lasts.
    expected_s, expected_without_s
        What the past makes one expect to pay, and what at Falcon's moments; `None` where it says nothing.

    """

    losses_s: tuple[float, ...]
    worst_ratio: float
    expected_s: float | None = None
    expected_without_s: float | None = None


def switches(
    prices_s: Sequence[float],
    rates: Sequence[float],
    past: Survival | None = None,
    trust: float = TRUST_IN_THE_PAST,
    n_moments: int = MOMENTS_PER_ACTION,
) -> Switches:
    """When each action is due.

    Parameters
    ----------
    prices_s
        What each action costs, ascending.
    rates
        Loss in seconds per second: before any action, and after each.
    past
        How long such fail-slows lasted; it counts from `LEAST_PAST` that have ended.
    trust
        Lambda: 1 is Falcon's algorithm, near 0 believes the past and bounds nothing.
    n_moments
        That are tried for each action.

    Raises
    ------
    ValueError
        Prices that do not ascend or are not positive, rates that grow, trust outside (0, 1].

    Examples
    --------
    >>> switches([5.0, 60.0], [0.3, 0.1, 0.05]).losses_s
    (5.0, 60.0)

    """
    _check(prices_s, rates, trust)
    falcon = tuple(map(float, prices_s))
    if past is None or past.n_ended < LEAST_PAST or not prices_s or rates[0] == 0.0:
        return Switches(losses_s=falcon, worst_ratio=worst_ratio(prices_s, falcon))
    tried = _tried(prices_s, trust, n_moments)
    expected = _expected(prices_s, rates, past, tried)
    ratios = np.array([worst_ratio(prices_s, row) for row in tried])
    expected[ratios > stated_bound(prices_s, trust) + _CLOSE] = np.inf
    without_s = float(_expected(prices_s, rates, past, np.array([falcon]))[0])
    best = int(np.argmin(expected))
    if expected[best] > without_s * (1 - LEAST_SAVING_SHARE):
        return Switches(
            losses_s=falcon,
            worst_ratio=worst_ratio(prices_s, falcon),
            expected_s=without_s,
            expected_without_s=without_s,
        )
    return Switches(
        losses_s=tuple(map(float, tried[best])),
        worst_ratio=float(ratios[best]),
        expected_s=float(expected[best]),
        expected_without_s=without_s,
    )


def worst_ratio(prices_s: Sequence[float], losses_s: Sequence[float]) -> float:
    """What is paid over the optimum at the worst, for actions that are taken at these losses.

    >>> worst_ratio([100.0], [100.0]), worst_ratio([100.0], [50.0]), worst_ratio([100.0], [200.0])
    (2.0, 3.0, 3.0)
    """
    worst, paid_s, late_s = 1.0, 0.0, 0.0
    for i in range(len(prices_s) + 1):
        next_s = prices_s[i] if i < len(prices_s) else np.inf
        ends_s = ([losses_s[i - 1]] if i else []) + ([losses_s[i]] if i < len(prices_s) else [])
        for loss_s in ends_s:
            worst = max(worst, (loss_s + paid_s) / min(loss_s + late_s, next_s))
        if i < len(prices_s):
            paid_s += prices_s[i]
            late_s = min(late_s, prices_s[i] - losses_s[i])
    return worst


def stated_bound(prices_s: Sequence[float], trust: float = TRUST_IN_THE_PAST) -> float:
    """What is never exceeded, by these prices alone: 1 + (1 + s) / lambda, s what was paid before over the next price.

    >>> stated_bound([100.0], 1.0), stated_bound([100.0], 0.5), round(stated_bound([5.0, 60.0, 1200.0], 1.0), 3)
    (2.0, 3.0, 2.083)
    """
    before = [0.0, *accumulate(prices_s)]
    share = max((paid_s / price_s for paid_s, price_s in zip(before[:-1], prices_s, strict=True)), default=0.0)
    return 1.0 + (1.0 + share) / trust


def paid_s(
    duration_s: float, prices_s: Sequence[float], rates: Sequence[float], losses_s: Sequence[float]
) -> tuple[float, int]:
    """What a fail-slow of some duration costs in all, and how many actions were taken."""
    loss_s = time_s = spent_s = 0.0
    for i, (price_s, switch_s) in enumerate(zip(prices_s, losses_s, strict=True)):
        until_s = time_s + (switch_s - loss_s) / rates[i] if rates[i] > 0 else np.inf
        if until_s > duration_s:
            return spent_s + loss_s + rates[i] * (duration_s - time_s), i
        loss_s, time_s, spent_s = switch_s, until_s, spent_s + price_s
    return spent_s + loss_s + rates[len(prices_s)] * (duration_s - time_s), len(prices_s)


def optimum_s(duration_s: float, prices_s: Sequence[float], rates: Sequence[float]) -> float:
    """What somebody would pay who knew the duration: one action at once, or none."""
    return min(price_s + rate * duration_s for price_s, rate in zip((0.0, *prices_s), rates, strict=True))


def _tried(prices_s: Sequence[float], trust: float, n_moments: int) -> Floats:
    """`(n, k)`: losses at which the k actions may be taken, none before a cheaper one."""
    grid = np.geomspace(trust, 1 / trust, n_moments)
    grid[n_moments // 2] = 1.0
    axes = np.meshgrid(*(grid * price_s for price_s in prices_s), indexing="ij")
    rows = np.stack([axis.ravel() for axis in axes], axis=1)
    return np.asarray(rows[(np.diff(rows, axis=1) >= 0).all(axis=1)])


def _expected(prices_s: Sequence[float], rates: Sequence[float], past: Survival, losses_s: Floats) -> Floats:
    """`(n,)`: what is paid on average for each row of losses."""
    n, k = losses_s.shape
    before_s, since_s = np.zeros(n), np.zeros(n)
    total_s = np.zeros(n)
    for i in range(k):
        wait_s = (
            (losses_s[:, i] - before_s) / rates[i] if rates[i] > 0 else np.where(losses_s[:, i] > before_s, np.inf, 0)
        )
        until_s = since_s + wait_s
        total_s += rates[i] * (past.mean_until(until_s) - past.mean_until(since_s))
        total_s += prices_s[i] * past.longer_than(until_s)
        before_s, since_s = losses_s[:, i], until_s
    return np.asarray(total_s + rates[k] * (past.mean_until(np.inf) - past.mean_until(since_s)))


def _check(prices_s: Sequence[float], rates: Sequence[float], trust: float) -> None:
    if any(price_s <= 0 for price_s in prices_s) or list(prices_s) != sorted(prices_s):
        raise ValueError(f"prices {list(prices_s)} must be positive and ascend; sort the actions by their price")
    if len(rates) != len(prices_s) + 1 or list(rates) != sorted(rates, reverse=True) or rates[-1] < 0:
        raise ValueError(
            f"rates {list(rates)} must be one more than the {len(prices_s)} prices, not negative, and must not grow"
        )
    if not 0 < trust <= 1:
        raise ValueError(f"trust is {trust}; it lies above 0 and at 1 at most")
