"""Falcon's equation 1 through cvxpy, as a cross-check: the micro-batches with the least variance of m_i t_i.

    minimise  sum_i (m_i t_i - mean_j m_j t_j)^2   subject to  sum_i m_i = M,  m_i >= 1

Another objective than the largest time (`microbatches`), and a slower one. It is the better choice where a step does
not end with its slowest replica, as when gradients are reduced in buckets while others still compute. Open solvers
take it over whole numbers for few replicas only; beyond, the relaxation's answer is rounded and said to be so.
"""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy
import numpy as np
import numpy.typing as npt

from actuators.mitigation.microbatches import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastVariance:
    """What the solver found, and whether whole numbers are proven best or rounded."""

    counts: Ints
    variance_s2: float
    status: str


def least_variance(times_s: npt.ArrayLike, total: int) -> LeastVariance:
    """The relaxation's optimum, rounded to whole numbers by the largest remainders.

    Raises
    ------
    ValueError
        Fewer micro-batches than replicas.

    """
    times = np.asarray(times_s, np.float64)
    n = len(times)
    if total < n:
        raise ValueError(f"{total} micro-batches are fewer than {n} replicas; each computes one at least")
    counts = cvxpy.Variable(n)
    work = cvxpy.multiply(times, counts)
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares(work - cvxpy.sum(work) / n)), [cvxpy.sum(counts) == total, counts >= 1]
    )
    problem.solve(solver=cvxpy.CLARABEL)
    if counts.value is None:
        return LeastVariance(counts=np.empty(0, np.int64), variance_s2=np.nan, status=str(problem.status))
    whole = np.maximum(np.floor(counts.value + 1e-6), 1).astype(np.int64)
    remainder = counts.value - whole
    while whole.sum() < total:
        which = int(np.argmax(remainder))
        whole[which] += 1
        remainder[which] -= 1
    return LeastVariance(counts=whole, variance_s2=float(n * np.var(whole * times)), status="rounded")
