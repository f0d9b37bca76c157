"""Falcon's experiments on mitigation (7.3 and 7.5), simulated, beside what it has published."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any, Literal

import numpy as np

from actuators.mitigation.microbatches import distribute
from actuators.mitigation.survival import Floats, Past, Survival, kaplan_meier
from actuators.mitigation.topology import plan_topology
from bench.rig.hybrid_job import Faults, HybridJob, job_of
from bench.rig.mitigated_run import FailSlow, Policy, Prices, run_trace, scaled
from pacehound.model.topology import Layout

SEEDS = (0, *range(101, 111))
"""One that is fixed, and ten others."""
HOUR_S = 3600.0
OWN_PRICES = Prices(micro_batches_s=1.0, topology_s=8.0, move_s=0.5)
"""Micro-batches: no pause, an order that reaches everybody a step ahead. Places: only who moves dumps and swaps, 52 GB
of parameters and optimizer state of a GPU (13 billion parameters, 16 bytes each, over 4 stages) to the host's memory
and back at 25 GB/s and over 50 GB/s between hosts: 6 s, 2 s for the hold, half a second for each rank that moves.
Assumed, not measured: applying is another part of the project."""


def run() -> list[dict[str, Any]]:
    """One row per experiment and figure."""
    return [
        *_figure_13(),
        *_figure_14(),
        *_figure_15(),
        *_figure_16(),
        *(row for one in EXPERIMENTS for row in _at_scale(one)),
    ]


def _row(case: str, figure: str, value: float, unit: str = "%") -> dict[str, Any]:
    return {"case": case, "figure": figure, "value": value, "unit": unit}


def _figure_13() -> Iterator[dict[str, Any]]:
    """S2 with one slow GPU of eight, by replicas."""
    for dp, published in ((2, 55.3), (4, 77.8), (8, 64.9)):
        job = job_of(Layout(tp=8 // dp, dp=dp), per_host=8, per_replica=32, iteration_s=1.0, reduce_share=0.05)
        reductions = [_reduction(job, Faults(ranks={0: times})) for times in (1.3, 1.6, 1.9)]
        case = f"figure 13: one GPU slow, {dp} replicas"
        yield _row(case, "slowdown reduced, mean of weak, medium, severe", 100 * mean(reductions))
        yield _row(case, "published", published)


def _figure_14() -> Iterator[dict[str, Any]]:
    """S2 with several of four replicas slow."""
    job = job_of(Layout(tp=2, dp=4), per_host=8, per_replica=32, iteration_s=1.0, reduce_share=0.05)
    for slow in range(1, 5):
        faults = Faults(ranks={2 * d: 1.9 for d in range(slow)})
        case = f"figure 14: {slow} of 4 replicas slow"
        yield _row(case, "iteration before", _even(job, faults), "x")
        yield _row(case, "iteration after", _balanced(job, faults), "x")
        if slow == 1:
            yield _row(case, "published before", 1.9, "x")
            yield _row(case, "published after", 1.2, "x")


def _figure_15() -> Iterator[dict[str, Any]]:
    """S3 with a congested link, on 16 GPUs of two hosts whose replicas lie on both."""
    for pp, published in ((4, 53.7), (8, 24.8)):
        layout = Layout(dp=16 // pp, pp=pp)
        job = _on_hosts(layout, tuple(f"h{rank % 2}" for rank in range(16)))
        reductions = []
        for times in (3.0, 5.0, 8.0):
            faults = Faults(links={("h0", "h1"): times})
            plan = plan_topology(layout, job.hosts, slow_links=[(0, 1)])
            before, after = _even(job, faults), _places(job, plan.rank_at, faults)
            reductions.append((before - after) / (before - 1))
        case = f"figure 15: a congested link, {pp} stages"
        yield _row(case, "slowdown reduced, mean of weak, medium, severe", 100 * mean(reductions))
        yield _row(case, "published", published)


def _figure_16() -> Iterator[dict[str, Any]]:
    """S3 with several congested links between pairs of GPUs, four replicas of four stages."""
    layout = Layout(dp=4, pp=4)
    job = _on_hosts(layout, tuple(f"h{rank}" for rank in range(16)))
    for n, (was, became) in ((1, (1.6, 1.3)), (2, (1.7, 1.3)), (3, (1.9, 1.7))):
        pairs = [(0, 1), (4, 5), (8, 9)][:n]
        faults = Faults(links={(f"h{a}", f"h{b}"): 7.0 for a, b in pairs})
        plan = plan_topology(layout, job.hosts, slow_links=pairs)
        case = f"figure 16: {n} congested link{'s' if n > 1 else ''} in as many stages"
        yield _row(case, "iteration before", _even(job, faults), "x")
        yield _row(case, "iteration after", _places(job, plan.rank_at, faults), "x")
        yield _row(case, "published before", was, "x")
        yield _row(case, "published after", became, "x")


def _on_hosts(layout: Layout, hosts: tuple[str, ...]) -> HybridJob:
    job = job_of(layout, per_host=8, per_replica=16, iteration_s=1.0, reduce_share=0.1)
    return HybridJob(
        layout=layout, hosts=hosts, micro_batches=job.micro_batches, stage_s=job.stage_s, send_s=job.send_s,
        reduce_s=job.reduce_s,
    )  # fmt: skip


def _even(job: HybridJob, faults: Faults) -> float:
    return _places(job, range(job.layout.world_size), faults)


def _places(job: HybridJob, rank_at: Any, faults: Faults) -> float:
    at_first = np.arange(job.layout.world_size)
    return job.iteration_s(np.array(rank_at), job.even, faults) / job.iteration_s(at_first, job.even, Faults())


def _balanced(job: HybridJob, faults: Faults) -> float:
    at = np.arange(job.layout.world_size)
    counts = distribute(job.replica_times(at, faults)[0], job.micro_batches).counts
    return job.iteration_s(at, counts, faults) / job.iteration_s(at, job.even, Faults())


def _reduction(job: HybridJob, faults: Faults) -> float:
    before = _even(job, faults)
    return (before - _balanced(job, faults)) / (before - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One of Falcon 7.5: a job, how many faults, and what was published.

    Neither the durations of the faults nor their severities are published. They are drawn, ranks 1.2 to 2 and links 4
    to 8 times as slow, for 10 and 24 minutes on average (Falcon 3.2, 3.3), and one thing is scaled until doing nothing
    costs what it cost there: how long the whole trace is, how long the faults in an hour are, or how severe.
    """

    name: str
    layout: Layout
    healthy_per_min: float
    computing: int
    congested: int
    scaled: Literal["the whole", "durations", "severities"]
    untreated: float
    published_reduction: float | None
    published_ratio: float


