"""A real job with tensor parallelism on gloo and a rank that waits longer: its group is the worker that has a price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from priced_jobs import EVERY, TURN_STEPS, of_each_turn, of_level, priced, run_job, slowdown_of, step_times_s, turns_of

from pacehound.model.operations import Operations
from pacehound.model.rounds import Rounds
from pacehound.settings import Settings
from streams.pipeline import Pipeline
from streams.whatif.tensor_groups import TensorGroups, tensor_groups
from tests.fakes.late_agent import told_of

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, needs_torch]

JOB = Path(__file__).with_name("tensor_job.py")
FACTORS = (1.0, 1.8)


@dataclass(frozen=True)
class SeenGroups:
    """What a job with tensor parallelism told, and the groups that its calls show."""

    operations: list[Operations]
    rounds: list[Rounds]
    groups: TensorGroups
    step_s: np.ndarray


def seen_groups(make: Callable[[str], Path], factors: Sequence[float]) -> SeenGroups:
    """A run with such factors, and the operations of the last one."""
    run_dir, results = make("run"), make("results")
    run_job(JOB, run_dir, results, 1, 0, TURN_STEPS, *of_each_turn(factors), PACEHOUND_OPS_EVERY_STEPS=str(EVERY))
    events = told_of(run_dir, "j", "h")
    pipeline = Pipeline(Settings.load({}, []))
    rounds = [one for event in events for one in pipeline.on_event(event) if isinstance(one, Rounds)]
    last = len(factors) - 1
    operations = [of_level(event, last, len(factors)) for event in events if isinstance(event, Operations)]
    return SeenGroups(operations, rounds, tensor_groups(operations, rounds), step_times_s(results))


@pytest.mark.prove
def test_the_groups_of_a_real_job_are_found_by_its_calls(tmp_path_factory: pytest.TempPathFactory) -> None:
    groups = seen_groups(tmp_path_factory.mktemp, FACTORS[:1]).groups
    assert groups.of_rank == {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    assert len(groups.communicators) == 2


@pytest.mark.prove
def test_a_slow_rank_of_a_tensor_parallel_group_gives_the_group_its_price(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    seen = seen_groups(tmp_path_factory.mktemp, FACTORS)
    said = priced(seen.operations, seen.rounds, slowdown_of(seen.step_s, 1), seen.groups)
    said.check(0.1, turns_of(seen.step_s, 1))
    assert "single worker" in said.patterns
