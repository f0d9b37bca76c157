"""Known causes of stragglers, what of each the trace shows, and what to do (sections 5.1 to 5.5).

Each file holds one cause: it takes the view of `Case` and answers with a Pattern or with None. A job whose slowdown
is below STRAGGLING has no cause to look for.
"""

from __future__ import annotations

from pacehound.model.whatif_result import STRAGGLING, Pattern, WhatIf
from streams.whatif.layout import Trace
from streams.whatif.patterns.case import Case
from streams.whatif.patterns.changes import slow_workers, sped_up
from streams.whatif.patterns.dependency import false_dependency
from streams.whatif.patterns.last_stage import last_stage
from streams.whatif.patterns.sequence_length import sequence_length
from streams.whatif.patterns.stalls import stalls
from streams.whatif.patterns.worker import single_worker
from streams.whatif.scenarios import Job
from streams.whatif.thresholds import CLEARLY_SLOWER


def patterns_of(found: WhatIf, trace: Trace, job: Job, layers_per_stage: int | None = None) -> tuple[Pattern, ...]:
    """The causes that the trace shows, the one that explains most first; `none of these` where it shows none."""
    if found.slowdown < STRAGGLING:
        return ()
    case = Case.of(found, trace, job)
    candidates = (
        single_worker(case),
        last_stage(case, layers_per_stage),
        sequence_length(case),
        stalls(case),
        false_dependency(case),
    )
    shown = sorted((one for one in candidates if one is not None), key=lambda one: -one.score)
    return tuple(shown) or (_none(case),)


def _none(case: Case) -> Pattern:
    found = case.found
    is_slow = slow_workers(case, CLEARLY_SLOWER)
    freed = case.removed(case.step_time_s(sped_up(case, case.job.own_s, is_slow))) if is_slow.any() else 0.0
    types = sorted(zip(found.by_optype.slowdown, found.by_optype.names, strict=True), reverse=True)[:3]
    stage, dp = divmod(int(found.by_worker.argmax()), found.by_worker.shape[1])
    return Pattern(
        name="none of these",
        evidence=(
            "by operation type: " + ", ".join(f"{name} x{slowdown:.3f}" for slowdown, name in types),
            f"the slowest worker by itself: dp {dp}, stage {stage}, x{found.by_worker[stage, dp]:.3f}",
            f"{is_slow.sum()} of {is_slow.size} workers take at least x{CLEARLY_SLOWER} of the median DP rank of their "
            f"stage; {freed:.0%} of the slowdown goes with them",
            f"the slowest 3 % of the workers explain {found.slowest_workers.removed:.0%} of the slowdown, "
            f"the last stage {found.last_stage.removed:.0%}",
        ),
    )
