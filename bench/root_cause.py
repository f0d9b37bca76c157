"""Root causes through every source: thousands of marked jobs; writes a section of `docs/scoreboard.md`.

It takes minutes, so that it does not run unless it is named: `python -m bench root_cause`.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.root_cause_page import section, with_section
from pacehound.model.events import Finding, Incident
from pacehound.model.routing import Event
from pacehound.settings import HangSettings, Settings
from simulator.job import simulate
from simulator.suites.root_cause_jobs import (
    SCENARIOS,
    SOURCES,
    SUSPECT_AFTER_S,
    RootCauseCase,
    case_of,
    large_cases,
    link_cases,
)
from streams.pipeline import Pipeline
from streams.scoring.verdicts import Outcome, VerdictScore, outcome_of
from streams.scoring.whole_job import findings_of_job

SEEDS = 12 * len(SCENARIOS)
"""Of each row: every scenario comes up twelve times."""
LINK_CASES = 10
"""Of each kind of edge and number of ranks."""
WORKERS = 2
PAGE = Path(__file__).parents[1] / "docs" / "scoreboard.md"
Large = tuple[str, str, bool, str, float, float, float]
"""Case, source, whether it must be named, how it ended; seconds to simulate it, to judge all its events, and in the
event with which a finding was said that took longest."""
_RIGHT = {True: ("named",), False: ("named", "suspected", "unknown", "nothing", "wrong class")}
SETTINGS = Settings(hang=replace(HangSettings(), suspect_after_s=SUSPECT_AFTER_S))


def run(seeds: int = SEEDS, *, is_large: bool = True, write_to: Path = PAGE) -> list[dict[str, Any]]:
    """Score everything and write the section; one row per source and figure.

    Parameters
    ----------
    seeds
        Cases of each row.
    is_large
        The edges at 16 to 512 ranks and the eleven cases at 4,096 ranks, too: some minutes, and some GB.
    write_to
        The page that gets the section.

    """
    tasks = [(source, seed) for source in SOURCES for seed in range(seeds)]
    scores = {source: VerdictScore() for source in SOURCES}
    wrong: dict[tuple[str, str], list[int]] = {}
    n_workers = min(WORKERS, os.cpu_count() or 1)
    with ProcessPoolExecutor(n_workers) as pool:
        for (source, seed), (name, must_name, outcome) in zip(tasks, pool.map(_judge, tasks, chunksize=8), strict=True):
            scores[source] += VerdictScore(must={outcome: 1}) if must_name else VerdictScore(may={outcome: 1})
            if outcome not in _RIGHT[must_name]:
                wrong.setdefault((source, name), []).append(seed)
        sized = list(link_cases(LINK_CASES)) if is_large else []
        outcomes = pool.map(judge, (case for _, case in sized))
        edges = Counter((case.name, n_ranks, said) for (n_ranks, case), said in zip(sized, outcomes, strict=True))
        large: list[Large] = []
        _write(write_to, section(scores, seeds, edges, large, wrong))
        for judged in pool.map(_judge_large, large_cases() if is_large else ()):
            # Each takes minutes: who stops the run keeps what it has found so far.
            large.append(judged)
            print(f"root_cause: {judged}", file=sys.stderr, flush=True)
            _write(write_to, section(scores, seeds, edges, large, wrong))
    rows = []
    for source, score in scores.items():
        figures = {
            "cases": score.cases,
            "must name": score.must_name,
            "named right": score.must.get("named", 0),
            "named wrong class": score.must.get("wrong class", 0),
            "named wrong word": score.must.get("wrong word", 0),
            "innocent blamed": score.all_of("innocent"),
            "unknown": score.must.get("unknown", 0) + score.must.get("nothing", 0),
            "suspected": score.must.get("suspected", 0),
        }
        rows += [{"case": source, "figure": name, "value": value, "unit": ""} for name, value in figures.items()]
    for (name, n_ranks, said), number in edges.items():
        rows.append({"case": f"{n_ranks} ranks: {name}", "figure": said, "value": number, "unit": ""})
    for name, source, _, ended, simulated_s, judged_s, said_s in large:
        case = f"4,096 ranks, {source}: {name}"
        rows += [
            {"case": case, "figure": ended, "value": 1, "unit": ""},
            {"case": case, "figure": "simulated in", "value": simulated_s, "unit": "s"},
            {"case": case, "figure": "judged in", "value": judged_s, "unit": "s"},
            {"case": case, "figure": "said in", "value": said_s, "unit": "s"},
        ]
    return rows


def _write(page: Path, text: str) -> None:
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(with_section(before, text), encoding="utf-8")


def judge(case: RootCauseCase) -> Outcome:
    """Simulate a case and hand it to the pipeline."""
    return outcome_of(findings_of_job(simulate(case.spec).events(), SETTINGS), case.truth)


def _judge(task: tuple[str, int]) -> tuple[str, bool, Outcome]:
    case = case_of(*task)
    return case.name, case.truth.must_name, judge(case)


def _judge_large(case: RootCauseCase) -> Large:
    begun_s = time.process_time()
    events = list(simulate(case.spec).events())
    simulated_s = time.process_time() - begun_s
    findings, judged_s, said_s = _timed(events)
    ended = outcome_of(findings, case.truth)
    return case.name, case.source, case.truth.must_name, ended, simulated_s, judged_s, said_s


def _timed(events: Sequence[Event]) -> tuple[list[Finding], float, float]:
    """What is said in the end, the seconds of all events, and of the longest one that something was said with."""
    latest: dict[str, Finding] = {}
    pipeline, judged_s, said_s = Pipeline(SETTINGS), 0.0, 0.0
    for event in events:
        begun_s = time.process_time()
        said = [one for one in pipeline.on_event(event) if isinstance(one, Incident)]
        took_s = time.process_time() - begun_s
        judged_s += took_s
        said_s = max(said_s, took_s) if said else said_s
        latest |= {finding.id: finding for incident in said for finding in incident.findings}
    return list(latest.values()), judged_s, said_s
