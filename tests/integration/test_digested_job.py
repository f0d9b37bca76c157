"""A real gloo job whose agent tells of iterations instead of calls: its slow rank is named all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.rig import realjob

pytestmark = [pytest.mark.integration, pytest.mark.prove, pytest.mark.timeout(300)]

ITERATIONS = 240
SLOW = ("--slow-rank", 2, "--slow-from", 100, "--slow-until", ITERATIONS, "--slow-by", 0.8)


def test_a_slow_rank_is_named_by_digests_alone(tmp_path: Path) -> None:
    neighbours = realjob.Neighbours()
    command = realjob.forked("--iterations", ITERATIONS, *SLOW, ranks=4)
    run = realjob.start(tmp_path, command, settings=["agent.digests_from_ranks=4"])
    assert run.wait(200) == 0, run.text()
    rows = {row["source"]: row["n"] for row in run.sql("SELECT source, count() AS n FROM calls GROUP BY source")}
    print(rows)
    assert set(rows) == {"c10d", "c10d digests"}
    of_digests = "FROM calls WHERE source = 'c10d digests' AND rank = 0"
    (told,) = run.sql(f"SELECT min(seq) AS first, uniqExact(seq) AS n {of_digests}")
    assert told["first"] == 3
    assert told["n"] >= ITERATIONS - 4
    with realjob.unless_disturbed(neighbours.disturbance):
        (incident,) = run.incidents()
        (finding,) = incident["findings"]
        assert (finding["kind"], finding["cause"], finding["culprits"]) == ("slow", "S1", [2]), finding
        assert realjob.is_as_sure_as_it_can_be(finding), finding
        assert 95 <= finding["onset"]["step"] <= 105
