"""Small jobs in which everything is drawn, with seeds that no run had before: how many names are wrong.

It takes minutes, so that it does not run unless it is named: `python -m bench random_jobs`. Each job with a wrong name
is printed with its seed (`random_job(seed)` makes it again), and so is each whose slow rank costs much and has no name.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from pacehound.settings import Settings
from simulator.job import simulate
from simulator.suites.random_jobs import RandomJob, random_job
from streams.scoring.verdicts import Outcome, outcome_of
from streams.scoring.whole_job import findings_of_job

JOBS = 600
WORKERS = 2
WORTH_NAMING = 0.15
"""Share by which a slow rank makes the iterations longer, from which on it is printed where it has no name."""
WRONG: tuple[Outcome, ...] = ("innocent", "suspected")
"""Somebody is named who is not to blame."""


def judge(seed: int) -> tuple[str, int, Outcome, float]:
    """Simulate the job of a seed and hand it to the pipeline: its kind and onset, how it ended, what it lost."""
    job = random_job(seed)
    outcome = outcome_of(findings_of_job(simulate(job.spec).events(), Settings()), job.truth)
    return job.kind, job.onset, outcome, _lost(job) if job.kind == "rank" and outcome != "named" else 0.0


def _lost(job: RandomJob) -> float:
    """By what share its iterations are longer while it lasts, than without what befell it."""
    with_it, without = simulate(job.spec), simulate(replace(job.spec, faults=()))
    lasts = slice(job.onset, job.spec.faults[0].to_step)  # type: ignore[union-attr]
    return float(with_it.iteration_times_s[lasts].sum() / without.iteration_times_s[lasts].sum()) - 1.0


def run(jobs: int = JOBS, *, first_seed: int | None = None) -> list[dict[str, Any]]:
    """Judge so many, from a seed on; without one they begin at the second of the clock.

    One row per kind and outcome.
    """
    first = int(time.time()) if first_seed is None else first_seed
    print(f"random_jobs: seeds {first} to {first + jobs - 1}", file=sys.stderr, flush=True)
    ends: Counter[tuple[str, Outcome]] = Counter()
    with ProcessPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
        seeds = range(first, first + jobs)
        for seed, (kind, onset, outcome, lost) in zip(seeds, pool.map(judge, seeds, chunksize=8), strict=True):
            ends[kind, outcome] += 1
            if outcome in WRONG:
                print(f"random_jobs: {seed}, {kind} from step {onset}: {outcome}", file=sys.stderr, flush=True)
            elif lost >= WORTH_NAMING:
                print(f"random_jobs: {seed}, {kind} from step {onset}, +{lost:.0%}: {outcome}", file=sys.stderr)
    return [
        {"case": kind, "figure": outcome, "value": number, "unit": "jobs"}
        for (kind, outcome), number in sorted(ends.items())
    ]
