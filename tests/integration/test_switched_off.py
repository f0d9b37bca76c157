"""Ranks whose hooks switch themselves off in a real job, because its shared memory is too small for all rings."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a mount namespace needs root and unshare"
)
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), needs_torch, needs_root]

JOB = Path(__file__).with_name("sharded_job.py")
STEPS = 60
SMALL = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=3m tmpfs /dev/shm && exec "$@"', "sh")
"""Room for the rings of one thread of each rank, and this job calls from two."""


@pytest.mark.usefixtures("made_store")
def test_nobody_is_named_for_calls_that_are_not_seen_any_more(tmp_path: Path) -> None:
    command = realjob.torchrun(tmp_path, 1, -1, STEPS, 1.0, ranks=4, script=JOB)
    run = realjob.start(tmp_path, command, settings=["hang.suspect_after_s=2"], prefix=SMALL)
    assert run.wait(120) == 0, run.text()
    assert "instrument switched off in a native hook" in run.text()
    findings = [finding for incident in run.incidents() for finding in incident["findings"]]
    assert [(f["kind"], f["verdict"], f["culprits"]) for f in findings] == [("blind", "unknown", [])]
    assert set(findings[0]["candidates"]) < {0, 1, 2, 3}
    words = "Pacehound has switched itself off in processes of"
    assert findings[0]["evidence"][0]["words"].startswith(words)
