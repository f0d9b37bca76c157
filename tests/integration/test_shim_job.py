"""A job of the stub NCCL under `pacehound run --nccl shim`: seen through the shim, told as an incident."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob
from pacehound.bus.recording import Recording
from pacehound.model import codec
from pacehound.model.events import Finding, Incident
from pacehound.settings import Settings
from streams.pipeline import Pipeline
from tests.native import stub_jobs

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timed,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("made_store"),
]

RANKS, SLOW, AGAIN = 4, 180, 100
"""Slow for longer than the five seconds between two readings of the processors: nobody is woken before one was seen."""

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


def script(rank: int, healthy: int) -> str:
    """Iterations of about 20 ms; from `healthy` on rank 2 computes twice as long."""
    step = "all_reduce w 1000 7 0 0 0\nreduce_scatter w 50 9 0 0 0\nall_gather w 50 9 0 0 0\nsync 0\nagain\n"
    slow = 40000 if rank == 2 else 20000
    lines = f"init w {RANKS} {rank}\nrepeat {healthy}\nkernel 0 20000\n{step}repeat {SLOW}\nkernel 0 {slow}\n{step}"
    return lines + f"repeat {AGAIN}\nkernel 0 20000\n{step}"


def run_job(folder: Path, healthy: int) -> tuple[realjob.Run, Path]:
    """The finished job, of which every call is stored; what its head was told."""
    if stub_jobs.COMPILER is None:
        pytest.skip("no C compiler")
    built = stub_jobs.build(folder)
    for rank in range(RANKS):
        (folder / f"{rank}.txt").write_text(script(rank, healthy))
    command = [sys.executable, "-c", LAUNCHER, str(built.program), str(folder), str(RANKS)]
    with realjob.recording_head(folder) as recording:
        run = realjob.start(folder, command, "--nccl", "shim")
        assert run.wait(200) == 0, run.text()
    sources = run.sql("SELECT source, count() AS calls FROM calls GROUP BY source")
    assert sources == [{"source": "shim", "calls": RANKS * 3 * (healthy + SLOW + AGAIN)}]
    return run, recording


def check(findings: list[dict[str, Any]], neighbours: realjob.Neighbours) -> None:
    """One slow stretch, as long as it was."""
    with realjob.unless_disturbed(neighbours.disturbance):
        slow = [finding for finding in findings if finding["kind"] == "slow"]
        assert len(slow) == 1, findings
        assert slow[0]["magnitude"] > 0.5
        lasted_s = (slow[0]["relief"]["time_ns"] - slow[0]["onset"]["time_ns"]) / 1e9
        assert abs(lasted_s - SLOW * 0.04) < 2.0


@pytest.mark.usefixtures("made_store")
def test_what_a_slow_job_tells_through_the_shim_is_an_incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replayed with a head that believes in a recurring period at once, not after half a minute."""
    neighbours = realjob.Neighbours()
    _, recording = run_job(tmp_path, 280)
    monkeypatch.setattr("streams.job.iterations.UNMARKED_PATIENCE_NS", 0)
    pipeline = Pipeline(Settings())
    said = [
        out for one in Recording(recording) for event in codec.decode(one.value) for out in pipeline.on_event(event)
    ]
    latest = {out.id: out for out in said if isinstance(out, Incident)}
    with realjob.unless_disturbed(neighbours.disturbance):
        assert latest, [out for out in said if isinstance(out, Finding)]
    check([finding for incident in latest.values() for finding in map(asdict, incident.findings)], neighbours)


@pytest.mark.prove
def test_a_slow_job_is_seen_through_the_shim(tmp_path: Path) -> None:
    """The first steps last longer than a recurring period is waited for before it is believed."""
    neighbours = realjob.Neighbours()
    run, _ = run_job(tmp_path, 1_700)
    check([finding for incident in run.incidents() for finding in incident["findings"]], neighbours)
