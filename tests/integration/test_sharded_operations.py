"""A real FSDP2 job on gloo with a rank that waits longer: what the others wait for is not taken for their computing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from priced_jobs import seen_job

from pacehound.model.operations import OPTYPES

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, needs_torch]

JOB = Path(__file__).with_name("sharded_job.py")
FACTORS = (1.0, 1.8)


@pytest.mark.prove  # in the suite, tests/integration/test_pipeline_operations.py runs a job
def test_every_kind_of_operation_of_a_sharded_job_is_seen(tmp_path_factory: pytest.TempPathFactory) -> None:
    make = tmp_path_factory.mktemp
    seen = seen_job(JOB, make("run"), make("results"), 1, FACTORS[:1])
    kinds = {OPTYPES[code] for code in set(seen.operations.integers("optype").tolist())}
    passes = {"forward-compute", "backward-compute", "optimizer"}
    assert kinds >= passes | {"params-all-gather", "grads-reduce-scatter"}


@pytest.mark.prove
def test_a_slow_rank_of_a_sharded_job_has_its_price(tmp_path_factory: pytest.TempPathFactory) -> None:
    make = tmp_path_factory.mktemp
    seen = seen_job(JOB, make("run"), make("results"), 1, FACTORS)
    assert "single worker" in seen.check(1, 0.1).patterns
