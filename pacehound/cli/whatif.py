"""`pacehound whatif`: what the stragglers of a traced job cost, and whose fault it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pacehound.cli.options import default_store, json_option, print_json, say, set_option
from pacehound.settings import Settings

if TYPE_CHECKING:
    from pacehound.cli.stored_operations import StoredWindow
    from streams.whatif.reader import OpTable

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("trace", metavar="[TRACE]", type=click.Path(path_type=Path), required=False)
@click.option("--job", help="Instead of a trace: the last sampled steps of this job that the store has.")
@click.option("--attempt", type=click.IntRange(0), help="Which of its runs.  [default: the last one with operations]")
@click.option(
    "--store",
    metavar="DIR|URL",
    help="Folder of the history, or its ClickHouse server.  [default: store.url, else pacehound in your XDG data home]",
)
@click.option("--meta", type=_FILE, help="Shape of the job.  [default: meta-NAME.yaml beside trace-NAME.parquet]")
@click.option(
    "--fix",
    "fixes",
    metavar="WHAT",
    multiple=True,
    help="What if this were ideal: worker=DP:PP, dp=DP, stage=PP, stage=last, optype=NAME; may be repeated.",
)
@click.option(
    "--layers-per-stage", type=click.IntRange(2), metavar="N", help="Transformer layers of a stage: how many to move."
)
@click.option("--png", metavar="FILE", type=_FILE, help="Draw the heat maps of the workers here.")
@click.option(
    "--timeline",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the recorded, the simulated and the ideal timeline for Perfetto into this folder.",
)
@set_option
@json_option
def whatif(
    trace: Path | None,
    job: str | None,
    attempt: int | None,
    store: str | None,
    meta: Path | None,
    fixes: tuple[str, ...],
    layers_per_stage: int | None,
    png: Path | None,
    timeline: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Simulate a job without its stragglers: what they cost, whose fault it is, and what would help.

    TRACE is a parquet file with one row per operation (dp_rank, stage, rank, step, optype, start_ts, duration, seq_id,
    mc, gmc, mb_id; times in seconds), as NDTimeline and the artifact of ByteDance's what-if paper have them; or a
    directory with a trace of torch.profiler for each rank (.json, .json.gz), in which the script called profiler.step()
    and, where it has a pipeline, micro-batches are marked (`pacehound run` does). With --job, the store is asked for
    the last ops.window_steps steps that were recorded; those of a GPU job without a price where the times of the calls
    that reduce its gradients are not known. Exit status 2 when it cannot be made sense of.

    Example: pacehound whatif trace-AR.parquet --fix worker=0:0 --png AR.png --timeline .
    """
    from pacehound.cli.progress import Progress
    from pacehound.model.events import Finding
    from pacehound.pages.incidents import price_words
    from pacehound.pages.terminal import terminal
    from pacehound.pages.whatif.answer import price_answer, whatif_answer
    from pacehound.pages.whatif.page import print_whatif
    from pacehound.pages.whatif.picture import draw_workers
    from streams.whatif.analysis import analyse_table
    from streams.whatif.live import live_trace
    from streams.whatif.perfetto import step_origins_s, write_timeline
    from streams.whatif.price_watch import window_price
    from streams.whatif.tensor_groups import tensor_groups
    from streams.whatif.timelines import timelines
    from streams.whatif.trace_windows import straggling_in
    from streams.whatif.untimed import untimed_reductions

    settings = Settings.load(os.environ, overrides)
    if (trace is None) == (job is None):
        raise click.UsageError("give one of TRACE and --job")
    price, unpriced, said_of_job = None, "", list[Finding]()
    with Progress() as progress:
        if trace is not None:
            progress.stage(f"reading {trace.name}")
            rows = _read(trace)
            progress.stage("simulating the job without its stragglers")
            found, built = analyse_table(rows, trace, meta, fixes, layers_per_stage)
            progress.stage("looking for who is slow")
            said_of_job = straggling_in(rows, trace, settings.ops.window_steps, meta)
        else:
            progress.stage("reading the last steps from the store")
            window = _stored(store, settings, str(job), attempt)
            progress.stage("simulating the job without its stragglers")
            groups = tensor_groups([window.operations], window.rounds)
            table = live_trace([window.operations], window.rounds, f"job {job}", groups)
            found, built = analyse_table(table, Path(str(job).replace("/", "_")), meta, fixes, layers_per_stage)
            unpriced = untimed_reductions([window.operations], window.rounds)
            if not unpriced:
                price = window_price(
                    built, found, str(job), window.attempt, window.operations.time_ns, window.world_size, groups
                )
    if png is not None:
        draw_workers(found, png)
    if timeline is not None:
        lines = timelines(built)
        origins_s = step_origins_s(list(lines.values()))
        for name, line in lines.items():
            file = timeline / f"{name}-{found.meta.trial_name}.json.gz"
            write_timeline(line, origins_s, file)
            say(f"pacehound: wrote {file} ({len(line.steps)} steps); open it in Perfetto", err=True)
    if as_json:
        said = {"unpriced": unpriced} if unpriced else {}
        print_json(whatif_answer(found, said_of_job) | said | ({} if price is None else price_answer(price)))
    else:
        print_whatif(terminal(sys.stdout), found, said_of_job)
        if price is not None:
            say(f"\nAs an incident would say it: {price_words(price)}")
        if unpriced:
            say(f"\nNo price, and waiting for the other ranks counts as computing above: {unpriced}")


def _read(trace: Path) -> OpTable:
    from collector.importers.kineto_operations import SUFFIXES, read_kineto
    from streams.whatif.live import live_trace
    from streams.whatif.reader import read_trace
    from streams.whatif.tensor_groups import tensor_groups

    if trace.is_dir() or trace.name.endswith(SUFFIXES):
        job = read_kineto(trace)
        return live_trace(job.operations, job.rounds, trace.name, tensor_groups(job.operations, job.rounds))
    return read_trace(trace)


def _stored(store: str | None, settings: Settings, job: str, attempt: int | None) -> StoredWindow:
    from pacehound.cli.history import history
    from pacehound.cli.stored_operations import stored_window

    address = store or settings.store.url
    if "://" in address:
        from storage.client import Store

        with Store.connect(address, settings.store.user, settings.store.password) as server:
            return stored_window(server.query, job, attempt, settings.ops.window_steps)
    folder = Path(address) if address else default_store()
    with history(folder.expanduser().absolute()) as answers:
        return stored_window(answers.sql, job, attempt, settings.ops.window_steps)
