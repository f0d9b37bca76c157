"""A real job that waits for one rank's data: what its agent collected stands in the store, and the rank is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.rig import realjob
from collector.host.evidence import pyspy

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.usefixtures("made_store")]


STACKS = (
    "SELECT rank, doing, frames FROM host_evidence"
    " WHERE time_ns = (SELECT min(time_ns) FROM host_evidence WHERE reason LIKE 'rank %') ORDER BY rank"
)


def test_the_stacks_of_a_stall_name_who_loads_data_and_who_waits(tmp_path: Path) -> None:
    if pyspy.find() is None:
        pytest.skip("py-spy is not installed")
    go_on = tmp_path / "go_on"
    script = Path(__file__).with_name("loading_job.py")
    run = realjob.start(tmp_path, realjob.forked(go_on, script=script), settings=["hang.suspect_after_s=3"])
    try:
        stacks = realjob.until("the stacks", lambda: run.live_sql(STACKS), 90)
        realjob.until("the verdict", run.incidents, 60)
        go_on.touch()
        assert run.wait(120) == 0, run.text()
    finally:
        run.stop()
    assert {row["rank"]: row["doing"] for row in stacks} == {
        0: "in_call",
        1: "in_call",
        2: "data_loading",
        3: "in_call",
    }
    assert any("Samples.__getitem__" in frame for frame in stacks[2]["frames"])
    (finding,) = [finding for incident in run.incidents() for finding in incident["findings"]]
    assert (finding["kind"], finding["cause"], finding["verdict"]) == ("hang", "H1", "culprit"), finding
    assert finding["culprits"] == [2]
    assert finding["relief"]
    # Every rank told of connections to other ranks of this host, each from both of its ends.
    sockets = run.sql("SELECT DISTINCT name, ranks FROM host_vitals WHERE kind = 'socket'")
    ends = {tuple(row["name"].split(" > ")): row["ranks"][0] for row in sockets}
    pairs = {(rank, ends[remote, local]) for (local, remote), rank in ends.items() if (remote, local) in ends}
    assert {rank for pair in pairs for rank in pair if pair[0] != pair[1]} == {0, 1, 2, 3}
