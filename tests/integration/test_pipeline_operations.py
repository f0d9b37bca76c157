"""A real gloo pipeline job (DP 2 x PP 2, 1F1B) with a rank that waits longer, at several levels: its price is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from priced_jobs import EVERY, STEPS, Seen, seen_job

from pacehound.model.operations import OPTYPES

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, pytest.mark.timed, needs_torch]

JOB = Path(__file__).with_name("pipeline_job.py")
MICRO_BATCHES = 4
SHORT, LONG = (1.0, 1.5), (1.0, 1.25, 1.5, 2.2)
"""The factors that a job takes in turn."""

LEVELS = [
    pytest.param(SHORT, 1, id="short"),
    *(pytest.param(LONG, level, id=f"long-{level}", marks=[pytest.mark.prove]) for level in range(1, len(LONG))),
]

SeenOf = Callable[[tuple[float, ...]], Seen]
"""The job with such factors, which is run once."""


@pytest.fixture(scope="module")
def seen_of(tmp_path_factory: pytest.TempPathFactory) -> SeenOf:
    make = tmp_path_factory.mktemp

    @cache
    def seen(factors: tuple[float, ...]) -> Seen:
        return seen_job(JOB, make("run"), make("results"), MICRO_BATCHES, factors)

    return seen


def test_every_micro_batch_is_seen_on_every_rank(seen_of: SeenOf) -> None:
    """Stage 0 sends forward and receives backward, stage 1 the other way round; the first step is never recorded."""
    rows = seen_of(SHORT).operations
    steps = set(rows.integers("step").tolist())
    assert steps == set(range(EVERY, STEPS * len(SHORT), EVERY))
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


@pytest.mark.parametrize(("factors", "level"), LEVELS)
def test_the_estimated_slowdown_is_the_measured_one_within_five_points(
    seen_of: SeenOf, factors: tuple[float, ...], level: int
) -> None:
    """What the slow worker costs, from the recorded steps alone: the analysis never sees the healthy ones."""
    said = seen_of(factors).check(level, 0.05)
    if factors[level] >= 1.5:
        assert "single worker" in said.patterns
