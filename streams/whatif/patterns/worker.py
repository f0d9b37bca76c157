"""A few workers are slow: much of the slowdown goes if they are as fast as the others (section 5.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pacehound.model.evidence.straggling import Explains, SlowWorker
from pacehound.model.whatif_result import Pattern
from streams.whatif.metrics import slowest_workers
from streams.whatif.patterns.case import Case
from streams.whatif.patterns.changes import balanced, slow_workers, sped_up
from streams.whatif.thresholds import CLEARLY_SLOWER, EXPLAINS, LEAST_SHARE, MOST_WORKERS, SLOWER

BoolArray = npt.NDArray[np.bool_]


def single_worker(case: Case) -> Pattern | None:
    """The slowest 3 % of the workers, where they explain most of the slowdown and differ from their DP peers.

    M_W does not see slow workers that are more than 3 %, nor who always is slow where micro-batches are unequal and
    everybody is in turn. There, workers whose usual compute is longer count by what goes with them once micro-batches
    are alike.
    """
    share = case.found.slowest_workers
    if share.removed >= LEAST_SHARE:
        is_slow = slowest_workers(case.found.cells, case.found.ranks) & _differs(case)
        fixed_s, score = case.original_s * share.fixed_s / share.original_s, share.removed
        explains = Explains(share=float(share.removed), without="M_W")
    else:
        is_slow = slow_workers(case, CLEARLY_SLOWER)
        if not 0 < is_slow.sum() <= max(MOST_WORKERS * is_slow.size, 1):
            return None
        peers_s = balanced(case, case.job.own_s)
        fixed_s = case.step_time_s(sped_up(case, case.job.own_s, is_slow))
        both = case.removed(case.step_time_s(sped_up(case, peers_s, is_slow)))
        score = both - case.removed(case.step_time_s(peers_s))
        if score < EXPLAINS:
            return None
        explains = Explains(share=float(score), without="workers")
    if not is_slow.any():
        return None
    names, workers = _described(case, is_slow)
    return Pattern(
        name="single worker",
        ranks=tuple(sorted(case.found.ranks.T[is_slow].tolist())),
        evidence=(*workers, explains),
        remedies=(
            case.remedy(f"repair or replace the host of {names}: check clocks, heat, PCIe, neighbours", fixed_s),
        ),
        score=score,
    )


def _differs(case: Case) -> BoolArray:
    """Workers that are slower than their peers, shape `(n_stages, n_dp)`.

    Nobody shares the work of a worker without DP peers: there, any stage but the last counts, for a slow last stage is
    told as such.
    """
    by_worker = case.found.by_worker
    n_stages, n_dp = by_worker.shape
    if n_dp == 1:
        return np.repeat(np.arange(n_stages)[:, None] < n_stages - 1, n_dp, axis=1)
    return slow_workers(case, SLOWER) | (by_worker >= SLOWER) & (
        by_worker >= SLOWER * np.median(by_worker, axis=1, keepdims=True)
    )


def _described(case: Case, is_slow: BoolArray) -> tuple[str, list[SlowWorker]]:
    """Their names, and the numbers of each of the first few."""
    found, usual_s = case.found, case.compute_s()
    others_s = np.median(usual_s, axis=1 if case.job.n_dp == 1 else 2, keepdims=True)
    ratios = usual_s / others_s
    names, workers = [], []
    for stage, dp in np.argwhere(is_slow)[:4]:
        names.append(f"dp {dp} stage {stage} (rank {found.ranks[dp, stage]})")
        in_steps = np.mean(found.by_worker_per_step[:, stage, dp] == found.by_worker_per_step.max(axis=(1, 2)))
        workers.append(
            SlowWorker(
                dp=int(dp),
                stage=int(stage),
                rank=int(found.ranks[dp, stage]),
                slowdown=float(found.by_worker[stage, dp]),
                forward_ratio=float(ratios[0, stage, dp]),
                backward_ratio=float(ratios[1, stage, dp]),
                slowest_share=float(in_steps),
                peers="the other stages" if case.job.n_dp == 1 else "the same stage of the other DP ranks",
            )
        )
    more = f" and {int(is_slow.sum()) - len(names)} more" if is_slow.sum() > len(names) else ""
    return ", ".join(names) + more, workers
