"""What verdicts lose where agents tell of iterations instead of calls: the same marked jobs, told both ways.

It takes minutes, so that it does not run unless it is named: `python -m bench digests`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from bench.rig.digesting_agents import DigestingAgents
from bench.root_cause import SETTINGS, WORKERS
from simulator.job import simulate
from simulator.suites.root_cause_jobs import SCENARIOS, SOURCES, case_of
from streams.scoring.verdicts import outcome_of
from streams.scoring.whole_job import findings_of_job

SEEDS = 6 * len(SCENARIOS)
"""Of each source: every scenario comes up six times."""
OF_CALLS_THAT_END = ("c10d hooks, gloo", "device times", "overlap", "MoE")
"""Sources that see when calls begin and end: of others there are no digests."""
Both = tuple[str, bool, str, str, int, int]
"""Scenario, whether it must be named, how it ended by calls and by digests, rows of both."""


def run(seeds: int = SEEDS) -> list[dict[str, Any]]:
    """How the cases of each source end by calls and by digests, and how many rows that takes."""
    assert set(OF_CALLS_THAT_END) <= set(SOURCES)
    tasks = [(source, seed) for source in OF_CALLS_THAT_END for seed in range(seeds)]
    figures: Counter[tuple[str, str]] = Counter()
    with ProcessPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
        for (source, seed), found in zip(tasks, pool.map(_judged, tasks, chunksize=4), strict=True):
            name, must_name, by_calls, by_digests, n_calls, n_digests = found
            figures[source, "cases"] += 1
            figures[source, "calls"] += n_calls
            figures[source, "rows with digests"] += n_digests
            if must_name:
                figures[source, "must name"] += 1
                figures[source, "named by calls"] += by_calls == "named"
                figures[source, "named by digests"] += by_digests == "named"
            figures[source, "innocent by digests"] += by_digests == "innocent"
            if by_calls != by_digests:
                figures[source, "another answer"] += 1
                print(f"digests: {source}: {name} ({seed}): {by_calls}, {by_digests}", file=sys.stderr, flush=True)
    return [{"case": source, "figure": name, "value": value, "unit": ""} for (source, name), value in figures.items()]


def _judged(task: tuple[str, int]) -> Both:
    case = case_of(*task)
    events = list(simulate(case.spec).events())
    agents = DigestingAgents(events)
    by_digests = outcome_of(findings_of_job(agents.send(events), SETTINGS), case.truth)
    by_calls = outcome_of(findings_of_job(events, SETTINGS), case.truth)
    return case.name, case.truth.must_name, by_calls, by_digests, agents.all_rows, agents.sent_rows
