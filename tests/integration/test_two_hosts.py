"""Two hosts, two ranks on each, one head node, no Kafka."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path

import netns
import pytest
from cluster import Cluster, cluster

from bench.rig import realjob
from tests.integration.test_gloo_faults import HUNG, SCRIPT, names, said

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(netns.why_not()) and os.environ.get("CI") != "true", reason=netns.why_not() or "possible"),
]


def calls_are_complete(cluster: Cluster, iterations: int, *, of_all_ranks: bool = True) -> Sequence[int]:
    """Every rank's calls on each communicator are once there, without a gap, and none was dropped; their numbers.

    All ranks are in each communicator, if nothing else is said.
    """
    rows = cluster.ask(
        "SELECT rank, communicator, count() AS calls, uniqExact(seq) AS rounds, max(seq) - min(seq) + 1 AS span "
        "FROM calls GROUP BY rank, communicator ORDER BY rank"
    )
    places = {(row["rank"], row["communicator"]) for row in rows}
    if of_all_ranks:
        assert places == set(product((0, 1, 2, 3), {communicator for _, communicator in places}))
    for row in rows:
        assert int(row["calls"]) == int(row["rounds"]) == int(row["span"]) >= iterations, row
    return [int(row["calls"]) for row in rows]


def ranks_are_where_they_run(cluster: Cluster) -> None:
    hosts = cluster.ask("SELECT DISTINCT host, rank FROM calls ORDER BY rank")
    assert [(row["rank"], row["host"]) for row in hosts] == [(0, "left"), (1, "left"), (2, "right"), (3, "right")]


@pytest.mark.usefixtures("made_store")
def test_of_one_job_over_two_hosts_the_killed_rank_is_named_and_every_call_of_all_is_there(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        made.start_head()
        made.start_job("dies", *HUNG, "--seed", 2, "--who", 2, script=SCRIPT, forks=True)
        for run in made.runs:
            assert run.wait(120) != 0, run.text()
        realjob.until("the end of an incident", lambda: made.incidents() and made.has_ended(), 60, say=made.state)
        (incident,) = made.incidents()
        assert incident["job"] == "two-hosts"
        assert names("exit", "None H1")(incident["findings"], (2,)), said(incident["findings"])
        ranks_are_where_they_run(made)
        calls_are_complete(made, 50, of_all_ranks=False)


@pytest.mark.usefixtures("made_store")
def test_ranks_that_go_with_their_agent_are_named_although_only_the_others_are_seen_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that is evicted: all its processes are killed at once, and its peers find their connections closed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # what was not sent is for no other job to send
    with cluster(tmp_path) as made:
        made.start_head()
        made.start_job(0.05, tmp_path, script=realjob.STEADY)
        realjob.until("forty iterations", lambda: made.iterations() >= 40, 90, say=made.state)
        made.hosts[1].kill_all()

        def is_named() -> bool:
            of_exit = [f for i in made.incidents() for f in i["findings"] if f["kind"] == "exit"]
            return [(f["verdict"], f["culprits"]) for f in of_exit] == [("suspected", [2, 3])]

        realjob.until("ranks 2 and 3 suspected", is_named, 60, say=made.state)
        assert made.runs[0].wait(60) != 0


@pytest.mark.prove
@pytest.mark.timed
def test_one_job_over_two_hosts_has_the_right_ranks_hosts_and_verdict(tmp_path: Path) -> None:
    neighbours = realjob.Neighbours()
    slow_from, csv = 110, tmp_path / "steps.csv"
    with cluster(tmp_path) as made:
        made.start_head()
        slow = ("--slow-rank", 2, "--slow-from", slow_from, "--slow-by", 0.4)
        made.start_job("--iterations", 190, *slow, "--csv", csv)
        made.wait()
        steps = realjob.script_steps(csv)

        def disturbance() -> str:
            return neighbours.disturbance() or realjob.unsteady(
                steps, (slice(20, slow_from), slice(slow_from + 1, None))
            )

        with realjob.unless_disturbed(disturbance):
            realjob.until("the end of an incident", lambda: made.incidents() and made.has_ended(), 60, say=made.state)
            found = made.incidents()
            assert [(incident["job"], len(incident["findings"])) for incident in found] == [("two-hosts", 1)], found
            finding = found[0]["findings"][0]
            assert (finding["kind"], finding["cause"]) == ("slow", "S1"), finding
            assert realjob.is_as_sure_as_it_can_be(finding), finding
            assert (finding["culprits"], finding["victims"]) == ([2], [0, 1, 3])
            assert finding["detected"]["step"] <= slow_from + 30
        ranks_are_where_they_run(made)
        calls_are_complete(made, 190)


@pytest.mark.prove
@pytest.mark.timed
@pytest.mark.parametrize("away_s", [12, 60])
def test_a_head_node_that_is_away_costs_neither_training_nor_calls(tmp_path: Path, away_s: int) -> None:
    neighbours = realjob.Neighbours()
    with cluster(tmp_path) as made:
        made.start_head()
        made.start_job(0.05, tmp_path, script=realjob.STEADY)
        realjob.until("fifty iterations", lambda: made.iterations() >= 50, 90)
        away_from_s = time.monotonic()
        made.stop_head(signal.SIGKILL)
        with pytest.raises(AssertionError, match="did not happen"):
            realjob.until("an end of the job without its head", lambda: made.runs[0].process.poll() is not None, away_s)
        away_until_s = time.monotonic()
        peaks = [_peak_mib(agent) for run in made.runs for agent in realjob.agents(run)]
        made.start_head()
        realjob.until("more iterations", lambda: made.iterations() >= 50 + 5 * away_s, 90)
        (tmp_path / "stop").touch()
        made.wait()
        realjob.until("all iterations", lambda: len(set(_calls_of(made))) == 1 and made.iterations() > 0, 90)
        ends_s = realjob.steady_step_ends_s(tmp_path)
        calls = calls_are_complete(made, len(ends_s))
        before, away = _step_times_s(ends_s, 0, away_from_s)[20:], _step_times_s(ends_s, away_from_s, away_until_s)
        usual_s, away_s_median = statistics.median(before), statistics.median(away)
        print(f"head away for {away_s} s: {calls} calls of each rank stored, all once")
        print(f"a step took {usual_s:.4f} s before, {away_s_median:.4f} s meanwhile, {max(away):.3f} s at most")
        print(f"the agents' memory reached {max(peaks):.0f} MiB")
        assert len(peaks) == 2
        assert max(peaks) < 300
        with realjob.unless_disturbed(neighbours.disturbance):
            assert away_s_median < 1.5 * usual_s


def _step_times_s(ends_s: Sequence[float], from_s: float, until_s: float) -> list[float]:
    """Seconds of each step that ended between two times."""
    return [after - before for before, after in pairwise(ends_s) if from_s <= after < until_s]


def _peak_mib(pid: int) -> float:
    """The largest resident size that a process has had."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _calls_of(made: Cluster) -> list[int]:
    return [int(row["calls"]) for row in made.ask("SELECT rank, count() AS calls FROM calls GROUP BY rank")]
