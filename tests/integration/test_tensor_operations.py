"""A real job with tensor parallelism on gloo and a rank that waits longer: its group is the worker that has a price."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from priced_jobs import EVERY, TURN_STEPS, of_each_turn, of_level, priced, run_job, slowdown_of, step_times_s, turns_of

from pacehound.model.operations import Operations
from pacehound.model.rounds import Rounds
from pacehound.settings import Settings
from streams.pipeline import Pipeline
from streams.whatif.tensor_groups import tensor_groups
from tests.fakes.late_agent import told_of

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, pytest.mark.timed, needs_torch]

JOB = Path(__file__).with_name("tensor_job.py")
FACTORS = (1.0, 1.8)


def test_a_slow_rank_of_a_tensor_parallel_group_gives_the_group_its_price(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    run_dir, results = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("results")
    run_job(JOB, run_dir, results, 1, 0, TURN_STEPS, *of_each_turn(FACTORS), PACEHOUND_OPS_EVERY_STEPS=str(EVERY))
    events = told_of(run_dir, "j", "h")
    pipeline = Pipeline(Settings.load({}, []))
    rounds = [one for event in events for one in pipeline.on_event(event) if isinstance(one, Rounds)]
    slow = [of_level(event, 1, len(FACTORS)) for event in events if isinstance(event, Operations)]
    groups = tensor_groups(slow, rounds)
    assert groups.of_rank == {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    assert len(groups.communicators) == 2
    step_s = step_times_s(results)
    said = priced(slow, rounds, slowdown_of(step_s, 1), groups)
    said.check(0.1, turns_of(step_s, 1))
    assert "single worker" in said.patterns
