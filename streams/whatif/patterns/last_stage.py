"""The last stage computes longer than the others: the loss layer on top of as many layers (section 5.2).

What to do is to give layers of it to the other stages. The trace does not say how many layers a stage has: what to move
is told as a share of a stage's layers, and in whole layers where their number is given.
"""

from __future__ import annotations

import numpy as np

from pacehound.model.evidence.straggling import Explains, LastStage, Slowdowns
from pacehound.model.whatif_result import Pattern, Remedy
from streams.whatif import optypes
from streams.whatif.patterns.case import Case, Float64Array, FloatArray
from streams.whatif.thresholds import LEAST_SHARE, SLOWER

_SHARES = tuple(number / 20 for number in range(1, 20))


def last_stage(case: Case, layers_per_stage: int | None) -> Pattern | None:
    """An overloaded last stage, and how many layers to move."""
    share, n_stages = case.found.last_stage, case.job.ops.n_stages
    if n_stages < 2 or not share.removed >= LEAST_SHARE:
        return None
    by_stage_s = np.median(case.compute_s(), axis=2)  # the median DP rank: shape (2, n_stages)
    others_s = np.median(by_stage_s[:, :-1], axis=1)
    if by_stage_s[:, -1].sum() < SLOWER * others_s.sum():
        return None
    forward, backward = by_stage_s[:, -1] / others_s
    return Pattern(
        name="last stage",
        ranks=tuple(sorted(case.found.ranks[:, -1].tolist())),
        evidence=(
            Explains(share=float(share.removed), without="M_S"),
            LastStage(forward_ratio=float(forward), backward_ratio=float(backward)),
            Slowdowns(
                of="stages",
                slowdowns=tuple(
                    (str(name), float(slowdown))
                    for name, slowdown in zip(case.found.by_stage.names, case.found.by_stage.slowdown, strict=True)
                ),
            ),
        ),
        remedies=(_moving(case, layers_per_stage),),
        score=share.removed,
    )


def _moving(case: Case, layers_per_stage: int | None) -> Remedy:
    """The move that gives the shortest simulated step."""
    if layers_per_stage:
        tried = {n: case.step_time_s(moved_layers(case, n, layers_per_stage)) for n in range(1, layers_per_stage)}
        best = min(tried, key=lambda n: tried[n], default=0)
        if best and tried[best] < case.original_s:
            return case.remedy(f"move {best} of its {layers_per_stage} layers to the other stages", tried[best])
        return Remedy(
            action=f"no layer of {layers_per_stage} can be moved with gain: split the loss layer's vocabulary"
        )
    by_share = {share: case.step_time_s(_moved_share(case, share)) for share in _SHARES}
    best_share = min(by_share, key=lambda one: by_share[one])
    return case.remedy(
        f"move {best_share:.0%} of a stage's layers from it to the others, evenly (with --layers-per-stage: how many)",
        by_share[best_share],
    )


def moved_layers(case: Case, n_layers: int, layers_per_stage: int) -> FloatArray:
    """Own durations with whole layers of the last stage given to the others, to the least loaded first.

    A layer takes what the median of the other stages takes, divided by its layers.
    """
    load_s = np.median(case.compute_s().sum(axis=0), axis=1)
    layer_s = np.median(load_s[:-1]) / layers_per_stage
    given = np.zeros(len(load_s))
    for _ in range(n_layers):
        least = int(np.argmin(load_s[:-1] + given[:-1] * layer_s))
        given[least] += 1
    given[-1] = -n_layers
    return _with_layers(case, given / layers_per_stage)


def _moved_share(case: Case, share: float) -> FloatArray:
    given = np.full(case.job.ops.n_stages, share / (case.job.ops.n_stages - 1))
    given[-1] = -share
    return _with_layers(case, given)


def _with_layers(case: Case, given: Float64Array) -> FloatArray:
    """Own durations with `given` of a stage's layers more at each stage, shape `(n_stages,)`."""
    own_s = case.job.own_s.copy()
    for kind in optypes.COMPUTE:
        rows = [case.rows(stage, kind) for stage in range(len(given))]
        a_stage_s = np.median([np.median(own_s[one]) for one in rows[:-1]])
        for stage, one in enumerate(rows):
            own_s[one] = np.maximum(own_s[one] + given[stage] * a_stage_s, 0)
    return own_s
