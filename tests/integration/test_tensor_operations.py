"""A real job with tensor parallelism on gloo and a rank that waits longer: its group is the worker that has a price."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from priced_jobs import EVERY, TURN_STEPS, Runs, of_each_turn, of_level, priced, run_job, slowdown_of, step_times_s

from pacehound.model.operations import Operations
from pacehound.model.rounds import Rounds
from pacehound.settings import Settings
from streams.pipeline import Pipeline
from streams.whatif.tensor_groups import tensor_groups
from tests.fakes.late_agent import told_of

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, needs_torch]

JOB = Path(__file__).with_name("tensor_job.py")
FACTORS = (1.0, 1.8)


def test_a_slow_rank_of_a_tensor_parallel_group_gives_the_group_its_price(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    make = tmp_path_factory.mktemp

    def run() -> tuple[list[Operations], list[Rounds], np.ndarray]:
        run_dir, results = make("run"), make("results")
        run_job(JOB, run_dir, results, 1, 0, TURN_STEPS, *of_each_turn(FACTORS), PACEHOUND_OPS_EVERY_STEPS=str(EVERY))
        events = told_of(run_dir, "j", "h")
        pipeline = Pipeline(Settings.load({}, []))
        rounds = [one for event in events for one in pipeline.on_event(event) if isinstance(one, Rounds)]
        return [event for event in events if isinstance(event, Operations)], rounds, step_times_s(results)

    said = []
    for operations, rounds, step_s in Runs(run):
        slow = [of_level(one, 1, len(FACTORS)) for one in operations]
        groups = tensor_groups(slow, rounds)
        assert groups.of_rank == {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
        assert len(groups.communicators) == 2
        said.append(priced(slow, rounds, slowdown_of(step_s, 1), groups))
        if said[-1].is_within(0.1):
            break
    assert said[-1].is_within(0.1), said
    assert "single worker" in said[-1].patterns
