"""Runs of one job name in one store are told apart, and the hosts of one run are not."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SCRIPT = (sys.executable, str(Path(__file__).with_name("two_ranks.py")))
EACH = "SELECT attempt, rank, count() AS calls FROM calls GROUP BY attempt, rank ORDER BY attempt, rank"


def calls_of(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """(attempt, rank, number of calls)."""
    return [(row["attempt"], row["rank"], int(row["calls"])) for row in rows]


@pytest.mark.prove
def test_two_runs_of_one_name_leave_rows_and_incidents_of_their_own(tmp_path: Path) -> None:
    for number in range(2):
        # A head may take longer to be there than such a job takes.
        command = [*SCRIPT, "--fail", "--after", str(tmp_path / "store" / "head.json")]
        run = realjob.start(tmp_path, command, "--job", "same", name=f"run{number}")
        assert run.wait(120) != 0, run.text()
    # Rank 0 waited in the barrier that rank 1 never reached.
    assert calls_of(run.sql(EACH)) == [(0, 0, 6), (0, 1, 5), (1, 0, 6), (1, 1, 5)]
    (row,) = run.sql("SELECT uniqExact(communicator) AS communicators FROM calls")
    assert int(row["communicators"]) == 2
    incidents = run.incidents("same")
    assert len({incident["id"] for incident in incidents}) == 2
    assert {(incident["state"], incident["closed_why"]) for incident in incidents} == {("closed", "job ended")}
    findings = [finding for incident in incidents for finding in incident["findings"]]
    assert {(finding["kind"], *finding["culprits"]) for finding in findings} == {("exit", 1)}, findings


@pytest.mark.prove
def test_two_hosts_of_one_run_agree_and_the_next_run_is_another(tmp_path: Path) -> None:
    store = tmp_path / "store"
    answers = realjob.Run(None, store, tmp_path)  # type: ignore[arg-type]
    up = [*realjob.PACEHOUND, "up", "--listen", "127.0.0.1:0", "--store", str(store)]
    with (tmp_path / "head.log").open("wb") as log:
        head = subprocess.Popen(up, stdout=log, stderr=log, env=realjob.environment(), cwd="/")
    try:
        realjob.until("the head", (store / "head.json").exists, 60)
        url = json.loads((store / "head.json").read_text())["url"]
        for _ in range(2):
            hosts = []
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = str(free.getsockname()[1])
            for rank, host in enumerate(("a", "b")):
                options = ("--job", "same", "--endpoint", url, "--set", f"host.name={host}")
                ranks = {"RANK": str(rank), "MASTER_PORT": port}
                hosts.append(realjob.start(tmp_path, SCRIPT, *options, name=host, env=ranks))
                time.sleep(1.0)  # the first one waits in its rendezvous; nothing has been heard of it
            for run in hosts:
                assert run.wait(120) == 0, run.text()
                assert "first" not in run.text()
        rows = realjob.until("the rows of both runs", lambda: all_four(answers.sql(EACH)), 60)
        assert calls_of(rows) == [(0, 0, 6), (0, 1, 6), (1, 0, 6), (1, 1, 6)]
        each = "SELECT attempt, uniqExact(communicator) AS c, uniqExact(host) AS h FROM calls GROUP BY attempt"
        assert {(int(row["c"]), int(row["h"])) for row in answers.sql(each)} == {(1, 2)}
    finally:
        head.terminate()
        head.wait(20)


def all_four(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows once there are four."""
    return rows if len(rows) == 4 else []
