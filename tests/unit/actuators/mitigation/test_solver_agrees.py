"""Micro-batches against a solver of mixed-integer programs, with memory caps, over many random cases."""

from __future__ import annotations

import numpy as np
import pytest

from actuators.mitigation.microbatches import distribute


def solved(times: np.ndarray, total: int, caps: np.ndarray) -> float:
    """The least bottleneck, proven: T and whole m_i with m_i t_i <= T."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    n = len(times)
    found = milp(
        c=np.append(np.zeros(n), 1.0),
        constraints=[
            LinearConstraint(np.hstack([np.diag(times), -np.ones((n, 1))]), ub=np.zeros(n)),
            LinearConstraint(np.append(np.ones(n), 0.0)[None, :], lb=total, ub=total),
        ],
        integrality=np.append(np.ones(n), 0),
        bounds=Bounds(lb=np.append(np.ones(n), 0.0), ub=np.append(caps, np.inf)),
        options={"mip_rel_gap": 0.0},
    )
    assert found.status == 0, found.message
    return float((np.round(found.x[:n]) * times).max())


def check(cases: int, most_replicas: int) -> None:
    rng = np.random.default_rng(7)
    for _ in range(cases):
        n = int(rng.integers(2, most_replicas + 1))
        times = rng.uniform(1.0, rng.choice([1.05, 2.0, 20.0]), n)
        caps = rng.integers(2, 40, n)
        total = int(rng.integers(n, caps.sum() + 1))
        assert distribute(times, total, caps).bottleneck_s == pytest.approx(solved(times, total, caps), rel=1e-9)


def test_a_solver_finds_nothing_better() -> None:
    pytest.importorskip("scipy")
    check(cases=4, most_replicas=6)


@pytest.mark.prove
def test_a_solver_finds_nothing_better_in_many_cases() -> None:
    check(cases=300, most_replicas=32)
