"""`pacehound analyze`: what files that a job has left say."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pacehound.cli.options import json_option, print_json, set_option
from pacehound.settings import Settings

if TYPE_CHECKING:
    from collector.importers.recognise import CallSet
    from pacehound.model.events import Finding
    from pacehound.model.step_log import StepLog
    from pacehound.pages.analysis.answer import Source
    from pacehound.pages.analysis.calls import CallSource


@click.command()
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--history",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Logs of earlier runs of the same job; may be repeated.",
)
@click.option("--png", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Draw the series here.")
@set_option
@json_option
def analyze(
    paths: tuple[Path, ...], history: tuple[Path, ...], png: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Say what is wrong with a training job from files that it left.

    Call files: dumps of the Flight Recorder, logs of NCCL's Inspector, answers of NCCL's RAS, traces of torch.profiler,
    scrapes of xpu_timer; those of one directory are read as one job. Step-time logs: Megatron, MLPerf,
    nanoGPT, torchtitan, step:…train_time: logs, CSV. Plain or compressed; a directory stands for the files below it.
    Exit status 2 when no file could be read.

    Examples: pacehound analyze dumps/, pacehound analyze train.log --png train.png
    """
    from collector.importers.recognise import read_call_files
    from collector.importers.step_logs.recognise import read_step_logs
    from pacehound.cli.progress import Progress
    from pacehound.pages.analysis.answer import Analysis, Refused, analysis_answer, read_files
    from pacehound.pages.analysis.files import files_of
    from pacehound.pages.analysis.page import print_analysis
    from pacehound.pages.terminal import terminal

    settings = Settings.load(os.environ, overrides)
    with Progress() as progress:
        found = read_call_files(progress.over(files_of(paths), "reading files of calls"))
        calls = _call_sources(progress.over(found.sets, "judging calls"), paths, settings) if found.sets else ()
        refused_calls = [Refused(path=str(one.path), reason=one.reason) for one in found.refused]
        logs, refused = read_files(progress.over(found.others, "reading logs"), read_step_logs)
        past, refused_past = read_files(progress.over(files_of(history), "reading earlier logs"), read_step_logs)
        sources = _log_sources(progress.over(logs, "judging step times"), past, settings) if logs else ()
    analysis = Analysis(sources=sources, refused=(*refused_calls, *refused, *refused_past), calls=calls)
    if png is not None and sources:
        from pacehound.pages.analysis.picture import draw

        draw(sources, png)
    if as_json:
        print_json(analysis_answer(analysis))
    else:
        print_analysis(terminal(sys.stdout), analysis)
    sys.exit(0 if sources or calls else 2)


def _call_sources(sets: Iterable[CallSet], paths: Sequence[Path], settings: Settings) -> tuple[CallSource, ...]:
    """What files of calls say; only they need the rest of the streams."""
    from collector.importers.call_files import kineto
    from pacehound.pages.analysis.calls import call_source
    from streams.postmortem import findings_of

    sources = []
    for one in sets:
        findings = findings_of(one.files)
        if one.format == kineto.FORMAT and all(finding.kind == "slow" for finding in findings):
            findings = _as_what_if_says(one, findings, settings)
        sources.append(call_source(one.folder, one.files, findings, paths))
    return tuple(sources)


def _as_what_if_says(traces: CallSet, findings: list[Finding], settings: Settings) -> list[Finding]:
    """What `pacehound whatif` says of the same traces, where it can; who waits in calls for whom is evidence for it."""
    from collector.importers.kineto_operations import read_kineto
    from pacehound.errors import InvalidInput
    from pacehound.model.evidence import merged
    from streams.whatif.live import live_trace
    from streams.whatif.tensor_groups import tensor_groups
    from streams.whatif.trace_windows import straggling_in

    try:
        job = read_kineto(traces.folder)
        groups = tensor_groups(job.operations, job.rounds)
        table = live_trace(job.operations, job.rounds, traces.folder.name, groups)
        said = straggling_in(table, traces.folder, settings.ops.window_steps, groups=groups)
    except InvalidInput:
        return findings  # its steps cannot be told from each other, or ranks are missing
    waiting = tuple(piece for finding in findings for piece in finding.evidence)
    return [replace(one, evidence=merged(one.evidence, waiting)) for one in said] or findings


def _log_sources(
    logs: Iterable[Sequence[StepLog]], past: Sequence[Sequence[StepLog]], settings: Settings
) -> tuple[Source, ...]:
    """What step times say; only they need the detector, which is compiled."""
    from pacehound.pages.analysis.answer import analysed
    from streams.level.pauses import long_pause
    from streams.level.step_series import earlier_runs, follow, watch_for

    earlier = earlier_runs([log for logs_of_file in past for log in logs_of_file], min_change=settings.slow.min_change)

    def followed(log: StepLog) -> tuple[Sequence[Finding], Sequence[Finding]]:
        findings, planned = follow(log, watch_for(log, min_change=settings.slow.min_change, earlier=earlier))
        pause = long_pause(log, settings.incidents)
        return (*findings, *(() if pause is None else (pause,))), planned

    return tuple(analysed(logs_of_file, followed) for logs_of_file in logs)
