"""`pacehound analyze`: what files that a job has left say."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
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
    step:…train_time: logs, CSV. Plain or compressed; a directory stands for the files below it. Exit status 2 when no
    file could be read.

    Examples: pacehound analyze dumps/, pacehound analyze train.log --png train.png
    """
    from collector.importers.recognise import read_call_files
    from collector.importers.step_logs.recognise import read_step_logs
    from pacehound.pages.analysis.answer import Analysis, Refused, analysis_answer, read_files
    from pacehound.pages.analysis.files import files_of
    from pacehound.pages.analysis.page import print_analysis
    from pacehound.pages.incidents import terminal

    settings = Settings.load(os.environ, overrides)
    found = read_call_files(files_of(paths))
    calls = _call_sources(found.sets, paths) if found.sets else ()
    refused_calls = [Refused(path=str(one.path), reason=one.reason) for one in found.refused]
    logs, refused = read_files(found.others, read_step_logs)
    past, refused_past = read_files(files_of(history), read_step_logs)
    sources = _log_sources(logs, past, settings) if logs else ()
    analysis = Analysis(sources=sources, refused=(*refused_calls, *refused, *refused_past), calls=calls)
    if png is not None and sources:
        from pacehound.pages.analysis.picture import draw

        draw(sources, png)
    if as_json:
        print_json(analysis_answer(analysis))
    else:
        print_analysis(terminal(sys.stdout), analysis)
    sys.exit(0 if sources or calls else 2)


def _call_sources(sets: Sequence[CallSet], paths: Sequence[Path]) -> tuple[CallSource, ...]:
    """What files of calls say; only they need the rest of the streams."""
    from pacehound.pages.analysis.calls import call_source
    from streams.postmortem import findings_of

    return tuple(call_source(one.folder, one.files, findings_of(one.files), paths) for one in sets)


def _log_sources(
    logs: Sequence[Sequence[StepLog]], past: Sequence[Sequence[StepLog]], settings: Settings
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
