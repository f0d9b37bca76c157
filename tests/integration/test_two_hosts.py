"""Two hosts, two ranks on each, one head node, no Kafka."""

from __future__ import annotations

import csv
import os
import signal
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import netns
import pytest
from cluster import Cluster, cluster

from bench.rig import realjob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(netns.why_not()) and os.environ.get("CI") != "true", reason=netns.why_not() or "possible"),
]


def calls_are_complete(cluster: Cluster, iterations: int) -> Sequence[int]:
    """Every rank's calls are there once, without a gap, and none was dropped; the number of calls of each rank."""
    rows = cluster.ask(
        "SELECT rank, communicator, count() AS calls, uniqExact(seq) AS rounds, max(seq) - min(seq) + 1 AS span "
        "FROM calls GROUP BY rank, communicator ORDER BY rank"
    )
    assert [row["rank"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert int(row["calls"]) == int(row["rounds"]) == int(row["span"]) >= iterations, row
    return [int(row["calls"]) for row in rows]


def test_one_job_over_two_hosts_has_the_right_ranks_hosts_and_verdict(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        made.start_head()
        made.start_job("--iterations", 320, "--slow-rank", 2, "--slow-from", 200, "--slow-by", 0.4)
        made.wait()
        realjob.until("the end of the job", lambda: [i for i in made.incidents() if i["state"] == "closed"], 60)
        (incident,) = made.incidents()
        (finding,) = incident["findings"]
        assert incident["job"] == "two-hosts"
        assert (finding["kind"], finding["verdict"], finding["cause"]) == ("slow", "culprit", "S1"), finding
        assert (finding["culprits"], finding["victims"]) == ([2], [0, 1, 3])
        assert finding["detected"]["step"] <= 230
        hosts = made.ask("SELECT DISTINCT host, rank FROM calls ORDER BY rank")
        assert [(row["rank"], row["host"]) for row in hosts] == [(0, "left"), (1, "left"), (2, "right"), (3, "right")]
        calls_are_complete(made, 320)


AWAY = [
    pytest.param(12, id="short"),
    pytest.param(60, id="long", marks=[pytest.mark.prove]),
]


@pytest.mark.parametrize("away_s", AWAY)
def test_a_head_node_that_is_away_costs_neither_training_nor_calls(tmp_path: Path, away_s: int) -> None:
    iterations = 600 + 18 * away_s  # 20 a second: it must not end before the head has been away
    with cluster(tmp_path) as made:
        made.start_head()
        steps = tmp_path / "steps.csv"
        made.start_job("--iterations", iterations, "--csv", steps)
        realjob.until("fifty iterations", lambda: made.iterations() >= 50, 90)
        away_from_ns = time.time_ns()
        made.stop_head(signal.SIGKILL)
        with pytest.raises(AssertionError, match="did not happen"):
            realjob.until("an end of the job without its head", lambda: made.runs[0].process.poll() is not None, away_s)
        away_until_ns = time.time_ns()
        peaks = [_peak_mib(agent) for run in made.runs for agent in realjob.agents(run)]
        made.start_head()
        made.wait(300)
        realjob.until("all iterations", lambda: len(set(_calls_of(made))) == 1 and made.iterations() > 0, 90)
        calls = calls_are_complete(made, iterations)
        before, away = _step_times(steps, 0, away_from_ns)[20:], _step_times(steps, away_from_ns, away_until_ns)
        usual_s, away_s_median = statistics.median(before), statistics.median(away)
        print(f"head away for {away_s} s: {calls} calls of each rank stored, all once")
        print(f"a step took {usual_s:.4f} s before, {away_s_median:.4f} s meanwhile, {max(away):.3f} s at most")
        print(f"the agents' memory reached {max(peaks):.0f} MiB")
        assert len(peaks) == 2
        assert max(peaks) < 300
        assert away_s_median < 1.5 * usual_s


def _step_times(csv_path: Path, from_ns: int, until_ns: int) -> list[float]:
    """Seconds of each step that the script says it ended between two times."""
    with csv_path.open() as file:
        rows = list(csv.DictReader(file))
    return [float(row["step_time_s"]) for row in rows if from_ns <= int(row["time_ns"]) < until_ns]


def _peak_mib(pid: int) -> float:
    """The largest resident size that a process has had."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _calls_of(made: Cluster) -> list[int]:
    return [int(row["calls"]) for row in made.ask("SELECT rank, count() AS calls FROM calls GROUP BY rank")]
