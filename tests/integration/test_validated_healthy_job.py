"""A real gloo job that nothing is wrong with is validated again and again: nobody is named, its result is the same."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob
from pacehound.instrument import hold, shim
from tests.integration.test_commands_on_a_job import JOB, RANKS, STEP_S, WatchedJob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.prove,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
    pytest.mark.skipif(shim.reason_not_made() is not None, reason="no C compiler"),
]
VALIDATIONS = 20
STEPS = 12_000
"""Four minutes, and longer than the validations take."""


def test_twenty_validations_of_a_healthy_job_name_nobody_and_change_no_parameter(tmp_path: Path) -> None:
    import torch

    hold.build()
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    alone = realjob.forked(undisturbed, STEPS, *STEP_S, ranks=RANKS, script=JOB)
    subprocess.run(alone, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    job = WatchedJob(tmp_path / "validated", steps=STEPS)
    held_s = []
    try:
        job.begin()
        for _ in range(VALIDATIONS):
            answer = job.validated()
            assert answer["culprits"] == [], answer
            held_s.append(answer["held_s"])
        assert job.process.poll() is None, "it was validated while it ran"
        assert job.process.wait(600) == 0
    finally:
        if job.process.poll() is None:
            job.end()
    print(f"held for {min(held_s):.1f} to {max(held_s):.1f} s in {VALIDATIONS} healthy validations")
    for rank in range(RANKS):
        ours, theirs = (torch.load(folder / f"{rank}.pt") for folder in (tmp_path / "validated" / "out", undisturbed))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
