"""Ranks in a container that numbers processes by itself: seen to their end, and known by their numbers here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob
from collector.host.processes import read_stat

UNSHARE = ["unshare", "--fork", "--pid"]


def can_unshare() -> bool:
    if shutil.which(UNSHARE[0]) is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("made_store"),
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
    pytest.mark.skipif(not can_unshare(), reason="no PID namespace can be made here"),
]

JOB = """
    import os, socket, subprocess, sys, time
    import torch, torch.distributed as dist
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        for _ in range(100):
            time.sleep(0.03)
            dist.all_reduce(torch.ones(2))
        dist.destroy_process_group()
        sys.exit()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    same = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**same, "RANK": str(rank)}) for rank in range(2)]
    sys.exit(max(one.wait() for one in ranks))
"""


@pytest.mark.parametrize("proc", ["its own", "the host's"])
def test_ranks_with_other_numbers_are_seen_to_their_end(tmp_path: Path, proc: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(JOB))
    container = [*UNSHARE, *(["--mount-proc"] if proc == "its own" else [])]
    run = realjob.start(tmp_path, [*container, sys.executable, str(script)])
    try:
        found = "SELECT pid, state FROM host_samples WHERE rank >= 0 AND state = 'running'"
        seen = realjob.until("its ranks", lambda: run.sql(found), 60)
        stats = [read_stat(row["pid"]) for row in seen]
        assert run.wait(120) == 0, run.text()
    finally:
        run.stop()
    assert all(stat is not None and stat.state == "running" for stat in stats)
    assert "no incident in what was seen: 200 calls of 2 ranks on this host" in run.text()
    (last,) = run.sql("SELECT uniqExact(rank) AS ranks FROM host_samples WHERE state = 'exited' AND exit_code = 0")
    assert int(last["ranks"]) == 2
