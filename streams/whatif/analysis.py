"""From a trace to everything that is said about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidInput
from pacehound.model.whatif_result import LEAST_SLOWDOWN_TOLD, Blame, JobMeta, WhatIf
from streams.whatif import metrics
from streams.whatif.clocks import on_one_clock
from streams.whatif.durations import ideal_durations, launch_delays, own_durations
from streams.whatif.fixes import fixed, parse_fix
from streams.whatif.graph import graph_of
from streams.whatif.layout import Trace, lay_out
from streams.whatif.meta import meta_of
from streams.whatif.model import Model, dependency_model
from streams.whatif.patterns import patterns_of
from streams.whatif.peers import without_mismatched_steps
from streams.whatif.reader import OpTable
from streams.whatif.scenarios import Job, StepEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A trace that is ready to be simulated."""

    trace: Trace
    meta: JobMeta
    model: Model
    job: Job


def build(table: OpTable, path: Path, meta_file: Path | None = None) -> Built:
    """Tensors, dependencies, own and ideal durations of a trace.

    Raises
    ------
    InvalidInput
        The trace cannot be made sense of.
    """
    name = path.name
    trace = lay_out(table, name)
    meta = meta_of(trace, path, meta_file)
    step, dp = _first_whole(trace, name)
    starts_s, durations_s = trace.starts_s[:, step, dp], trace.durations_s[:, step, dp]
    model = dependency_model(trace.ops, starts_s, durations_s, name)
    trace = without_mismatched_steps(on_one_clock(trace, model), model, name)
    own_s, trace = own_durations(trace, model)
    graph = graph_of(trace.ops, model, starts_s, name)
    job = Job(ops=trace.ops, graph=graph, own_s=own_s, ideal_s=ideal_durations(own_s, trace.ops))
    return Built(trace=trace, meta=meta, model=model, job=job)


def _first_whole(trace: Trace, name: str) -> tuple[int, int]:
    """The first step and DP rank of which nothing is missing: the order of launches is taken from it."""
    is_whole = ~np.isnan(trace.durations_s).any(axis=0)
    if not is_whole.any():
        raise InvalidInput(
            f"{name}: every step of every DP rank misses some operation; there is none to take the order from"
        )
    step, dp = np.argwhere(is_whole)[0]
    return int(step), int(dp)


def analyse(built: Built, fixes: Sequence[str] = (), layers_per_stage: int | None = None) -> WhatIf:
    """Every figure and pattern of a trace, and the answers to one's own questions.

    `fixes` are as `fixes.parse_fix` takes them. With `layers_per_stage`, transformer layers of a stage, what to move is
    told in layers.

    Raises
    ------
    InvalidInput
        A question is of no known form, or no operation takes any time.
    """
    job, trace = built.job, built.trace
    asked = [parse_fix(text, job) for text in fixes]
    original = job.keeping(np.ones(len(job.ops), dtype=bool))
    ideal = job.keeping(np.zeros(len(job.ops), dtype=bool))
    if not ideal.optimizer_end_s.min() > 0:
        raise InvalidInput(f"{built.meta.trial_name}: its operations take no time")
    recorded_s = metrics.recorded_step_times_s(trace)
    by_dp_rank = metrics.by_dp_rank(job, ideal)
    by_stage, last_alone = metrics.by_stage(job, ideal)
    by_worker, by_worker_per_step = metrics.by_worker(job, ideal)
    cells = np.minimum(by_stage.slowdown[:, None], by_dp_rank.slowdown[None, :])
    slowest = metrics.slowest_workers(cells, trace.ranks)
    launch_slowdown = float(recorded_s.mean() / original.optimizer_end_s.mean())
    launch = _launch_blames(built, original) if launch_slowdown >= LEAST_SLOWDOWN_TOLD else (None, None, None)
    found = WhatIf(
        meta=built.meta,
        steps=trace.steps,
        recorded_s=recorded_s,
        original_s=original.end_s,
        ideal_s=ideal.end_s,
        slowdown=float(original.end_s.mean() / ideal.optimizer_end_s.mean()),
        step_slowdown=original.end_s / ideal.optimizer_end_s,
        launch_slowdown=launch_slowdown,
        launch_step_slowdown=recorded_s / original.optimizer_end_s,
        by_dp_rank=by_dp_rank,
        by_stage=by_stage,
        by_optype=metrics.by_optype(job, ideal),
        by_worker=by_worker,
        by_worker_per_step=by_worker_per_step,
        ranks=trace.ranks,
        correlation=metrics.forward_backward_correlation(job.ops, job.own_s),
        slowest_workers=metrics.share_of_workers(job, slowest, original, ideal),
        last_stage=metrics.share_of_last_stage(job, last_alone, original, ideal),
        launch_by_dp_rank=launch[0],
        launch_by_stage=launch[1],
        launch_by_optype=launch[2],
        defects=trace.defects,
        fixes=fixed(job, asked, original, ideal),
    )
    return replace(found, patterns=patterns_of(found, trace, job, layers_per_stage))


def _launch_blames(built: Built, original: StepEnds) -> tuple[Blame, Blame, Blame]:
    """Which part's launch delays make the recorded steps longer than the simulated ones.

    First operations of a step's workers, which wait for data, are told as a type of their own.
    """
    job, delays_s = built.job, launch_delays(built.trace, built.model)
    n_dp, n_stages = job.n_dp, job.ops.n_stages

    def blamed(parts: dict[str, npt.NDArray[np.bool_]]) -> Blame:
        columns_s = np.stack([job.delayed(delays_s, is_of_part) for is_of_part in parts.values()], axis=1)
        return metrics.blame(list(parts), columns_s, original.optimizer_end_s)

    on_dp = np.eye(n_dp, dtype=bool)
    of_stage = {str(s): np.repeat(job.ops.stage[:, None] == s, n_dp, axis=1) for s in range(n_stages)}
    of_type = {
        name: np.repeat(is_of_type[:, None], n_dp, axis=1)
        for name, is_of_type in metrics.launch_groups(job.ops).items()
    }
    return (
        blamed({str(dp): np.repeat(on_dp[dp][None, :], len(job.ops), axis=0) for dp in range(n_dp)}),
        blamed(of_stage),
        blamed(of_type),
    )


def analyse_table(
    table: OpTable,
    path: Path,
    meta_file: Path | None = None,
    fixes: Sequence[str] = (),
    layers_per_stage: int | None = None,
) -> tuple[WhatIf, Built]:
    """Build and analyse what was read; `path` names the job, and beside it the shape of the job is looked for.

    Raises
    ------
    InvalidInput
        The rows cannot be made sense of.
    """
    built = build(table, path, meta_file)
    return analyse(built, fixes, layers_per_stage), built
