"""Planned garbage collection: all ranks at the same step, instead of each when it comes to it (what-if paper 5.4).

A collection of g seconds that each rank begins by itself, once in k steps, holds up all others: of N ranks at least one
collects in a step with probability 1 - (1 - 1/k)^N, which is nearly 1 for many. At the same step on all ranks it costs
g once in k steps. With K steps between planned ones:

    gain = g (1 - (1 - 1/k)^N - 1/K) / t          t the time of a step as it is now

K must leave enough memory: garbage of a step times K stays below a share of what is free. (A pause that grows with the
heap is g as it is now.) The paper had 12.6 % with 128 replicas at every 500 steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from actuators.mitigation.thresholds import GC_HEADROOM_SHARE, MOST_GC_INTERVAL_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionPlan:
    """When all ranks would collect.

    Attributes
    ----------
    interval_steps
        Between two collections.
    first_step
        A multiple of it that lies ahead of all ranks.
    gain
        The share by which steps would become shorter.
    reason
        In a sentence.

    """

    interval_steps: int
    first_step: int
    gain: float
    reason: str


def plan_collection(
    *,
    pause_s: float,
    every_steps: float,
    n_ranks: int,
    step_time_s: float,
    furthest_step: int,
    free_bytes: float | None = None,
    garbage_bytes_per_step: float | None = None,
) -> CollectionPlan:
    """The interval, when it begins, and what it gives.

    Parameters
    ----------
    pause_s
        A collection takes so long.
    every_steps
        A rank collects by itself once in so many steps.
    n_ranks, step_time_s
        How many wait for each other, and for how long a step takes with all pauses.
    furthest_step
        The step of the rank that is furthest.
    free_bytes, garbage_bytes_per_step
        Memory of the fullest host, and how fast a rank's garbage grows; the interval of now where they are not known.

    Raises
    ------
    ValueError
        Numbers that are not positive.

    Examples
    --------
    >>> plan = plan_collection(pause_s=0.3, every_steps=100, n_ranks=128, step_time_s=1.5, furthest_step=1234)
    >>> plan.interval_steps, plan.first_step, round(plan.gain, 3)
    (100, 1400, 0.143)

    """
    for name, value in (("pause_s", pause_s), ("every_steps", every_steps), ("step_time_s", step_time_s)):
        if not value > 0:
            raise ValueError(f"{name} is {value}; it is above 0")
    if n_ranks < 1 or every_steps < 1:
        raise ValueError(f"{n_ranks} ranks that collect once in {every_steps} steps: both are 1 at least")
    why = "as often as each rank collects now, for it is not known how fast garbage grows"
    interval = every_steps
    if free_bytes is not None and garbage_bytes_per_step is not None and garbage_bytes_per_step > 0:
        interval = GC_HEADROOM_SHARE * free_bytes / garbage_bytes_per_step
        why = f"until then garbage takes {GC_HEADROOM_SHARE:.0%} of the memory that is free"
    steps = max(1, min(int(interval), MOST_GC_INTERVAL_STEPS))
    now_s = pause_s * (1.0 - (1.0 - 1.0 / every_steps) ** n_ranks)
    gain = (now_s - pause_s / steps) / step_time_s
    # One interval beyond the next, so that the order reaches all ranks before it.
    first = (furthest_step // steps + 2) * steps
    return CollectionPlan(
        interval_steps=steps,
        first_step=first,
        gain=gain,
        reason=(
            f"collections hold {n_ranks} ranks up for {now_s:.3g} s of a step of {step_time_s:.3g} s; all at once every"
            f" {steps} steps they take {pause_s / steps:.3g} s: {why}"
        ),
    )
