"""The best plan found by listing: all divisions of up to N nodes, all splits of the layers near an even one.

Odyssey's algorithm 1 with the limits on DP taken away, and each pipeline timed by equation 11. The batch is divided one
micro-batch at a time to whoever is done first, which for times that grow is as good as any division.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count, product

from actuators.recovery.estimator import estimate, hop_s, pipeline_s
from actuators.recovery.memory import stage_bytes
from actuators.recovery.profile import ClusterProfile, ModelProfile
from actuators.recovery.state import Plan, State


def divisions(n_nodes: int, longest: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of lengths, the longest first.

    >>> list(divisions(4, 3))
    [(3, 1), (2, 2), (2, 1, 1), (1, 1, 1, 1)]
    """
    if n_nodes == 0:
        yield ()
    for first in range(min(n_nodes, longest), 0, -1):
        for rest in divisions(n_nodes - first, first):
            yield (first, *rest)


def splits(model: ModelProfile, n_stages: int, memory_bytes: float, spread: int) -> Iterator[tuple[int, ...]]:
    """All splits that fit into memory, each stage with `spread` layers less than an even one at least, and
    `spread` + 1 more at most.

    >>> from actuators.recovery.models import unit_model
    >>> list(splits(unit_model(n_layers=7), 3, 9.0, 0))
    [(2, 2, 3), (2, 3, 2), (3, 2, 2)]
    """
    even = model.n_layers // n_stages
    least, most = max(1, even - spread), even + spread + 1

    def rest(stage: int, layers: int) -> Iterator[tuple[int, ...]]:
        left = n_stages - stage - 1
        for one in range(max(least, layers - left * most), min(most, layers - left * least) + 1):
            if stage_bytes(model, n_stages, stage, one, n_stages - stage) <= memory_bytes:
                if left:
                    yield from ((one, *others) for others in rest(stage + 1, layers - one))
                else:
                    yield (one,)

    yield from rest(0, model.n_layers)


def best_by_listing(
    model: ModelProfile,
    cluster: ClusterProfile,
    *,
    n_nodes: int,
    n_micro_batches: int,
    longest: int,
    n_splits: int,
    spread: int = 1,
) -> tuple[Plan, float]:
    """The plan of the highest throughput, and that.

    Pipelines have up to `longest` stages. Of each length the `n_splits` fastest splits are tried; beyond five stages
    only those that are as even as can be are timed, for the others are too many.
    """
    hop = hop_s(model, cluster)

    @cache
    def fastest(n_stages: int, likely: int) -> tuple[tuple[int, ...], ...]:
        found = splits(model, n_stages, cluster.memory_bytes, spread if n_stages <= 5 else 0)
        return tuple(sorted(found, key=lambda one: pipeline_s(model, one, likely, hop))[:n_splits])

    best: tuple[Plan | None, float] = None, 0.0
    for used in range(1, n_nodes + 1):
        for lengths in divisions(used, min(used, longest, model.n_layers)):
            if len(lengths) > n_micro_batches:
                continue
            kinds = sorted(set(lengths))
            for chosen in product(*(fastest(one, max(1, n_micro_batches // len(lengths))) for one in kinds)):
                split = dict(zip(kinds, chosen, strict=True))
                stages = tuple(split[one] for one in lengths)
                plan = Plan(
                    kind="symmetric" if len(kinds) == 1 else "asymmetric",
                    stages=stages,
                    batches=_batches(model, stages, n_micro_batches, hop),
                )
                number = count()
                state = State(plan=plan, holders=tuple(tuple(next(number) for _ in one) for one in stages))
                throughput = estimate(state, model, cluster).throughput
                if throughput > best[1]:
                    best = plan, throughput
    if best[0] is None:
        raise ValueError(f"no plan for {n_nodes} nodes fits into memory")
    return best[0], best[1]


def _batches(
    model: ModelProfile, stages: Sequence[tuple[int, ...]], n_micro_batches: int, hop: float
) -> tuple[int, ...]:
    batches = [1] * len(stages)
    for _ in range(n_micro_batches - len(stages)):
        done = [pipeline_s(model, one, batch + 1, hop) for one, batch in zip(stages, batches, strict=True)]
        batches[done.index(min(done))] += 1
    return tuple(batches)
