"""A rank of a real job that does not come to `init_process_group`: named while the others wait there, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.rig import realjob
from pacehound.runtime.head.client import live_owner
from streams.hang.thresholds import MIN_ITERATIONS
from tests.fakes.evidence_words import words_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("late_job.py")
ITERATIONS = MIN_ITERATIONS - 2
"""Too few for a pace: with one, a rank that stands still for two seconds in a crowded machine is another hang."""


def test_a_rank_that_has_not_joined_is_named_and_the_job_is_followed_when_it_has(tmp_path: Path) -> None:
    come = tmp_path / "come"
    command = realjob.forked(1, come, ITERATIONS, ranks=3, script=SCRIPT)
    run = realjob.start(tmp_path, command, settings=["hang.suspect_after_s=2"])
    try:
        realjob.until("the head", lambda: live_owner(run.store), 60)
        (incident,) = realjob.until("the verdict", run.incidents, 120)
        come.touch()
        assert run.wait(120) == 0, run.text()
    finally:
        run.stop()
    (finding,) = incident["findings"]
    assert (finding["kind"], finding["verdict"], finding["cause"]) == ("hang", "suspected", "H1"), finding
    assert finding["culprits"] == [1]
    assert "of 'init_process_group'" in words_of(finding)[0]
    (incident,) = run.incidents()
    assert incident["closed_why"] in ("relieved", "job ended")
    (finding,) = incident["findings"]
    assert finding["relief"] is not None
    (row,) = run.sql("SELECT count() AS seen FROM iterations")
    assert int(row["seen"]) == ITERATIONS
    # A communicator is announced again for each rank of the host that comes to it later.
    rows = run.sql("SELECT name, arraySort(groupUniqArrayArray(host_ranks)) AS ranks FROM topology GROUP BY name")
    assert {row["name"]: row["ranks"] for row in rows} == {"init_process_group": [0, 2], "0": [0, 1, 2]}
