"""The scoreboard: every detector over the recordings and over synthetic jobs; writes `docs/scoreboard.md`.

It takes some twenty minutes, so that it does not run unless it is named: `python -m bench detection`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.baselines import PlainBocd, SlidingWindow
from bench.exactness import Exactness, compare
from bench.recordings import read, recordings
from bench.root_cause_page import later_sections
from bench.scoreboard_page import Recorded, Unseen, Wrong, expected_words, page, said_words
from pacehound.model.events import Finding
from simulator.suites.step_times import POPULATIONS
from streams.level import step_watch
from streams.level.step_series import SeriesWatch, rows_of
from streams.level.step_watch import StepTime
from streams.scoring.evaluate import ONSET_WITHIN, Score, score

SEEDS = (0, 1, 2)
WORKERS = 2
PAGE = Path(__file__).parents[1] / "docs" / "scoreboard.md"
_CHUNK = 20

METHODS: dict[str, Callable[[str], SeriesWatch]] = {
    "sliding window": lambda job: SlidingWindow(job=job),
    "BOCD": lambda job: PlainBocd(job=job),
    "BOCD + verification": lambda job: step_watch.StepWatch(job=job, small_changes=False),
    "Pacehound": lambda job: step_watch.StepWatch(job=job),
}
"""By the name that stands in the table; the first three are those of Falcon's tables 4 and 5."""
OURS = "Pacehound"


@dataclass(frozen=True, slots=True)
class _Task:
    """Some series of one suite, and the methods over each."""

    suite: str
    seed: int
    first: int
    end: int
    methods: tuple[str, ...]


_Scored = tuple[dict[tuple[str, str], Score], list[Wrong]]
"""Scores by suite and method, and the series that went wrong."""


def run(
    seeds: tuple[int, ...] = SEEDS, largest: int | None = None, write_to: Path = PAGE, drawn: int | None = None
) -> list[dict[str, Any]]:
    """Score everything and write the page; one row per suite, method and figure.

    Parameters
    ----------
    seeds
        Of the synthetic jobs; the scores of all seeds are added.
    largest
        Takes no more than so many series of a suite and seed (for a quick look).
    write_to
        Where the page goes.
    drawn
        The seed that nobody has looked at before, for ours alone; one is drawn and stands in the page.

    """
    drawn = random.SystemRandom().randrange(1_000, 1_000_000_000) if drawn is None else drawn
    # Two threads in each worker would only get into each other's way.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(WORKERS) as workers:
        recorded = list(workers.map(_score_recording, range(len(recordings()))))
        exactness = Exactness.total(workers.map(_compare_recording, range(len(recordings()))))
        exactness = Exactness.total([exactness, *workers.map(_compare_series, _tasks(seeds, largest))])
        scores, wrong = _added(workers.map(_score_series, _tasks(seeds, largest)))
        of_drawn, wrong_of_drawn = _added(workers.map(_score_series, _tasks((drawn,), largest, (OURS,))))
    by_recording = {case: of_one for by_case, _ in recorded for case, of_one in by_case.items()}
    answers = [answer for _, answer in recorded]
    unseen = Unseen(drawn, {suite: one for (suite, _), one in of_drawn.items()}, wrong_of_drawn)
    written = page(scores, by_recording, list(METHODS), seeds, answers, wrong, exactness, unseen)
    write_to.write_text(written + later_sections(write_to), encoding="utf-8")
    rows = [
        row for of in (by_recording, scores) for (suite, method), one in of.items() for row in _rows(suite, method, one)
    ]
    for figure, value in (("compared", exactness.series), ("different", len(exactness.different))):
        rows.append({"case": "exact posterior", "figure": figure, "value": value, "unit": "series"})
    rows += [row for suite, one in unseen.scores.items() for row in _rows(f"{suite}, seed {drawn}", OURS, one)]
    return rows


def _added(parts: Iterable[_Scored]) -> _Scored:
    """The scores of all parts by case, and all that went wrong in them."""
    scores: dict[tuple[str, str], Score] = {}
    wrong: list[Wrong] = []
    for by_case, wrong_ones in parts:
        wrong += wrong_ones
        for case, one in by_case.items():
            scores[case] = scores.get(case, Score()) + one
    return scores, wrong


