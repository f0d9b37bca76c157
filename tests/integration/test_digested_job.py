"""Real gloo jobs whose agent tells of iterations instead of calls: who is slow is named, and the calls can be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob

pytestmark = [pytest.mark.integration, pytest.mark.prove, pytest.mark.timeout(300)]

ITERATIONS = 240
SLOW = ("--slow-rank", 2, "--slow-from", 100, "--slow-until", ITERATIONS, "--slow-by", 0.8)
DIGESTS = "agent.digests_from_ranks=4"
OF_DIGESTS = "FROM calls WHERE source = 'c10d digests' AND rank = 0"


def told(run: realjob.Run) -> dict[str, int]:
    """Rows by their source."""
    return {row["source"]: row["n"] for row in run.sql("SELECT source, count() AS n FROM calls GROUP BY source")}


def assert_the_slow_rank_is_named(run: realjob.Run) -> dict[str, Any]:
    (incident,) = run.incidents()
    (finding,) = incident["findings"]
    assert (finding["kind"], finding["cause"], finding["culprits"]) == ("slow", "S1", [2]), finding
    assert 95 <= finding["onset"]["step"] <= 105
    found: dict[str, Any] = finding
    return found


def test_a_slow_rank_is_named_by_digests_alone(tmp_path: Path) -> None:
    neighbours = realjob.Neighbours()
    command = realjob.forked("--iterations", ITERATIONS, *SLOW, ranks=4)
    run = realjob.start(tmp_path, command, settings=[DIGESTS])
    assert run.wait(200) == 0, run.text()
    rows = told(run)
    print(rows)
    assert set(rows) == {"c10d", "c10d digests"}
    (seen,) = run.sql(f"SELECT min(seq) AS first, uniqExact(seq) AS n {OF_DIGESTS}")
    assert seen["first"] == 3
    assert seen["n"] >= ITERATIONS - 4
    with realjob.unless_disturbed(neighbours.disturbance):
        finding = assert_the_slow_rank_is_named(run)
        assert realjob.is_as_sure_as_it_can_be(finding), finding


def test_an_incident_brings_the_calls_of_before_it_and_the_same_name(tmp_path: Path) -> None:
    neighbours = realjob.Neighbours()
    command = realjob.forked("--iterations", ITERATIONS, *SLOW, ranks=4)
    run = realjob.start(tmp_path, command, settings=[DIGESTS, "actuators.mode=auto"])
    assert run.wait(200) == 0, run.text()
    rows = told(run)
    print(rows)
    with realjob.unless_disturbed(neighbours.disturbance):
        assert_the_slow_rank_is_named(run)
        assert [one["action"] for one in run.sql("SELECT action FROM decisions WHERE taken ORDER BY time_ns")][:1] == [
            "profile"
        ]
        assert set(rows) == {"c10d", "c10d digests", "c10d kept"}
        (opened,) = run.sql("SELECT min(time_ns) AS ns FROM incidents")
        (kept,) = run.sql(
            "SELECT uniqExact(rank) AS ranks, count() AS n, min(end_ns) AS first_ns, max(end_ns) AS last_ns, "
            "uniqExact(communicator, rank, seq, direction, peer) AS different FROM calls WHERE source = 'c10d kept'"
        )
        assert (kept["ranks"], kept["different"]) == (4, kept["n"])
        assert kept["first_ns"] < opened["ns"] < kept["last_ns"]


def test_who_asks_gets_the_calls_that_were_kept_and_nothing_else_changes(tmp_path: Path) -> None:
    command = realjob.forked("--iterations", ITERATIONS, ranks=4)
    run = realjob.start(tmp_path, command, settings=[DIGESTS])
    try:
        realjob.until("100 iterations", lambda: run.iterations_seen() >= 100, 120, 0.2, run.text, run.process)
        said = realjob.pacehound("profile", "--for", "2s", "--store", str(run.store))
        print(said)
        assert run.wait(200) == 0, run.text()
    finally:
        run.stop()
    rows = told(run)
    print(rows)
    (seen,) = run.sql(f"SELECT min(seq) AS first, uniqExact(seq) AS n {OF_DIGESTS}")
    assert seen["first"] == 3
    assert seen["n"] >= ITERATIONS - 4
    # Those of the first iterations after the third, which were made long before, among them.
    (both,) = run.sql(
        "SELECT minIf(seq, source = 'c10d kept') - maxIf(seq, source = 'c10d') AS gap FROM calls WHERE rank = 0 "
        "AND communicator IN (SELECT communicator FROM topology WHERE is_world)"
    )
    assert both["gap"] == 1, both
