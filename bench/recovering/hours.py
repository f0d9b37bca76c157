"""Odyssey V-B: a job of 32 nodes for nine hours, each node failing with 10 % an hour, none coming back."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from actuators.recovery.policy import FailureHistory
from actuators.recovery.state import State
from bench.recovering.strategies import Job, Strategy

HOUR_S = 3600.0
CHECKPOINT_EVERY_S = 600.0
"""Chosen: often, which favours whoever goes back to one. Writing them is free for everybody."""

Failure = tuple[float, int]


def failures(seed: int, *, n_nodes: int, for_s: float, per_hour: float) -> list[Failure]:
    """When which node fails, in the order of time: each by itself, at a constant rate.

    >>> len(failures(0, n_nodes=32, for_s=9 * 3600.0, per_hour=0.10))
    18
    """
    rate = -math.log1p(-per_hour) / HOUR_S
    at_s = np.random.default_rng(seed).exponential(1.0 / rate, n_nodes)
    return sorted((float(at), node) for node, at in enumerate(at_s) if at < for_s)


def samples_of(strategy: Strategy, job: Job, start: State, failed: Sequence[Failure], for_s: float) -> float:
    """What a job gets done in that time.

    A step that a failure interrupts is lost, half of one in the mean. A failure in a downtime ends it and begins
    another one. The history that the choice is made with is what has been seen so far and nothing else.
    """
    state: State | None = start
    done, at_s, n_nodes = 0.0, 0.0, len(start.survivors)
    throughput, seen, down_s = strategy.throughput(job, start), list[float](), 0.0
    for failed_at_s, node in [*failed, (for_s, -1)]:
        assert state is not None
        done += throughput * max(0.0, failed_at_s - at_s - down_s)
        if node < 0:
            break
        seen.append(failed_at_s)
        history = FailureHistory.of(seen, n_nodes=n_nodes, since_s=0.0, now_s=failed_at_s)
        if node in state.idle:
            # Nobody waits for it, and a downtime goes on.
            at_s, down_s, state = failed_at_s, max(0.0, at_s + down_s - failed_at_s), state.without([node])
            continue
        went = strategy.after(job, state.without([node]), history, failed_at_s % CHECKPOINT_EVERY_S)
        if went.state is None:
            break
        half_a_step_s = start.plan.n_micro_batches * job.model.samples_per_micro_batch / throughput / 2
        state, at_s, down_s = went.state, failed_at_s, went.downtime_s
        done -= min(done, throughput * half_a_step_s)
        throughput = strategy.throughput(job, state)
    return done
