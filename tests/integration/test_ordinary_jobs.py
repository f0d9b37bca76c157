"""Clean jobs as people write them: nobody is named, alone and beside other work; bench/ordinary.py has the jobs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from bench import ordinary

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), needs_torch]

SHORT = [
    pytest.param(
        ordinary.Job("trainer_snapshots", (30, ordinary.FOLDER)), "none", id="alone", marks=[pytest.mark.prove]
    ),
    pytest.param(ordinary.Job("spawn_tutorial", (3_000,)), "bursts", id="beside bursts"),
]


@pytest.mark.parametrize(("job", "kind"), SHORT)
def test_a_clean_job_names_nobody_and_wakes_nobody(job: ordinary.Job, kind: str, tmp_path: Path) -> None:
    """The other tests compute beside it: a job that they slow for seconds may be told so, as a crowded machine's."""
    said = ordinary.watched(job, kind, tmp_path)
    assert said.iterations >= 900, "it was watched"
    findings = [finding for incident in said.incidents for finding in incident["findings"]]
    assert [finding for finding in findings if finding["culprits"] or finding["links"] or finding["pages"]] == []


@pytest.mark.prove
@pytest.mark.timeout(7200)
def test_fifty_clean_jobs_half_of_them_beside_noise_name_nobody(tmp_path: Path) -> None:
    figures = {row["figure"]: row["value"] for row in ordinary.run(keep=tmp_path) if row["case"] == "all"}
    print(figures)
    assert figures["runs"] == ordinary.RUNS
    assert figures["jobs"] >= 8
    assert figures["runs that named somebody"] == 0
    assert figures["runs with an incident"] <= 1
