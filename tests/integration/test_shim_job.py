"""A job of the stub NCCL under `pacehound run --nccl shim`: seen through the shim, told as an incident."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.rig import realjob
from tests.native import stub_jobs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RANKS, HEALTHY, SLOW, AGAIN = 4, 1700, 180, 150
"""Iterations; the first ones last longer than a recurring period is waited for before it is believed."""

LAUNCHER = """
import os, subprocess, sys
program, folder, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
env = {**os.environ, "STUB_NCCL_DIR": folder, "WORLD_SIZE": str(ranks)}
started = [
    subprocess.Popen([program, folder, f"{folder}/{rank}.txt"], env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
    for rank in range(ranks)
]
sys.exit(max(process.wait() for process in started))
"""


def script(rank: int) -> str:
    """Iterations of about 20 ms; from `HEALTHY` on rank 2 computes twice as long."""
    step = "all_reduce w 1000 7 0 0 0\nreduce_scatter w 50 9 0 0 0\nall_gather w 50 9 0 0 0\nsync 0\nagain\n"
    slow = 40000 if rank == 2 else 20000
    lines = f"init w {RANKS} {rank}\nrepeat {HEALTHY}\nkernel 0 20000\n{step}repeat {SLOW}\nkernel 0 {slow}\n{step}"
    return lines + f"repeat {AGAIN}\nkernel 0 20000\n{step}"


def test_a_slow_job_is_seen_through_the_shim(tmp_path: Path) -> None:
    if stub_jobs.COMPILER is None:
        pytest.skip("no C compiler")
    built = stub_jobs.build(tmp_path)
    for rank in range(RANKS):
        (tmp_path / f"{rank}.txt").write_text(script(rank))
    command = [sys.executable, "-c", LAUNCHER, str(built.program), str(tmp_path), str(RANKS)]
    run = realjob.start(tmp_path, command, "--nccl", "shim")
    assert run.wait(200) == 0, run.text()
    sources = run.sql("SELECT source, count() AS calls FROM calls GROUP BY source")
    assert sources == [{"source": "shim", "calls": RANKS * 3 * (HEALTHY + SLOW + AGAIN)}]
    found = [finding for incident in run.incidents() for finding in incident["findings"]]
    slow = [finding for finding in found if finding["kind"] == "slow"]
    assert len(slow) == 1, (found, run.text())
    assert slow[0]["magnitude"] > 0.5
    lasted_s = (slow[0]["relief"]["time_ns"] - slow[0]["onset"]["time_ns"]) / 1e9
    assert abs(lasted_s - SLOW * 0.04) < 2.0
