"""Jobs in which everything is drawn, with seeds that no run had before: how many names are wrong.

It takes minutes, so that it does not run unless it is named: `python -m bench random_jobs`. Each job with a wrong name
is printed with its seed (`random_job(seed)` makes it again), and so is each of which somebody must be named who has no
name, or whose slow ranks cost much.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pacehound.settings import HangSettings, Settings
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.suites.random_jobs import SUSPECT_AFTER_S, RandomJob, random_job
from streams.scoring.verdicts import Outcome, outcome_of
from streams.scoring.whole_job import findings_of_job

JOBS = 600
WORKERS = 2
WORTH_NAMING, LASTING_S = 0.15, 6.0
"""Share by which slow ranks make the iterations longer, and for how long, from which on it is printed where they have
no name: what lasts for less than `slow.min_duration_s`, 3 s, is no slowdown, and twice that is one for sure."""
SETTINGS = Settings(hang=replace(HangSettings(), suspect_after_s=SUSPECT_AFTER_S))
WRONG: tuple[Outcome, ...] = ("innocent", "suspected")
"""Somebody is named who is not to blame."""


@dataclass(frozen=True, slots=True)
class Judged:
    """How the job of a seed ended; what it lost where slow ranks have no name."""

    job: RandomJob
    outcome: Outcome
    lost: float

    @property
    def is_missed(self) -> bool:
        """Somebody should have been named."""
        return self.outcome != "named" and (self.job.truth.must_name or self.lost >= WORTH_NAMING)


def judge(seed: int, kinds: tuple[str, ...] = ()) -> Judged:
    """Simulate the job of a seed and hand it to the pipeline."""
    job = random_job(seed, kinds)
    outcome = outcome_of(findings_of_job(simulate(job.spec).events(), SETTINGS), job.truth)
    slow = [fault for fault in job.spec.faults if isinstance(fault, SlowCompute)]
    return Judged(job, outcome, _lost(job, slow[0]) if slow and outcome != "named" else 0.0)


def _lost(job: RandomJob, slow: SlowCompute) -> float:
    """By what share its iterations are longer while ranks are slow, than if they were not; 0 where it is soon over."""
    others = tuple(fault for fault in job.spec.faults if fault is not slow)
    with_it, without = simulate(job.spec), simulate(replace(job.spec, faults=others))
    lasts = slice(slow.from_step, slow.to_step)
    lasted_s = float(with_it.iteration_times_s[lasts].sum())
    return lasted_s / float(without.iteration_times_s[lasts].sum()) - 1.0 if lasted_s >= LASTING_S else 0.0


def run(jobs: int = JOBS, *, first_seed: int | None = None, kinds: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Judge so many, of some kinds perhaps, from a seed on; without one they begin at the second of the clock.

    One row per kind and outcome.
    """
    first = int(time.time()) if first_seed is None else first_seed
    print(f"random_jobs: seeds {first} to {first + jobs - 1}", file=sys.stderr, flush=True)
    ends: Counter[tuple[str, Outcome]] = Counter()
    with ProcessPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
        seeds = range(first, first + jobs)
        for seed, one in zip(seeds, pool.map(partial(judge, kinds=kinds), seeds, chunksize=8), strict=True):
            job = one.job
            ends[job.kind, one.outcome] += 1
            if one.outcome in WRONG or one.is_missed:
                what = f"{job.spec.source.name}, {job.kind} from step {job.onset}"
                lost = f", +{one.lost:.0%}" if one.lost else ""
                must = ", must be named" if job.truth.must_name else ""
                print(f"random_jobs: {seed}, {what}{lost}{must}: {one.outcome}", file=sys.stderr, flush=True)
    return [
        {"case": kind, "figure": outcome, "value": number, "unit": "jobs"}
        for (kind, outcome), number in sorted(ends.items())
    ]
