"""Ranks in a container that numbers processes by itself: seen to their end, and known by their numbers here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob
from collector.host.processes import read_stat

UNSHARE = ["unshare", "--fork", "--pid"]


pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("made_store"),
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
]

SCRIPT = Path(__file__).with_name("begun_ranks.py")


@pytest.fixture(autouse=True)
def can_unshare() -> None:
    if (
        shutil.which(UNSHARE[0]) is None
        or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no PID namespace can be made here")


@pytest.mark.parametrize("proc", ["its own", "the host's"])
def test_ranks_with_other_numbers_are_seen_to_their_end(tmp_path: Path, proc: str) -> None:
    container = [*UNSHARE, *(["--mount-proc"] if proc == "its own" else [])]
    run = realjob.start(tmp_path, [*container, sys.executable, str(SCRIPT), "100", "0.03", str(tmp_path / "looked")])
    try:
        found = "SELECT pid, state FROM host_samples WHERE rank >= 0 AND state = 'running'"
        seen = realjob.until("its ranks", lambda: run.sql(found), 60)
        stats = [read_stat(row["pid"]) for row in seen]
        (tmp_path / "looked").touch()
        assert run.wait(120) == 0, run.text()
    finally:
        run.stop()
    assert all(stat is not None and stat.state == "running" for stat in stats)
    assert "no incident in what was seen: 200 calls of 2 ranks on this host" in run.text()
    (last,) = run.sql("SELECT uniqExact(rank) AS ranks FROM host_samples WHERE state = 'exited' AND exit_code = 0")
    assert int(last["ranks"]) == 2
