"""A real gloo pipeline job (DP 2 x PP 2, 1F1B) traced by torch.profiler, with a rank that waits longer: its price."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from collector.sources.kineto_operations import KinetoJob, read_kineto
from pacehound.instrument.launch import environment
from pacehound.operations import OPTYPES
from pacehound.whatif.result import MOST_DISCREPANCY
from streams.whatif.analysis import analyse, build
from streams.whatif.live import live_trace
from streams.whatif.prices import prices

pytest.importorskip("torch")
pytestmark = pytest.mark.integration

JOB = Path(__file__).with_name("profiled_pipeline_job.py")
MICRO_BATCHES, STEPS = 4, 8
FACTORS = (1.0, 1.8)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir, folder = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("results")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(JOB)]
    arguments = [str(folder), str(MICRO_BATCHES), "0", str(STEPS), *map(str, FACTORS)]
    environ = environment(run_dir, "j", {**os.environ, "OMP_NUM_THREADS": "1"})
    done = subprocess.run([*command, *arguments], env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
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
    built = build(live_trace(job.operations, job.rounds, "traces"), Path("traces"))
    found = analyse(built)
    assert found.discrepancy <= MOST_DISCREPANCY
    (price,) = [fix for fix in prices(built.job, found) if (fix.what, fix.ranks) == ("worker", (0,))]
    ends_s = np.array(json.loads((results / "0.json").read_text()))
    step_s = np.diff(ends_s, prepend=np.nan)
    measured = float(np.median(step_s[STEPS + 1 :]) / np.median(step_s[2:STEPS]))
    estimated = 1 / (1 - price.gain)
    print(f"factor {FACTORS[1]}: estimated {estimated:.3f}, measured {measured:.3f}, S {found.slowdown:.3f}")
    assert estimated == pytest.approx(measured, abs=0.15)
    assert "single worker" in {pattern.name for pattern in found.patterns}


def _since(job: KinetoJob, step: int) -> KinetoJob:
    chosen = [one.rows.filter(pa.array(one.integers("step") >= step)) for one in job.operations]
    operations = [replace(one, rows=rows) for one, rows in zip(job.operations, chosen, strict=True)]
    return KinetoJob(operations=tuple(operations), rounds=job.rounds)
