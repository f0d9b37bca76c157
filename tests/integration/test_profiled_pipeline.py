"""A real gloo pipeline job (DP 2 x PP 2, 1F1B) traced by torch.profiler, with a rank that waits longer: its price."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from priced_jobs import priced, run_job, step_times_s

from collector.importers.kineto_operations import KinetoJob, read_kineto
from pacehound.model.operations import OPTYPES

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, pytest.mark.prove, needs_torch]

JOB = Path(__file__).with_name("profiled_pipeline_job.py")
MICRO_BATCHES, STEPS = 4, 8
FACTORS = (1.0, 1.8)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    run_job(JOB, tmp_path_factory.mktemp("run"), folder, MICRO_BATCHES, 0, STEPS, *FACTORS)
    return folder


def test_every_micro_batch_stands_in_the_traces(results: Path) -> None:
    """The profiler's first step warms up; in the others every pass and every transfer is marked."""
    job = read_kineto(results / "traces")
    names = {
        0: ("forward-compute", "backward-compute", "forward-send", "backward-recv"),
        1: ("forward-compute", "backward-compute", "forward-recv", "backward-send"),
    }
    for rank, one in enumerate(job.operations):
        assert set(one.integers("step").tolist()) == set(range(1, STEPS * len(FACTORS)))
        counts = np.bincount(one.integers("optype"), minlength=len(OPTYPES))
        n_steps = STEPS * len(FACTORS) - 1
        expected = {OPTYPES.index(name): MICRO_BATCHES * n_steps for name in names[rank % 2]}
        expected[OPTYPES.index("optimizer")] = n_steps
        assert {code: count for code, count in enumerate(counts.tolist()) if count} == expected


def test_the_slowdown_found_is_the_one_injected(results: Path) -> None:
    """From the traces of the slow steps alone, against the step times of the healthy ones before."""
    job = _since(read_kineto(results / "traces"), STEPS + 1)
    step_s = step_times_s(results)
    healthy, slow = step_s[2:STEPS], step_s[STEPS + 1 :]
    said = priced(job.operations, job.rounds, float(np.median(slow) / np.median(healthy)))
    said.check(0.1, [np.array_split(healthy, 2), np.array_split(slow, 2)])
    assert "single worker" in said.patterns


def _since(job: KinetoJob, step: int) -> KinetoJob:
    chosen = [one.rows.filter(pa.array(one.integers("step") >= step)) for one in job.operations]
    operations = [replace(one, rows=rows) for one, rows in zip(job.operations, chosen, strict=True)]
    return KinetoJob(operations=tuple(operations), rounds=job.rounds)
