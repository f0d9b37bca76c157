"""Micro-batches of unequal sequences: forward and backward of one are long together (section 5.3).

Correlation alone does not say so: where all micro-batches take nearly the same time, what little they differ often
correlates, too. So the slowdown must also go with the differences, from the job as it is or from the job without its
slow workers, which may hide them.
"""

from __future__ import annotations

import numpy as np

from pacehound.model.evidence.straggling import Explains, MicroBatches, PassesCorrelate
from pacehound.model.whatif_result import Pattern, Remedy
from streams.whatif.metrics import pairs_of
from streams.whatif.patterns.case import Case
from streams.whatif.patterns.changes import balanced, dealt_out, slow_workers, sped_up
from streams.whatif.thresholds import CLEARLY_SLOWER, EXPLAINS, LEAST_CORRELATION


def sequence_length(case: Case) -> Pattern | None:
    """Sequence-length imbalance, and what equal micro-batches would bring."""
    stage = 1 if case.job.ops.n_stages > 1 else 0  # without loss and embeddings, as in the paper's footnote 4
    of_stage = case.found.correlation[stage]
    if np.isnan(of_stage).all() or not float(np.nanmedian(of_stage)) >= LEAST_CORRELATION:
        return None
    balanced_s = case.step_time_s(balanced(case, case.job.own_s))
    removed = case.removed(balanced_s)
    is_slow = slow_workers(case, CLEARLY_SLOWER)
    if removed < EXPLAINS and is_slow.any():
        fast_s = sped_up(case, case.job.own_s, is_slow)
        removed = case.removed(case.step_time_s(balanced(case, fast_s))) - case.removed(case.step_time_s(fast_s))
    if removed < EXPLAINS:
        return None
    forward, _ = pairs_of(case.job.ops, stage)
    lengths_s = case.job.own_s[forward]
    ratio = float(np.quantile(lengths_s, 0.95) / np.median(lengths_s))
    per_rank_s = lengths_s.sum(axis=0)
    uneven = float((per_rank_s.max(axis=1) / per_rank_s.mean(axis=1)).mean())
    return Pattern(
        name="sequence length",
        evidence=(
            PassesCorrelate(stage=stage, median=float(np.nanmedian(of_stage)), lowest=float(np.nanmin(of_stage))),
            MicroBatches(measure="longest", ratio=ratio),
            MicroBatches(measure="most work", ratio=uneven),
            Explains(share=float(removed), without="uneven micro-batches"),
        ),
        remedies=tuple(_remedies(case, stage, balanced_s)),
        score=removed,
    )


def _remedies(case: Case, stage: int, balanced_s: float) -> list[Remedy]:
    found = [
        case.remedy(
            "redistribute sequences: longest first (cost: length squared), each to the DP rank with least, then fill "
            "micro-batches the same way (this is the most that it can bring)",
            balanced_s,
        )
    ]
    dealt_s = case.step_time_s(dealt_out(case, case.job.own_s, stage))
    if dealt_s < case.original_s:
        found.append(case.remedy("or deal out whole micro-batches among the DP ranks the same way", dealt_s))
    return found
