"""How long fail-slows of a kind last, from those that were seen, some of which still went on when they were last seen.

    S(t) = product over ends t_k <= t of (1 - ended_k / at_risk_k)

Kaplan and Meier's estimate: an incident that was cut off (its job ended, nobody watched any longer, it goes on) has
lasted at least so long, and counts as at risk until then. To leave such ones out would make fail-slows look short,
for it is the long ones that are cut off. Beyond the longest that was seen the curve goes on as an exponential, with
as many ends per second as there were on the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """How long one lasted; `has_ended` is False where it had not ended when it was last seen."""

    duration_s: float
    has_ended: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """The share that lasts longer than a time.

    Attributes
    ----------
    ends_s, shares
        `(n_ends,)`: the times at which some ended, and the share that lasted longer than each.
    rate_per_s
        Ends per second at risk: what the tail goes on with.
    n_ended, n_cut_off
        Of how many.

    """

    ends_s: Floats
    shares: Floats
    rate_per_s: float
    n_ended: int
    n_cut_off: int

    def longer_than(self, times_s: npt.ArrayLike) -> Floats:
        """S at some times."""
        at = np.asarray(times_s, np.float64)
        steps = np.concatenate([[1.0], self.shares])
        share = steps[np.searchsorted(self.ends_s, at, side="right")]
        last_s = self.ends_s[-1]
        beyond = np.maximum(np.where(np.isinf(at), np.inf, at) - last_s, 0.0)
        return np.asarray(share * np.exp(-self.rate_per_s * beyond))

    def mean_until(self, times_s: npt.ArrayLike) -> Floats:
        """The integral of S from 0: for how long, on average, one is there until then."""
        at = np.asarray(times_s, np.float64)
        steps = np.concatenate([[1.0], self.shares])
        corners = np.concatenate([[0.0], self.ends_s])
        areas = np.concatenate([[0.0], np.cumsum(steps[:-1] * np.diff(corners))])
        k = np.searchsorted(self.ends_s, at, side="right")
        last_s = self.ends_s[-1]
        within = areas[k] + steps[k] * (np.minimum(at, last_s) - np.minimum(corners[k], last_s))
        tail = steps[-1] * -np.expm1(-self.rate_per_s * np.maximum(at - last_s, 0.0)) / self.rate_per_s
        return np.asarray(within + tail)


def kaplan_meier(past: Iterable[Past]) -> Survival | None:
    """The curve; `None` where none has ended, for then nothing is known of how long they last.

    >>> curve = kaplan_meier([Past(duration_s=10), Past(duration_s=20, has_ended=False), Past(duration_s=30)])
    >>> curve.longer_than([5, 10, 30]).round(3).tolist()
    [1.0, 0.667, 0.0]

    References
    ----------
    Kaplan, Meier: Nonparametric estimation from incomplete observations (1958).

    """
    known = [one for one in past if one.duration_s >= 0]
    durations = np.array([one.duration_s for one in known], np.float64)
    has_ended = np.array([one.has_ended for one in known], bool)
    if not has_ended.any() or durations.sum() <= 0:
        return None
    ends_s, ended = np.unique(durations[has_ended], return_counts=True)
    at_risk = len(durations) - np.searchsorted(np.sort(durations), ends_s, side="left")
    return Survival(
        ends_s=ends_s,
        shares=np.asarray(np.cumprod(1.0 - ended / at_risk), np.float64),
        rate_per_s=float(has_ended.sum() / durations.sum()),
        n_ended=int(has_ended.sum()),
        n_cut_off=int((~has_ended).sum()),
    )
