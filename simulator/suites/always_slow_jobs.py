"""Jobs that are slow from their first step, by a rank, a host or a link; and clean ones that only look uneven.

No quiet time comes before, so that only peers can tell. How much longer the fault makes the iterations is measured
against the same job without it, and drawn from `GROWTHS`.

>>> case = case_of("rank", 3)
>>> case.spec.faults[0].from_step, len(case.culprits), GROWTHS[0] - 0.01 < case.growth < GROWTHS[1] + 0.01
(0, 1, True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pacehound.model.topology import Layout
from simulator.faults import EveryNth, Fault, SlowCompute, SlowLink
from simulator.source import C10D_GLOO, DEVICE_TIMES
from simulator.spec import JobSpec
from simulator.suites.injection import Draw, dp_ring_edges
from simulator.timing import run
from simulator.truth import iteration_times

STEPS = 100
"""Within which it must be found."""

GROWTHS = (0.10, 0.60)
"""By what share the fault makes iterations longer."""

_MEASURED_STEPS = 8
_SEARCHES = 12
_LEAST, _MOST = 0.02, 2_000.0
_HOSTS_OF_A_STAGE = 4
"""At least: of fewer, a slow one cannot be told from fast ones."""

SMALL = (
    Layout(dp=16),
    Layout(dp=32),
    Layout(dp=8, pp=2),
    Layout(tp=2, dp=8),
    Layout(tp=2, dp=4, pp=2),
    Layout(tp=4, dp=4, pp=2),
    Layout(tp=4, dp=8),
    Layout(tp=2, dp=8, pp=4),
    Layout(tp=4, dp=4, pp=4),
    Layout(tp=8, dp=4, pp=2),
    Layout(tp=4, dp=8, pp=2),
)
LARGE = (Layout(tp=8, dp=8, pp=4), Layout(tp=4, dp=16, pp=8), Layout(tp=8, dp=32, pp=4), Layout(tp=8, dp=16, pp=8))
"""256, 512 and 1,024 ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysSlowCase:
    """One job, and who makes it slow.

    `growth` is by what share its iterations are longer than without the fault; 0 where there is none. A link of a ring
    shows only where its source has rates: elsewhere its communicator is to be found (`is_shown`).
    """

    name: str
    condition: str
    seed: int
    spec: JobSpec
    culprits: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    is_shown: bool = True
    growth: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guilty:
    """Who is slow, and the faults by how much."""

    faults: Callable[[float], tuple[Fault, ...]]
    culprits: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    is_shown: bool = True


def _even(draw: Draw) -> dict[str, Any]:
    return {}


def _sequences(draw: Draw) -> dict[str, Any]:
    return {"sequence_spread": float(draw.rng.uniform(0.05, 0.25))}


def _stages(draw: Draw) -> dict[str, Any]:
    return {"stage_work": tuple(draw.rng.uniform(0.8, 1.25, draw.layout.pp).tolist())}


def _last_stage(draw: Draw) -> dict[str, Any]:
    return {"stage_work": (*(1.0,) * (draw.layout.pp - 1), float(draw.rng.uniform(1.15, 1.5)))}


def _wandering(draw: Draw) -> dict[str, Any]:
    spread, wandering = draw.rng.uniform(0.005, 0.015), draw.rng.uniform(0.01, 0.03)
    return {"device_spread": float(spread), "wandering": float(wandering)}


def _busy_rank_0(draw: Draw) -> dict[str, Any]:
    """It logs every so many steps, and saves."""
    step_s = 3 * draw.base.forward_s * draw.base.micro_batches
    every = int(draw.rng.integers(4, 11))
    return {"faults": (EveryNth(every_steps=every, extra_s=float(draw.rng.uniform(0.05, 0.3)) * step_s, ranks=(0,)),)}


CONDITIONS: Mapping[str, Callable[[Draw], dict[str, Any]]] = {
    "even": _even,
    "unequal sequences": _sequences,
    "unequal stages": _stages,
    "last stage heavier": _last_stage,
    "wandering": _wandering,
    "busy rank 0": _busy_rank_0,
}
"""What else is so in a job; a seed takes the next one."""


def _slow_rank(draw: Draw) -> _Guilty:
    ranks = draw.ranks(1)
    return _Guilty(faults=lambda x: (SlowCompute(ranks=ranks, factor=1.0 + x, from_step=0),), culprits=ranks)


