"""Jobs that are slow from their first step, and clean ones; writes a section of `docs/scoreboard.md`.

It takes minutes, so that it does not run unless it is named: `python -m bench always`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal

from bench.always_page import section, with_section
from pacehound.model.events import Finding
from pacehound.settings import Settings
from simulator.job import simulate
from simulator.suites.always_slow_jobs import CONDITIONS, FAULTS, LARGE, SMALL, AlwaysSlowCase, case_of
from streams.scoring.whole_job import findings_of_job

SEEDS = 6 * len(CONDITIONS)
"""Of each fault, at 16 to 64 ranks."""
CLEAN_SEEDS = 300
LARGE_SEEDS = 1
"""Of each fault at 256 to 1,024 ranks; of clean ones six times as many, within the 300."""
WORKERS = 2
PAGE = Path(__file__).parents[1] / "docs" / "scoreboard.md"
Task = tuple[str, int, bool]
"""Fault, seed, whether it is large."""
Ended = Literal["named", "group", "innocent", "others suspected", "nobody", "missed", "quiet", "false"]


def judge(case: AlwaysSlowCase) -> tuple[Ended, int | None]:
    """Simulate a case and hand it to the pipeline: how it ended, and the step at which that was said first."""
    said = findings_of_job(simulate(case.spec).events(), Settings())
    findings = [finding for finding in said if finding.kind in ("slow", "intermittent")]
    if case.name == "clean":
        return ("false" if findings else "quiet"), None
    blamed = [finding for finding in findings if finding.verdict == "culprit"]
    if not all(_is_guilty(finding, case) for finding in blamed):
        return "innocent", None
    for finding in findings:
        if _names(finding, case):
            return "named", finding.detected.step if finding.detected else None
    for finding in findings:
        ends = {rank for link in case.links for rank in link}
        if not case.is_shown and finding.cause == "S2" and not finding.links and ends <= set(finding.candidates):
            return "group", finding.detected.step if finding.detected else None
    if not findings:
        return "missed", None
    return ("others suspected" if any(f.culprits or f.links for f in findings) else "nobody"), None


def _undirected(links: tuple[tuple[int, int], ...]) -> set[frozenset[int]]:
    return {frozenset(link) for link in links}


def _is_guilty(finding: Finding, case: AlwaysSlowCase) -> bool:
    return set(finding.culprits) <= set(case.culprits) and _undirected(finding.links) <= _undirected(case.links)


def _names(finding: Finding, case: AlwaysSlowCase) -> bool:
    return finding.culprits == case.culprits and _undirected(finding.links) == _undirected(case.links)


def _judge(task: Task) -> tuple[str, float, Ended, int | None]:
    name, seed, is_large = task
    case = case_of(name, seed, LARGE if is_large else SMALL)
    return case.condition, case.growth, *judge(case)


def run(
    seeds: int = SEEDS, clean: int = CLEAN_SEEDS, large: int = LARGE_SEEDS, *, write_to: Path = PAGE
) -> list[dict[str, Any]]:
    """Score everything and write the section; one row per fault and figure.

    Parameters
    ----------
    seeds
        Cases of each fault at up to 64 ranks.
    clean
        Clean jobs.
    large
        Cases of each fault at 256 to 1,024 ranks; each takes up to a minute.
    write_to
        The page that gets the section.

    """
    tasks: list[Task] = [(name, seed, False) for name in FAULTS for seed in range(seeds)]
    tasks += [(name, seed, True) for name in FAULTS for seed in range(large)]
    tasks += [("clean", seed, seed % (clean // (6 * large)) == 0 if large else False) for seed in range(clean)]
    ends: Counter[tuple[str, str, str]] = Counter()
    steps: dict[str, list[int]] = {}
    wrong: dict[tuple[str, str], list[str]] = {}
    with ProcessPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
        for (name, seed, is_large), (condition, growth, ended, step) in zip(
            tasks, pool.map(_judge, tasks), strict=True
        ):
            row = f"{name}, 256 to 1,024 ranks" if is_large else name
            ends[row, condition, ended] += 1
            if step is not None:
                steps.setdefault(row, []).append(step)
            if ended not in ("named", "group", "quiet"):
                wrong.setdefault((row, ended), []).append(f"{seed}: {condition}, +{growth:.0%}")
                print(f"always: {row} {seed} ({condition}, +{growth:.0%}): {ended}", file=sys.stderr, flush=True)
    before = write_to.read_text(encoding="utf-8") if write_to.exists() else ""
    write_to.write_text(with_section(before, section(ends, steps, wrong)), encoding="utf-8")
    return [
        {"case": f"{name}: {condition}", "figure": ended, "value": n, "unit": ""}
        for (name, condition, ended), n in sorted(ends.items())
    ]