SIXTY_FOUR = Experiment(
    name="64 GPUs (16DP, 4PP)", layout=Layout(dp=16, pp=4), healthy_per_min=17.1, computing=8, congested=2,
    scaled="the whole", untreated=17.1 / 14.8, published_reduction=60.1, published_ratio=16.2 / 14.8,
)  # fmt: skip
# The throughput without faults is not published: it is taken as if Falcon had recovered as much of the loss as on 64.
LARGE = Experiment(
    name="256 GPUs (8TP, 16DP, 2PP)", layout=Layout(tp=8, dp=16, pp=2), healthy_per_min=37.0, computing=10, congested=2,
    scaled="severities", untreated=37.0 / 18.9, published_reduction=None, published_ratio=29.8 / 18.9,
)  # fmt: skip
EXPERIMENTS = (SIXTY_FOUR, replace(SIXTY_FOUR, name="64 GPUs in an hour", scaled="durations"), LARGE)


def _at_scale(experiment: Experiment) -> Iterator[dict[str, Any]]:
    job = job_of(
        experiment.layout, per_host=8, per_replica=32, iteration_s=60 / experiment.healthy_per_min, reduce_share=0.1
    )
    traces = {seed: _calibrated(job, experiment, seed) for seed in SEEDS}
    policies = {"Falcon": Policy(is_falcon=True), "without history": Policy(prices=OWN_PRICES)}
    learnt = _learnt([one for seed in PAST_SEEDS for one in _calibrated(job, experiment, seed)[0]])
    policies |= {"with history": Policy(prices=OWN_PRICES, past=learnt)}
    policies |= {"with history, Falcon's prices": Policy(past=learnt)}
    for name, policy in policies.items():
        reduced, ratios = [], []
        for trace, horizon_s in traces.values():
            healthy = run_trace(job, [], horizon_s, None).iterations
            untreated = run_trace(job, trace, horizon_s, None).iterations
            treated = run_trace(job, trace, horizon_s, policy).iterations
            reduced.append(100 * (treated - untreated) / (healthy - untreated))
            ratios.append(treated / untreated)
        case = f"{experiment.name}: {name}"
        for what, unit, values in (("slowdown reduced", "%", reduced), ("throughput, of untreated", "x", ratios)):
            yield _row(case, f"{what}, seed 0", values[0], unit)
            yield _row(case, f"{what}, ten others, mean", mean(values[1:]), unit)
            yield _row(case, f"{what}, ten others, least", min(values[1:]), unit)
    if experiment.published_reduction is not None:
        yield _row(f"{experiment.name}: published", "slowdown reduced", experiment.published_reduction)
    yield _row(f"{experiment.name}: published", "throughput, of untreated", experiment.published_ratio, "x")


