"""`pacehound evaluate`: the detection against known answers."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pacehound.cli.options import json_option, print_json, say, set_option
from pacehound.errors import InvalidInput
from pacehound.settings import Settings

if TYPE_CHECKING:
    from pacehound.cli.progress import Progress
    from pacehound.pages.scoreboard import Row
    from streams.scoring.evaluate import Score

_PART_OF_A_SUITE = 20
"""So many series of each suite are scored where none is named: under a minute in all."""
_PART_OF_THE_CAUSES = 3
"""And so many jobs of each source."""


@click.command()
@click.argument("paths", metavar="[PATH]…", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--truth",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Answers about the logs PATH… (JSON, see pacehound/model/truth/file.py).",
)
@click.option(
    "--suite",
    "suites",
    metavar="NAME",
    multiple=True,
    help="Score this suite in full; may be repeated.  [default: a part of each]",
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Seeds of the suites.")
@set_option
@json_option
def evaluate(
    paths: tuple[Path, ...],
    truth: Path | None,
    suites: tuple[str, ...],
    seeds: int,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Score the detection against known answers: of synthetic jobs, or of logs whose answers FILE has.

    Suites: one_node, four_node, clean, drift, speedup, intermittent, schedule, batch_ramp, delay_20, delay_12 (step
    times), calls (whole jobs, with the culprits), root_cause (whole jobs of every class through every source: a fault
    is expected where the source shows enough to name it).

    Example: pacehound evaluate --truth answers.json run-17.log run-18.log
    """
    from pacehound.cli.progress import Progress
    from pacehound.pages.scoreboard import print_scoreboard, scoreboard_answer
    from pacehound.pages.terminal import terminal

    if paths and truth is None:
        raise InvalidInput("logs are scored against answers: give --truth FILE")
    settings = Settings.load(os.environ, overrides)
    with Progress() as progress:
        rows = _score_logs(paths, truth, settings, progress) if truth else []
        if suites or not truth:
            rows += _score_suites(suites, range(seeds), settings, progress)
    if as_json:
        print_json(scoreboard_answer(rows))
    else:
        print_scoreboard(terminal(sys.stdout), rows)


def _score_logs(paths: tuple[Path, ...], truth: Path, settings: Settings, progress: Progress) -> list[Row]:
    from collector.importers.step_logs.recognise import read_step_logs
    from pacehound.model.truth.file import TruthFile
    from pacehound.pages.analysis.files import files_of
    from streams.level.step_series import follow, watch_for
    from streams.scoring.evaluate import ONSET_WITHIN, score

    answers = TruthFile.read(truth)
    rows = []
    files = files_of(paths) or [truth.parent / answer.path for answer in answers.logs]
    for path in progress.over(files, "scoring logs"):
        answer = answers.about(path)
        for log in read_step_logs(path):
            findings, _ = follow(log, watch_for(log, min_change=settings.slow.min_change))
            within = ONSET_WITHIN if answer.onset_within is None else answer.onset_within
            case = str(path) if log.rank is None else f"{path} rank {log.rank}"
            rows.append(_row("logs", case, score(findings, answer.of(log), onset_within=within)))
    return rows


def _score_suites(names: tuple[str, ...], seeds: range, settings: Settings, progress: Progress) -> list[Row]:
    from simulator.job import simulate
    from simulator.suites.call_jobs import CALL_JOBS, step_truth_of
    from simulator.suites.step_times import POPULATIONS
    from streams.level.step_series import earlier_runs, follow, watch_for
    from streams.scoring.evaluate import Score, score
    from streams.scoring.whole_job import findings_of_job

    known = [*POPULATIONS, "calls", "root_cause"]
    if unknown := sorted(set(names) - set(known)):
        raise InvalidInput(f"there is no suite {', '.join(unknown)}; there are {', '.join(known)}")
    rows = []
    for name in names or known:
        what = f"scoring {name}"
        if not sys.stderr.isatty():
            say(f"pacehound: {what}", err=True)
        if name == "calls":
            for case, make in progress.over(CALL_JOBS.items(), what):
                jobs = [simulate(make(seed)) for seed in seeds]
                scores = [score(findings_of_job(job.events(), settings), step_truth_of(job)) for job in jobs]
                rows.append(_row(name, case, Score.total(scores)))
            continue
        if name == "root_cause":
            rows += _score_root_causes(len(seeds), bool(names), settings, progress)
            continue
        for seed in seeds:
            scores = []
            population = POPULATIONS[name]
            count = population.count if names else min(_PART_OF_A_SUITE, population.count)
            for series in progress.over(population.series(seed, count), f"{what}, seed {seed}", count):
                watch = watch_for(
                    series.log,
                    min_change=settings.slow.min_change,
                    earlier=earlier_runs(series.earlier, min_change=settings.slow.min_change),
                )
                scores.append(score(follow(series.log, watch)[0], series.truth))
            rows.append(_row(name, f"seed {seed}", Score.total(scores)))
    return rows


def _score_root_causes(n_seeds: int, is_whole: bool, settings: Settings, progress: Progress) -> list[Row]:
    """One row per source; a seed stands for a job of each scenario."""
    from pacehound.pages.scoreboard import Row
    from simulator.job import simulate
    from simulator.suites.root_cause_jobs import SCENARIOS, SOURCES, SUSPECT_AFTER_S, cases
    from streams.scoring.verdicts import VerdictScore, score_verdicts
    from streams.scoring.whole_job import findings_of_job

    n_cases = n_seeds * len(SCENARIOS) if is_whole else _PART_OF_THE_CAUSES
    settings = replace(settings, hang=replace(settings.hang, suspect_after_s=SUSPECT_AFTER_S))
    rows = []
    progress.stage("scoring root_cause", len(SOURCES) * n_cases)
    for source in SOURCES:
        total = VerdictScore()
        for case in cases(source, n_cases):
            total += score_verdicts(findings_of_job(simulate(case.spec).events(), settings), case.truth)
            progress.advance()
        rows.append(
            Row(
                suite="root_cause",
                case=source,
                expected=total.must_name,
                found=total.must.get("named", 0),
                precision=None,
                recall=total.named_share,
                delay_iterations=None,
                false_alarms=total.all_of("innocent"),
                culprit_accuracy=total.named_share,
            )
        )
    return rows


def _row(suite: str, case: str, score: Score) -> Row:
    """What a score says, in the words of the contract."""
    from pacehound.pages.scoreboard import Row

    return Row(
        suite=suite,
        case=case,
        expected=score.expected,
        found=score.found,
        precision=score.precision,
        recall=score.recall,
        delay_iterations=score.delay(0.5),
        false_alarms=score.false_alarms,
        culprit_accuracy=score.culprit_accuracy,
    )
