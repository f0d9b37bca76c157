"""A real gloo job in mode `auto`, its script unchanged: a rank becomes slow, and Pacehound measures by itself which."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pacehound.instrument import hold, shim
from tests.integration.test_commands_on_a_job import RANKS, WatchedJob, throttled

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timed,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
    pytest.mark.skipif(shim.reason_not_made() is not None, reason="no C compiler"),
]
PROVED = 20


def phases(job: WatchedJob) -> list[dict[str, Any]]:
    return job.rows("SELECT action, reason, mode, incident FROM decisions WHERE taken ORDER BY time_ns")


def verdicts(job: WatchedJob) -> list[dict[str, Any]]:
    """What is said of each slowdown last."""
    found = job.rows(
        "SELECT argMax(event, version) AS event FROM stored_findings WHERE kind = 'slow' "
        "GROUP BY id ORDER BY min(time_ns)"
    )
    return [json.loads(one["event"]) for one in found]


def assert_the_slow_rank_is_proven(folder: Path, rank: int) -> None:
    job = WatchedJob(folder, "actuators.mode=auto")
    try:
        job.begin()
        with throttled(job.pids[rank]):
            job.until(lambda: [one["action"] for one in phases(job)][-2:] == ["validate", "track"], "it is validated")
        actions = phases(job)[-3:]
        assert [one["action"] for one in actions] == ["profile", "validate", "track"], actions
        assert f"rank {rank} takes" in actions[-1]["reason"], actions
        job.until(lambda: ("culprit", [rank]) in [(one["verdict"], one["culprits"]) for one in verdicts(job)], "named")
        assert job.rows("SELECT DISTINCT incident FROM validations") == [{"incident": actions[0]["incident"]}]
        job.goes_on()
    finally:
        job.end()


@pytest.mark.usefixtures("made_store")
def test_a_rank_that_becomes_slow_is_profiled_measured_and_named(tmp_path: Path) -> None:
    hold.build()
    assert_the_slow_rank_is_proven(tmp_path, 1)


@pytest.mark.prove
def test_twenty_times_a_rank_that_becomes_slow_is_named(tmp_path: Path) -> None:
    hold.build()
    for run in range(PROVED):
        assert_the_slow_rank_is_proven(tmp_path / str(run), run % RANKS)
