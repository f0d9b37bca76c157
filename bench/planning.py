"""How long it takes to plan micro-batches, places of ranks and sequences, and that micro-batches are the best."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from actuators.mitigation.microbatches import distribute
from actuators.mitigation.sequences import Work, micro_batches, partition
from actuators.mitigation.survival import Floats
from actuators.mitigation.topology import plan_topology
from pacehound.model.topology import Layout

REPEATS = 30
GROUPS = (8, 32, 128, 512, 4096)
PROVEN_GROUPS = (8, 32, 128, 512)
"""HiGHS is asked for these; what it does not prove within `SOLVER_LIMIT_S` is left open and said so."""
SOLVER_LIMIT_S = 10.0
PER_GROUP = 16
RANKS_PER_HOST = 8


def run() -> list[dict[str, Any]]:
    """One row per size and figure."""
    return [*_micro_batches(), *_topology(), *_sequences()]


def _micro_batches() -> list[dict[str, Any]]:
    rows = []
    for n in GROUPS:
        times = speeds(n)
        total = PER_GROUP * n
        ours_s = _seconds(partial(distribute, times, total))
        plan = distribute(times, total)
        even = PER_GROUP * float(times.max())
        case = f"{n:,} replicas, {total:,} micro-batches"
        rows += [
            {"case": case, "figure": "distribute", "value": 1e3 * ours_s, "unit": "ms"},
            {
                "case": case,
                "figure": "bottleneck, of an even distribution's",
                "value": plan.bottleneck_s / even,
                "unit": "x",
            },
        ]
        if n in PROVEN_GROUPS:
            begun_s = time.perf_counter()
            status, found_s = _highs(times, total)
            took_s = time.perf_counter() - begun_s
            rows += [
                {"case": case, "figure": f"HiGHS ({status})", "value": 1e3 * took_s, "unit": "ms"},
                {"case": case, "figure": "HiGHS takes, of ours", "value": took_s / ours_s, "unit": "x"},
                {"case": case, "figure": "its bottleneck, of ours", "value": found_s / plan.bottleneck_s, "unit": "x"},
            ]
    return rows


def speeds(n: int) -> Floats:
    """Seconds per micro-batch: nearly the same, and one replica of sixteen is up to three times as slow."""
    rng = np.random.default_rng(0)
    times = rng.uniform(1.0, 1.05, n)
    slow = rng.choice(n, max(n // 16, 1), replace=False)
    times[slow] *= rng.uniform(1.1, 3.0, len(slow))
    return np.asarray(times)


def _highs(times: Floats, total: int) -> tuple[str, float]:
    """The same as a mixed-integer program: T, and m_i with m_i t_i <= T."""
    n = len(times)
    below = np.hstack([np.diag(times), -np.ones((n, 1))])
    found = milp(
        c=np.append(np.zeros(n), 1.0),
        constraints=[
            LinearConstraint(below, ub=np.zeros(n)),
            LinearConstraint(np.append(np.ones(n), 0.0)[None, :], lb=total, ub=total),
        ],
        integrality=np.append(np.ones(n), 0),
        bounds=Bounds(lb=np.append(np.ones(n), 0.0), ub=np.inf),
        options={"time_limit": SOLVER_LIMIT_S, "mip_rel_gap": 0.0},
    )
    status = {0: "proven", 1: "stopped"}.get(found.status, str(found.status))
    return status, np.inf if found.x is None else float((np.round(found.x[:n]) * times).max())


def _topology() -> list[dict[str, Any]]:
    rows = []
    for layout in (Layout(tp=8, dp=64, pp=8), Layout(tp=1, dp=512, pp=8)):
        rng = np.random.default_rng(0)
        hosts = [f"h{rank // RANKS_PER_HOST}" for rank in range(layout.world_size)]
        n_hosts = layout.world_size // RANKS_PER_HOST
        first = rng.choice(n_hosts - 1, 8, replace=False)
        links = [(int(h) * RANKS_PER_HOST, int(h + 1) * RANKS_PER_HOST) for h in first]
        stragglers = sorted(rng.choice(layout.world_size, 12, replace=False).tolist())
        planned = partial(plan_topology, layout, hosts, slow_links=links, stragglers=stragglers)
        plan, took_s = planned(), _seconds(planned, repeats=3)
        case = f"4,096 ranks ({layout.tp}TP, {layout.dp}DP, {layout.pp}PP), 8 slow links, 12 stragglers"
        rows += [
            {"case": case, "figure": "plan the places", "value": 1e3 * took_s, "unit": "ms"},
            {"case": case, "figure": "ranks that move", "value": len(plan.moves), "unit": ""},
            {"case": case, "figure": "traffic on slow links before", "value": plan.congested_before, "unit": "edges"},
            {"case": case, "figure": "traffic on slow links after", "value": plan.congested_after, "unit": "edges"},
            {"case": case, "figure": "stages with stragglers before", "value": plan.shares_before, "unit": ""},
            {"case": case, "figure": "stages with stragglers after", "value": plan.shares_after, "unit": ""},
        ]
    return rows


def _sequences() -> list[dict[str, Any]]:
    n_ranks, work = 1024, Work()
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(6.5, 1.3, n_ranks * PER_GROUP), 32_768).astype(int).tolist()
    parts = partition(lengths, n_ranks, work)
    loads = [sum(work.of(lengths[i]) for i in part) for part in parts]
    unsorted = [sum(work.of(length) for length in lengths[rank::n_ranks]) for rank in range(n_ranks)]
    least = max(sum(loads) / n_ranks, max(map(work.of, lengths)))

    def both() -> None:
        for part in partition(lengths, n_ranks, work):
            micro_batches(part, lengths, 4)

    case = f"{n_ranks:,} ranks, {len(lengths):,} sequences"
    return [
        {
            "case": case,
            "figure": "to ranks",
            "value": 1e3 * _seconds(lambda: partition(lengths, n_ranks, work), 5),
            "unit": "ms",
        },
        {"case": case, "figure": "to ranks and micro-batches", "value": 1e3 * _seconds(both, 5), "unit": "ms"},
        {"case": case, "figure": "slowest rank, of the least that can be", "value": max(loads) / least, "unit": "x"},
        {
            "case": case,
            "figure": "as they come: slowest rank, of the same",
            "value": max(unsorted) / least,
            "unit": "x",
        },
    ]


def _seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The shortest of some repeats, on the CPU's clock."""
    times = []
    for _ in range(repeats):
        before_s = time.process_time()
        work()
        times.append(time.process_time() - before_s)
    return min(times)
