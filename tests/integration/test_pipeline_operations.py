"""A real gloo pipeline job (DP 2 x PP 2, 1F1B) with a rank that waits longer, at several levels: its price is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from priced_jobs import EVERY, STEPS, Runs, Seen, seen_job

from pacehound.model.operations import OPTYPES

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, needs_torch]

JOB = Path(__file__).with_name("pipeline_job.py")
MICRO_BATCHES = 8
FACTORS = (1.0, 1.25, 1.5, 2.2)
SHORT, LONG = 3, 4
"""So many factors has a job; the last one takes a third of the long one's time."""

LEVELS = [
    *(pytest.param(SHORT, level, id=f"short-{level}") for level in range(1, SHORT)),
    *(pytest.param(LONG, level, id=f"long-{level}", marks=[pytest.mark.prove]) for level in range(1, LONG)),
]


RunsOf = Callable[[int], Runs[Seen]]
"""The runs of the job with so many factors."""


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory: pytest.TempPathFactory) -> RunsOf:
    make = tmp_path_factory.mktemp

    @cache
    def runs(n_factors: int) -> Runs[Seen]:
        return Runs(lambda: seen_job(JOB, make("run"), make("results"), MICRO_BATCHES, FACTORS[:n_factors]))

    return runs


def test_every_micro_batch_is_seen_on_every_rank(runs_of: RunsOf) -> None:
    """Stage 0 sends forward and receives backward, stage 1 the other way round; the first step is never recorded."""
    rows = next(iter(runs_of(SHORT))).operations
    steps = set(rows.integers("step").tolist())
    assert steps == set(range(EVERY, STEPS * SHORT, EVERY))
    names = {
        0: ("forward-compute", "backward-compute", "forward-send", "backward-recv"),
        1: ("forward-compute", "backward-compute", "forward-recv", "backward-send"),
    }
    for rank in range(4):
        is_rank = rows.integers("rank") == rank
        assert set(rows.integers("stage")[is_rank].tolist()) == {rank % 2}
        assert set(rows.integers("pipeline")[is_rank].tolist()) == {rank // 2 * 2}
        counts = np.bincount(rows.integers("optype")[is_rank], minlength=len(OPTYPES))
        expected = {OPTYPES.index(name): MICRO_BATCHES * len(steps) for name in names[rank % 2]}
        expected[OPTYPES.index("optimizer")] = len(steps)
        assert {code: count for code, count in enumerate(counts.tolist()) if count} == expected


@pytest.mark.parametrize(("n_factors", "level"), LEVELS)
def test_the_estimated_slowdown_is_the_measured_one_within_five_points(
    runs_of: RunsOf, n_factors: int, level: int
) -> None:
    """What the slow worker costs, from the recorded steps alone: the analysis never sees the healthy ones."""
    said = []
    for seen in runs_of(n_factors):
        said.append(seen.priced(level))
        if said[-1].is_within(0.05):
            break
    assert said[-1].is_within(0.05), (FACTORS[level], said)
    if level > 1:
        assert "single worker" in said[-1].patterns
