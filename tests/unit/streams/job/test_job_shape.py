"""The layout of a job is read from who talks to whom, and noted with what names ranks that are gone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.calls import OPS, Sees
from pacehound.model.digests import digests_of
from pacehound.model.events import Finding, Instant, Topology
from pacehound.model.evidence.leaving import JobShape, Left
from pacehound.model.rounds import Rounds
from pacehound.model.topology import Layout
from streams.job import shape as shape_module
from streams.job.shape import ShapeWatch, layout_of
from streams.rounds.round_table import RoundTable
from tests.fakes.made_pairs import pairs_of

STEP_NS = 1_000_000_000


def rounds(ranks: tuple[int, ...], ends_ns: list[int], op: str, size: int = 100) -> Rounds:
    n = len(ends_ns)
    ends = np.repeat(np.array(ends_ns, np.int64)[:, None], len(ranks), axis=1)
    return Rounds(
        job="j", attempt=0, communicator=str(ranks), source="s", sees=Sees.LAUNCH, is_pair=op == "send", ranks=ranks,
        seq=np.arange(n, dtype=np.int64), op=np.full(n, OPS.index(op), np.int8),
        size_bytes=np.full(n, size, np.int64), arrival_ns=ends, start_ns=ends, end_ns=ends,
    )  # fmt: skip


def world(communicator: str, world_size: int, time_ns: int) -> Topology:
    ranks = tuple(range(world_size))
    return Topology(
        job="j", attempt=0, time_ns=time_ns, host="h", communicator=communicator, name="0", is_world=True,
        members=ranks, host_ranks=ranks, world_size=world_size,
    )  # fmt: skip


def communicators(layout: Layout) -> dict[str, tuple[str, tuple[int, ...]]]:
    groups = [*layout.groups("dp"), tuple(range(layout.world_size))]
    return {str(ranks): ("", ranks) for ranks in groups}


def exit_of(rank: int, at_ns: int) -> Finding:
    return Finding(
        id="f", job="j", attempt=0, kind="exit", verdict="culprit", cause=None, culprits=(rank,),
        evidence=(Left(rank=rank, pid=1, signal=9),), onset=Instant(step=3, time_ns=at_ns),
    )  # fmt: skip


def watched(layout: Layout, *, op: str = "all_reduce", micro_batches: int = 6, n_steps: int = 5) -> ShapeWatch:
    """A job whose stages hand on micro-batches and whose replicas reduce 1,000 bytes twice a step."""
    watch = ShapeWatch()
    watch.on_world(world("w", layout.world_size, 0), {}, 0.0)
    for step in range(1, n_steps + 1):
        at_ns = step * STEP_NS
        for pipeline in layout.groups("pp"):
            for a, b in itertools.pairwise(pipeline):
                ends_ns = [at_ns - 500 + n for n in range(micro_batches)]
                watch.on_rounds(RoundTable([rounds((a, b), ends_ns, "send")]))
                watch.on_rounds(RoundTable([rounds((b, a), ends_ns, "send")]))
        for replicas in layout.groups("dp"):
            watch.on_rounds(RoundTable([rounds(replicas, [at_ns - 20, at_ns - 10], op, 1000)]))
        watch.on_rounds(RoundTable([rounds(tuple(range(layout.world_size)), [at_ns - 5], "all_reduce", 4)]))
        watch.on_step(at_ns)
    return watch


@given(st.integers(1, 6), st.integers(2, 5))
def test_a_pipeline_job_tells_its_degrees_its_micro_batches_and_the_bytes_of_its_gradients(dp: int, pp: int) -> None:
    layout = Layout(dp=dp, pp=pp)
    shape = watched(layout).shape(communicators(layout), 0.5)
    assert shape is not None
    assert (shape.dp, shape.pp, shape.tp, shape.stage_stride) == (dp, pp, 1, dp)
    assert (shape.micro_batches, shape.step_time_s, shape.is_sharded) == (6, 0.5, False)
    assert shape.gradient_bytes == (2000 if dp > 1 else 0)


def of_digests(layout: Layout, *, n_steps: int = 5) -> list[Rounds]:
    """One digest for each pair of neighbours and step."""
    pipelines = [pair for one in layout.groups("pp") for pair in itertools.pairwise(one)]
    ends_ns = [step * STEP_NS - 500 for step in range(1, n_steps + 1)]
    both = [*pipelines, *((b, a) for a, b in pipelines)]
    return [replace(rounds(pair, ends_ns, "send"), source=digests_of("c10d")) for pair in both]


def shaped(layout: Layout, arrived: RoundTable, began_ns: int = 0) -> JobShape | None:
    """What a watch reads out of these pairs beside replicas."""
    watch = ShapeWatch()
    watch.on_world(world("w", layout.world_size, began_ns), {}, 0.0)
    watch.on_rounds(arrived)
    for replicas in layout.groups("dp"):
        watch.on_rounds(RoundTable([rounds(replicas, [5 * STEP_NS], "all_reduce", 1000)]))
    for step in range(1, 6):
        watch.on_step(step * STEP_NS)
    return watch.shape(communicators(layout), 0.5)


@pytest.mark.parametrize("began_ns", [0, 3 * STEP_NS, 6 * STEP_NS])
@pytest.mark.parametrize("layout", [Layout(dp=2, pp=2), Layout(dp=3, pp=4), Layout(dp=1, pp=5)])
def test_digests_of_pairs_tell_the_layout_that_rounds_of_each_pair_tell(layout: Layout, began_ns: int) -> None:
    blocks = of_digests(layout)
    at_once = shaped(layout, RoundTable([pairs_of(blocks)]), began_ns)
    assert at_once == shaped(layout, RoundTable(blocks), began_ns)
    assert at_once is not None
    assert (at_once.pp == layout.pp) == (began_ns <= 5 * STEP_NS)


def test_of_more_pairs_than_are_followed_nobody_looks_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(dp=4, pp=4)
    blocks = of_digests(layout)
    monkeypatch.setattr(shape_module, "MOST_PAIRS", len(blocks))
    assert shaped(layout, RoundTable([pairs_of(blocks)])) is not None
    monkeypatch.setattr(shape_module, "MOST_PAIRS", len(blocks) - 1)
    assert shaped(layout, RoundTable(blocks)) is None
    monkeypatch.setattr(ShapeWatch, "_on_pair", lambda *_: pytest.fail("it looks at one"))
    assert shaped(layout, RoundTable([pairs_of(blocks)])) is None


def test_replicas_without_stages_are_a_job_of_one_stage() -> None:
    shape = watched(Layout(dp=4)).shape(communicators(Layout(dp=4)), 0.5)
    assert shape is not None
    assert (shape.dp, shape.pp, shape.micro_batches) == (4, 1, 0)


def test_who_gathers_parameters_holds_what_no_other_has() -> None:
    layout = Layout(dp=2, pp=2)
    shape = watched(layout, op="all_gather").shape(communicators(layout), 0.5)
    assert shape is not None
    assert shape.is_sharded


@pytest.mark.parametrize(
    ("op", "size_bytes", "is_sharded"),
    [("all_gather", 16, False), ("all_gather", 500, True), ("reduce_scatter", 500, True), ("broadcast", 9_999, False)],
)
def test_a_number_of_each_rank_that_is_gathered_is_no_parameter(op: str, size_bytes: int, is_sharded: bool) -> None:
    """DistributedDataParallel compares its parameters when it begins, and metrics are gathered now and then."""
    layout = Layout(dp=4)
    watch = watched(layout)
    (replicas,) = layout.groups("dp")
    watch.on_rounds(RoundTable([rounds(replicas, [STEP_NS, 2 * STEP_NS], op, size_bytes)]))
    shape = watch.shape(communicators(layout), 0.5)
    assert shape is not None
    assert shape.is_sharded == is_sharded


@given(st.integers(2, 4), st.integers(2, 4), st.integers(2, 4))
def test_tensor_parallel_ranks_lie_side_by_side(tp: int, dp: int, pp: int) -> None:
    layout = Layout(tp=tp, dp=dp, pp=pp)
    pairs = [pair for one in layout.groups("pp") for pair in itertools.pairwise(one)]
    assert layout_of(layout.world_size, pairs, [*layout.groups("tp"), *layout.groups("dp")]) == (dp, pp, tp, tp * dp)


@pytest.mark.parametrize(
    ("pairs", "groups"),
    [
        ([(0, 4), (1, 5), (2, 6)], []),  # one pipeline has not spoken yet
        ([(0, 1), (0, 4)], []),  # neighbours at two distances
        ([], [(0, 1, 2, 3), (4, 5, 6, 7)]),  # groups of nobody knows what
    ],
)
def test_of_an_irregular_layout_nothing_is_said(pairs: list[tuple[int, int]], groups: list[tuple[int, ...]]) -> None:
    assert layout_of(8, pairs, groups) is None


def test_an_exit_is_told_with_the_layout_at_its_onset_also_when_the_job_goes_on_with_another_one() -> None:
    layout = Layout(dp=4, pp=2)
    watch = watched(layout)
    lost_ns = 5 * STEP_NS + 1
    watch.on_world(world("w2", 7, lost_ns + 100), communicators(layout), 0.5)
    (_, shape) = watch.noted(exit_of(3, lost_ns), {}, 0.9).evidence
    assert isinstance(shape, JobShape)
    assert (shape.dp, shape.pp, shape.step_time_s) == (4, 2, 0.5)
    assert "DP 4 x PP 2 with 6 micro-batches for each pipeline, in steps of 0.5 s" in shape.words


def test_where_nobody_is_named_no_layout_is_told() -> None:
    slow = Finding(id="f", job="j", attempt=0, kind="slow", verdict="unknown", cause=None)
    assert watched(Layout(dp=2, pp=2)).noted(slow, {}, 0.5) is slow