def _slow_host(draw: Draw) -> _Guilty | None:
    layout = draw.layout
    stage = layout.tp * layout.dp
    sizes = [n for n in (8, 4, 2) if stage % n == 0 and stage // n >= _HOSTS_OF_A_STAGE]
    if draw.base.ranks_per_host not in sizes:
        return None
    ranks = draw.one(draw.base.hosts)
    return _Guilty(faults=lambda x: (SlowCompute(ranks=ranks, factor=1.0 + x, from_step=0),), culprits=ranks)


def _slow_pair(draw: Draw) -> _Guilty | None:
    layout = draw.layout
    if layout.pp == 1 or draw.base.ranks_per_host > layout.tp * layout.dp:
        return None
    rank = draw.one(range(layout.world_size - layout.tp * layout.dp))
    link = (rank, rank + layout.tp * layout.dp)
    return _Guilty(faults=lambda x: _link(link, x), links=(link,))


def _slow_ring(draw: Draw) -> _Guilty | None:
    if draw.layout.tp * draw.layout.pp < 4 or draw.layout.dp < 4:
        return None  # no communicators of its kind to be held against
    hosts = draw.base.ranks_per_host
    links = [link for link in dp_ring_edges(draw) if link[0] // hosts != link[1] // hosts]
    if not links:
        return None
    link = draw.one(links)
    return _Guilty(faults=lambda x: _link(link, x), links=(link,), is_shown=draw.source.has_rates)


def _link(link: tuple[int, int], x: float) -> tuple[Fault, ...]:
    return (SlowLink(link=link, bandwidth_factor=1.0 / (1.0 + x), from_step=0),)


FAULTS: Mapping[str, Callable[[Draw], _Guilty | None]] = {
    "rank": _slow_rank,
    "host": _slow_host,
    "link of a pipeline": _slow_pair,
    "link of a ring": _slow_ring,
}
"""By name; `clean` has none."""


def case_of(name: str, seed: int, layouts: Sequence[Layout] = SMALL, *, steps: int = STEPS) -> AlwaysSlowCase:
    """The case of one seed, which is always the same.

    Raises
    ------
    ValueError
        There is no such fault, or no layout has a place for it.
    """
    if name not in (*FAULTS, "clean"):
        raise ValueError(f"there is no fault {name!r}; there are clean, {', '.join(FAULTS)}")
    condition = list(CONDITIONS)[seed % len(CONDITIONS)]
    for attempt in range(200):
        rng = np.random.default_rng([seed, attempt, list(FAULTS).index(name) if name in FAULTS else len(FAULTS)])
        base = _base(rng, layouts[int(rng.integers(len(layouts)))], seed, steps)
        base = replace(base, **CONDITIONS[condition](Draw(rng, base, has_drops=False)))
        if name == "clean":
            return AlwaysSlowCase(name=name, condition=condition, seed=seed, spec=base)
        guilty = FAULTS[name](Draw(rng, base, has_drops=False))
        found = None if guilty is None else _with_growth(base, guilty, float(rng.uniform(*GROWTHS)))
        if guilty is not None and found is not None:
            return AlwaysSlowCase(
                name=name,
                condition=condition,
                seed=seed,
                spec=found[0],
                culprits=guilty.culprits,
                links=guilty.links,
                is_shown=guilty.is_shown,
                growth=found[1],
            )
    raise ValueError(f"no layout has a place for {name!r} with seed {seed}")


def _base(rng: np.random.Generator, layout: Layout, seed: int, steps: int) -> JobSpec:
    source = (C10D_GLOO, DEVICE_TIMES)[int(rng.integers(2))]
    return JobSpec(
        layout=layout,
        iterations=steps,
        micro_batches=max(4, layout.pp),
        tp_calls=1,
        seed=seed,
        ranks_per_host=int(rng.choice([2, 4, 8])) if layout.world_size < 64 else 8,
        forward_s=float(rng.uniform(0.004, 0.012)),
        jitter=float(rng.uniform(0.005, 0.02)),
        source=source,
        job=f"always {seed}",
    )


def _with_growth(base: JobSpec, guilty: _Guilty, growth: float) -> tuple[JobSpec, float] | None:
    """The job with a fault that makes its iterations so much longer; nothing where the fault cannot."""
    quiet_s = _step_time_s(base)
    low, high = _LEAST, _MOST
    for _ in range(_SEARCHES):
        middle = float(np.sqrt(low * high))
        if _step_time_s(_with(base, guilty, middle)) < (1.0 + growth) * quiet_s:
            low = middle
        else:
            high = middle
    spec = _with(base, guilty, high)
    reached = _step_time_s(spec) / quiet_s - 1.0
    return (spec, reached) if abs(reached - growth) < 0.01 else None


def _with(base: JobSpec, guilty: _Guilty, x: float) -> JobSpec:
    return replace(base, faults=(*base.faults, *guilty.faults(x)))


def _step_time_s(spec: JobSpec) -> float:
    """Mean of the first iterations."""
    faults = tuple(fault for fault in spec.faults if not isinstance(fault, EveryNth))
    return float(iteration_times(run(replace(spec, iterations=_MEASURED_STEPS, faults=faults))).mean())
