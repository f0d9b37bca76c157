"""A hybrid-parallel job under a trace of fail-slows, with somebody who mitigates it, or nobody.

Faults are known some iterations after they begin or end. From then on the loss is counted, and whenever the ski rental
says so an action is taken: micro-batches, places of ranks (with micro-batches), a restart without what is slow. What
each would give is reckoned with the model of the job; what does not help is not taken. Each costs its price, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from actuators.mitigation.microbatches import Ints, distribute
from actuators.mitigation.ski_rental import switches
from actuators.mitigation.survival import Survival
from actuators.mitigation.topology import plan_topology
from bench.rig.hybrid_job import Faults, HybridJob

SEEN_AFTER = 9
"""Iterations until a fault, or its end, is known: the median of docs/scoreboard.md."""
LEAST_GAIN = 0.01
"""What gives back less of an iteration is not worth an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailSlow:
    """A rank, or a link between two hosts, that is slow for a while."""

    begin_s: float
    end_s: float
    times: float
    rank: int = -1
    link: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What actions cost, in seconds: `move_s` for each rank that moves beside `topology_s`."""

    micro_batches_s: float = 5.0
    topology_s: float = 60.0
    move_s: float = 0.0
    restart_s: float = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How it is mitigated.

    Attributes
    ----------
    is_falcon
        Its algorithm 1 alone: stragglers into stages, moments at the prices.
    past
        How long fail-slows lasted before.

    """

    prices: Prices = field(default_factory=Prices)
    is_falcon: bool = False
    past: Survival | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Iterations in the time of the trace, and which actions were taken."""

    iterations: float
    actions: tuple[str, ...]


@dataclass(slots=True)
class _Setting:
    rank_at: Ints
    counts: Ints


Kind = Literal["micro-batches", "topology", "restart"]


def run_trace(job: HybridJob, trace: Sequence[FailSlow], horizon_s: float, policy: Policy | None) -> Outcome:
    """What a trace leaves of the throughput."""
    now_s, done, actions = 0.0, 0.0, []
    now = _Setting(np.arange(job.layout.world_size), job.even)
    healthy_s = job.iteration_s(now.rank_at, now.counts, Faults())
    gone: set[FailSlow] = set()
    known: frozenset[FailSlow] = frozenset()
    changed_for: dict[FailSlow, int] = {}
    loss_s = since_change_s = 0.0
    loss_before: dict[FailSlow, float] = {}
    settings_made = 0
    took: dict[tuple[int, frozenset[FailSlow]], float] = {}
    plans: list[tuple[Kind, float, _Setting, float]] = []
    while now_s < horizon_s:
        active = [one for one in trace if one.begin_s <= now_s < one.end_s and one not in gone]
        # Iterations for which each has been other than what is known of it.
        changed_for = {o: changed_for.get(o, 0) + 1 for o in trace if (o in active) != (o in known) and o not in gone}
        turned = {one for one, n in changed_for.items() if n > SEEN_AFTER}
        seen = (known ^ turned) - gone
        case = (settings_made, frozenset(active))
        if case not in took:
            took[case] = job.iteration_s(now.rank_at, now.counts, _faults(active))
        taken_s = took[case]
        done += min(1.0, (horizon_s - now_s) / taken_s)
        now_s += taken_s
        if policy is None:
            continue
        loss_s += taken_s - healthy_s
        since_change_s += taken_s - healthy_s
        if seen != known:
            loss_before = {one: loss_before.get(one, loss_s) for one in seen}
            known, since_change_s = seen, 0.0
            plans = _plans(job, now, known, policy, healthy_s)
        while plans:
            kind, price_s, then, at_s = plans[0]
            of_these_s = loss_s - min(loss_before.values(), default=loss_s)  # since the oldest that still lasts
            if (of_these_s if kind == "restart" else since_change_s) < at_s:
                break
            plans.pop(0)
            now_s += price_s
            actions.append(kind)
            if kind == "restart":
                gone |= set(known)
                now, known = _Setting(np.arange(job.layout.world_size), job.even), frozenset()
                plans, loss_before = [], {}
            else:
                now = then
            settings_made += 1
    return Outcome(iterations=done, actions=tuple(actions))


def _plans(
    job: HybridJob, now: _Setting, known: frozenset[FailSlow], policy: Policy, healthy_s: float
) -> list[tuple[Kind, float, _Setting, float]]:
    """Actions that help, each with its price, what it makes of the job, and the loss at which it is due."""
    faults = _faults(list(known))
    at_present_s = job.iteration_s(now.rank_at, now.counts, faults)
    balanced = _Setting(now.rank_at, _balanced(job, now.rank_at, faults))
    moved = _moved(job, known, faults, policy)
    tried: list[tuple[Kind, float, _Setting, float]] = [
        ("micro-batches", policy.prices.micro_batches_s, balanced, job.iteration_s(*_of(balanced), faults))
    ]
    n_moved = int((moved.rank_at != now.rank_at).sum())
    if n_moved:
        price_s = policy.prices.topology_s + policy.prices.move_s * n_moved
        tried.append(("topology", price_s, moved, job.iteration_s(*_of(moved), faults)))
    if known:
        tried.append(("restart", policy.prices.restart_s, now, healthy_s))
    tried.sort(key=lambda one: one[1])
    helping, best_s = [], at_present_s
    for one in tried:
        if one[3] < best_s * (1 - LEAST_GAIN):
            helping.append(one)
            best_s = one[3]
    if not helping:
        return []
    rates = [max(1 - healthy_s / s, 0.0) for s in (at_present_s, *(one[3] for one in helping))]
    moments = switches([one[1] for one in helping], rates, policy.past)
    if not known:  # it is over: what was done about it is undone at once
        return [(helping[0][0], helping[0][1], helping[0][2], 0.0)]
    return [(*one[:3], at_s) for one, at_s in zip(helping, moments.losses_s, strict=True)]


def _moved(job: HybridJob, known: frozenset[FailSlow], faults: Faults, policy: Policy) -> _Setting:
    """The best places that are known: stragglers into stages, as Falcon does, or into replicas."""
    links = [(_rank_on(job, one.link[0]), _rank_on(job, one.link[1])) for one in known if one.rank < 0]
    ranks = [one.rank for one in known if one.rank >= 0]
    found: list[_Setting] = []
    for stragglers in (ranks, []):
        for into in ("stages",) if policy.is_falcon else ("stages", "replicas"):
            plan = plan_topology(
                job.layout,
                job.hosts,
                slow_links=links,
                stragglers=stragglers,
                gather_into="stages" if into == "stages" else "replicas",
            )
            rank_at = np.array(plan.rank_at)
            found.append(_Setting(rank_at, _balanced(job, rank_at, faults)))
    return min(found, key=lambda one: job.iteration_s(*_of(one), faults))


def _balanced(job: HybridJob, rank_at: Ints, faults: Faults) -> Ints:
    each_s, _ = job.replica_times(rank_at, faults)
    return distribute(each_s, job.micro_batches).counts


def _of(setting: _Setting) -> tuple[Ints, Ints]:
    return setting.rank_at, setting.counts


def _rank_on(job: HybridJob, host: str) -> int:
    return job.hosts.index(host)


def _faults(active: Sequence[FailSlow]) -> Faults:
    return Faults(
        ranks={one.rank: one.times for one in active if one.rank >= 0},
        links={one.link: one.times for one in active if one.rank < 0},
    )


def scaled(trace: Sequence[FailSlow], by: float) -> list[FailSlow]:
    """The same faults, so many times as severe."""
    return [replace(one, times=1.0 + (one.times - 1.0) * by) for one in trace]
