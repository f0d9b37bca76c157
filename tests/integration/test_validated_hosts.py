"""`pacehound validate` of a few ranks of a job, and of hosts on which no job runs, by the agents that are there."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob
from bench.rig.loopback import Loopback
from pacehound.instrument import hold, shim

pytestmark = [
    pytest.mark.integration,
    pytest.mark.prove,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
    pytest.mark.skipif(shim.reason_not_made() is not None, reason="no C compiler"),
]
GROUPED = Path(__file__).with_name("grouped_job.py")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Loopback]:
    made = Loopback(tmp_path, "validated")
    made.start_head()
    yield made
    made.stop()


def test_of_a_job_only_those_asked_for_and_their_peers_are_measured(hosts: Loopback, tmp_path: Path) -> None:
    hold.build()
    stop = tmp_path / "stop"
    run = hosts.start("a", realjob.forked(stop, ranks=6, script=GROUPED))
    realjob.until("iterations", lambda: run.iterations_seen() > 20, 60, 0.3)
    answer = hosts.answer("validate", "--job", "validated", "--ranks", "4")
    assert [one["rank"] for one in answer["ranks"]] == [3, 4, 5]
    assert 0 < answer["held_s"] < 25
    refused = hosts.ask("validate", "--job", "validated", "--ranks", "4,9")
    assert (refused.returncode, "there is no rank 9: the job has ranks 0 to 5" in refused.stderr) == (1, True)
    busy = hosts.ask("validate", "--job", "validated", "--idle", "2")
    assert "a has refused the order to locate: a job runs here" in busy.stderr
    stop.touch()
    assert run.wait(60) == 0


def test_hosts_on_which_no_job_runs_are_measured_by_their_agents(hosts: Loopback) -> None:
    for name in ("a", "b"):
        hosts.start(name, ["sleep", "600"])
    realjob.until("their agents", lambda: hosts.agent("a") and hosts.agent("b"), 60, 0.1)
    answer = hosts.answer("validate", "--job", "validated", "--idle", "2", "--per-host", "2")
    assert [(one["rank"], one["host"]) for one in answer["ranks"]] == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    assert [one["pair"] for one in answer["links"]] == [[1, 2], [3, 0]]
    assert answer["held_s"] is None
    alone = hosts.ask("validate", "--job", "validated", "--idle", "3")
    assert (alone.returncode, "2 of 3 hosts have answered: a, b" in alone.stderr) == (1, True)
