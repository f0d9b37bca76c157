"""Jobs for a pipeline to watch when there is no cluster at hand: one after the other, each with another fault."""

from __future__ import annotations

from pacehound.model.topology import Layout
from simulator.faults import Fault, SlowCompute, SlowLink
from simulator.spec import JobSpec

LEAST_ITERATIONS = 120
"""Fewer, and there is no time to learn what is normal."""


def demo_job(number: int, *, name: str, ranks: int, iterations: int, start_unix_ns: int) -> JobSpec:
    """The job of a number: a slow rank, a slow link, nothing at all, and so on.

    `number` counts from 0 and is the seed. `ranks` is a multiple of 4 (two per tensor-parallel group, two pipeline
    stages), `iterations` at least `LEAST_ITERATIONS`; the fault lasts for the middle third. `start_unix_ns` is a whole
    second.

    Raises
    ------
    ValueError
        The ranks or the iterations are too few, or do not fit.

    Examples
    --------
    >>> demo_job(0, name="demo", ranks=8, iterations=300, start_unix_ns=0).faults
    (SlowCompute(ranks=(2,), factor=1.5, from_step=100, to_step=200),)
    >>> demo_job(2, name="demo", ranks=8, iterations=300, start_unix_ns=0).faults
    ()
    """
    if ranks < 8 or ranks % 4:
        raise ValueError(f"a simulated job of {ranks} ranks does not fit; take a multiple of 4, 8 at least")
    if iterations < LEAST_ITERATIONS:
        raise ValueError(f"{iterations} iterations are too few; take {LEAST_ITERATIONS} at least")
    begin, end = iterations // 3, iterations * 2 // 3
    rank = (2 + 5 * (number // 3)) % ranks
    faults: tuple[tuple[Fault, ...], ...] = (
        (SlowCompute(ranks=(rank,), factor=1.5, from_step=begin, to_step=end),),
        (SlowLink(link=(0, 2), bandwidth_factor=0.1, from_step=begin, to_step=end),),
        (),
    )
    return JobSpec(
        layout=Layout(tp=2, dp=ranks // 4, pp=2),
        iterations=iterations,
        seed=number,
        faults=faults[number % len(faults)],
        job=name,
        start_unix_ns=start_unix_ns,
    )
