"""A real FSDP2 job on gloo with a rank that waits longer: what the others wait for is not taken for their computing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pacehound.instrument.launch import environment
from pacehound.operations import OPTYPES
from pacehound.whatif.result import MOST_DISCREPANCY
from streams.whatif.analysis import analyse, build
from streams.whatif.live import live_trace
from streams.whatif.prices import prices
from tests.integration.test_pipeline_operations import EVERY, STEPS, Seen

pytest.importorskip("torch")
pytestmark = pytest.mark.integration

JOB = Path(__file__).with_name("sharded_job.py")
FACTORS = (1.0, 1.8)


def test_a_slow_rank_of_a_sharded_job_has_its_price(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PACEHOUND_OPS_EVERY_STEPS": str(EVERY)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(JOB)]
    arguments = [str(tmp_path), "1", "0", str(STEPS), *map(str, FACTORS)]
    done = subprocess.run(
        [*command, *arguments], env=environment(run_dir, "j", environ), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not (run_dir / "notes").exists(), [path.read_text() for path in (run_dir / "notes").iterdir()]
    seen = Seen(run_dir, tmp_path)
    kinds = {OPTYPES[code] for code in set(seen.operations.integers("optype").tolist())}
    assert kinds >= {"params-all-gather", "grads-reduce-scatter", "forward-compute", "backward-compute", "optimizer"}
    built = build(live_trace([seen.of_level(1)], [], "job"), Path("live"))
    found = analyse(built)
    assert found.discrepancy <= MOST_DISCREPANCY
    (price,) = [fix for fix in prices(built.job, found) if (fix.what, fix.ranks) == ("worker", (0,))]
    estimated, measured = 1 / (1 - price.gain), seen.measured(1)
    print(f"factor {FACTORS[1]}: estimated {estimated:.3f}, measured {measured:.3f}, S {found.slowdown:.3f}")
    assert estimated == pytest.approx(measured, abs=0.15)
    assert "single worker" in {pattern.name for pattern in found.patterns}
