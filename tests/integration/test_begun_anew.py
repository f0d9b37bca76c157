"""Ranks that begin anew in their own places (`os.execv`), as scripts do that restart themselves, are watched on.

So are those that the command starts behind them: another attempt.
"""

from __future__ import annotations

import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("made_store"),
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
]

RANK = """
    import os, sys, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    for _ in range(30):
        dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()
    if "AGAIN" not in os.environ:
        os.environ["AGAIN"], os.environ["MASTER_PORT"] = "1", os.environ["PORT_AGAIN"]
        os.execv(sys.executable, [sys.executable, *sys.argv])
"""
LAUNCHER = """
    import os, socket, subprocess, sys
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        ports = [taken.bind(("127.0.0.1", 0)) or str(taken.getsockname()[1]) for taken in (one, two, three)]
    same = {**os.environ, "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}
    for ours in ({"MASTER_PORT": ports[0], "PORT_AGAIN": ports[1]}, {"MASTER_PORT": ports[2], "AGAIN": "1"}):
        environ = {**same, **ours}
        ranks = [subprocess.Popen([sys.executable, "rank.py"], env={**environ, "RANK": str(rank)}) for rank in range(2)]
        if failed := max(one.wait() for one in ranks):
            sys.exit(failed)
"""


def test_all_lives_of_each_rank_are_seen_and_nobody_is_said_to_hang(tmp_path: Path) -> None:
    for name, script in (("rank.py", RANK), ("launcher.py", LAUNCHER)):
        (tmp_path / name).write_text(textwrap.dedent(script))
    watched = realjob.start(tmp_path, [sys.executable, "launcher.py"], cwd=tmp_path)
    try:
        assert watched.wait(120) == 0, watched.text()
    finally:
        watched.stop()
    assert "no incident in what was seen: 180 calls of 2 ranks on this host" in watched.text()
    (row,) = watched.sql("SELECT count() AS n, uniqExact(communicator) AS worlds FROM calls WHERE attempt = 1")
    assert (int(row["n"]), int(row["worlds"])) == (60, 1)
    (row,) = watched.sql("SELECT uniqExact(communicator) AS worlds FROM calls")
    assert int(row["worlds"]) == 2