def _calibrated(job: HybridJob, experiment: Experiment, seed: int) -> tuple[list[FailSlow], float]:
    """A trace that costs untreated what it cost there, and for how long it goes on."""

    def cost(by: float) -> float:
        trace, horizon_s = _trace(job, experiment, seed, by)
        return horizon_s * experiment.healthy_per_min / 60 / run_trace(job, trace, horizon_s, None).iterations

    low, high = math.log(0.02), math.log(50.0)
    for _ in range(12):
        by = (low + high) / 2
        is_too_much = (cost(math.exp(by)) > experiment.untreated) != (experiment.scaled == "the whole")
        low, high = (low, by) if is_too_much else (by, high)
    return _trace(job, experiment, seed, math.exp((low + high) / 2))


def _trace(job: HybridJob, experiment: Experiment, seed: int, by: float) -> tuple[list[FailSlow], float]:
    rng = np.random.default_rng(seed)
    world, ranks_of_stage = job.layout.world_size, job.layout.dp * job.layout.tp
    horizon_s = HOUR_S * by if experiment.scaled == "the whole" else HOUR_S
    longer = by if experiment.scaled == "durations" else 1.0
    trace = []
    for duration_s in longer * _durations(rng, experiment.computing, COMPUTING_S):
        begin_s = rng.uniform(0, max(horizon_s - duration_s, 0.0))
        end_s = min(begin_s + duration_s, horizon_s)
        times, rank = rng.uniform(1.2, 2.0), int(rng.integers(world))
        trace.append(FailSlow(begin_s=begin_s, end_s=end_s, times=times, rank=rank))
    for number, duration_s in enumerate(longer * _durations(rng, experiment.congested, CONGESTED_S)):
        begin_s = (600.0 + 1500.0 * number) * horizon_s / HOUR_S
        first = int(rng.integers(job.layout.pp)) * ranks_of_stage
        hosts = list(dict.fromkeys(job.hosts[first : first + ranks_of_stage]))
        at = int(rng.integers(len(hosts)))
        pair = (hosts[at], hosts[(at + 1) % len(hosts)])
        end_s = min(begin_s + duration_s, horizon_s)
        trace.append(FailSlow(begin_s=begin_s, end_s=end_s, times=rng.uniform(4.0, 8.0), link=pair))
    return scaled(trace, by) if experiment.scaled == "severities" else trace, horizon_s


COMPUTING_S, CONGESTED_S = 600.0, 1440.0
"""How long they last on average: Falcon 3.2, 3.3."""
PAST_SEEDS = range(201, 207)
"""Traces that were seen before those that count."""


def _durations(rng: np.random.Generator, n: int, mean_s: float) -> Floats:
    """With a spread of half of an e-fold."""
    return np.asarray(rng.lognormal(math.log(mean_s) - 0.125, 0.5, n))


def _learnt(before: Sequence[FailSlow]) -> Survival | None:
    return kaplan_meier(Past(duration_s=one.end_s - one.begin_s) for one in before)
