"""Known causes of stragglers, what of each the trace shows, and what to do (sections 5.1 to 5.5).

Each file holds one cause: it takes the view of `Case` and answers with a Pattern or with None. A job whose slowdown
is below STRAGGLING has no cause to look for.
"""

from __future__ import annotations

from pacehound.model.evidence.straggling import Slowdowns, SlowestShares, SlowWorkers
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
            Slowdowns(of="operation types", slowdowns=tuple((name, float(slowdown)) for slowdown, name in types)),
            Slowdowns(of="worker", slowdowns=((f"dp {dp}, stage {stage}", float(found.by_worker[stage, dp])),)),
            SlowWorkers(n=int(is_slow.sum()), of=is_slow.size, ratio=CLEARLY_SLOWER, share=float(freed)),
            SlowestShares(
                workers_share=float(found.slowest_workers.removed), last_stage_share=float(found.last_stage.removed)
            ),
        ),
    )