def _tasks(seeds: tuple[int, ...], largest: int | None, methods: tuple[str, ...] = tuple(METHODS)) -> Iterator[_Task]:
    for population in POPULATIONS.values():
        count = min(population.count, largest or population.count)
        for seed in seeds:
            for first in range(0, count, _CHUNK):
                yield _Task(population.name, seed, first, min(first + _CHUNK, count), methods)


def _score_series(task: _Task) -> _Scored:
    wrong: list[Wrong] = []
    scores: dict[tuple[str, str], list[Score]] = {(task.suite, method): [] for method in task.methods}
    for number in range(task.first, task.end):
        series = POPULATIONS[task.suite].make(task.seed, number)
        rows = list(rows_of(series.log))
        for method in task.methods:
            findings, relief_said = _followed(rows, METHODS[method](series.name))
            one = score(findings, series.truth, relief_said=relief_said)
            scores[task.suite, method].append(one)
            if one.series_wrong:
                wrong.append(
                    Wrong(
                        method=method,
                        name=series.name,
                        seed=task.seed,
                        missed=one.expected - one.found,
                        false_alarms=one.false_alarms,
                    )
                )
    return {case: Score.total(of_series) for case, of_series in scores.items()}, wrong


def _score_recording(number: int) -> tuple[dict[tuple[str, str], Score], Recorded]:
    answer, path = recordings()[number]
    log = read(path)
    truth = answer.of(log)
    within = ONSET_WITHIN if answer.onset_within is None else answer.onset_within
    name = path.name.split(".")[0]
    rows = list(rows_of(log))
    scores = {}
    for method, begin in METHODS.items():
        findings, relief_said = _followed(rows, begin(name))
        scores[name, method] = score(findings, truth, onset_within=within, relief_said=relief_said)
    # The last method is ours.
    answer_words = Recorded(
        name=name, n_steps=int(log.n_steps.sum()), expected=expected_words(truth), said=said_words(findings)
    )
    return scores, answer_words


def _compare_series(task: _Task) -> Exactness:
    series = (POPULATIONS[task.suite].make(task.seed, number) for number in range(task.first, task.end))
    return Exactness.total([compare(f"{one.name} (seed {task.seed})", one.log) for one in series])


def _compare_recording(number: int) -> Exactness:
    _, path = recordings()[number]
    return compare(path.name, read(path))


def _followed(rows: Sequence[StepTime], watch: SeriesWatch) -> tuple[list[Finding], dict[str, int]]:
    """Every version of every finding, and the step at which the relief of each was first said."""
    findings: list[Finding] = []
    relief_said: dict[str, int] = {}
    for row in rows:
        for finding in watch.update(row):
            findings.append(finding)
            if finding.relief is not None:
                relief_said.setdefault(finding.id, row.step)
    return findings, relief_said


def _rows(suite: str, method: str, one: Score) -> list[dict[str, Any]]:
    figures = (
        ("series", one.series, "series"),
        ("expected", one.expected, "faults"),
        ("found", one.found, "faults"),
        ("false alarms", one.false_alarms, "alarms"),
        ("false alarms per 1,000 iterations", one.false_alarms_per_1000, "alarms"),
        ("repeats", one.repeats, "alarms"),
        ("excused", one.excused, "alarms"),
        ("precision", one.precision, "share"),
        ("recall", one.recall, "share"),
        ("noted", one.notes_recall, "share"),
        ("median delay", one.delay(0.5), "iterations"),
        ("95th percentile of the delay", one.delay(0.95), "iterations"),
        ("longest delay", one.delay(1.0), "iterations"),
        ("median delay of the relief", one.relief_delay(0.5), "iterations"),
        ("longest delay of the relief", one.relief_delay(1.0), "iterations"),
        ("slow steps inside a finding", one.slow_share_covered, "share"),
        ("quiet steps called slow", one.quiet_share_called_slow, "share"),
        ("series right", one.accuracy, "share"),
    )
    return [
        {"case": f"{suite}, {method}", "figure": figure, "value": value, "unit": unit}
        for figure, value, unit in figures
        if value is not None
    ]
