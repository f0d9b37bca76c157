"""A rank of a watched job is killed: its incident carries the plans for the others, priced by what was seen of it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.prove,
    pytest.mark.skipif(
        find_spec("torch") is None or find_spec("scipy") is None, reason="there is no torch, or no scipy"
    ),
]

SCRIPT = Path(__file__).parents[2] / "examples/train_hybrid.py"
PACEHOUND = (sys.executable, "-m", "pacehound")


def test_the_incident_of_a_killed_rank_says_which_plan_and_at_what_price(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path))
    script = f"{SCRIPT} --dp 4 --pp 2 --steps 16 --pace-ms 5 --die 3:11:4 --json"
    command = [*PACEHOUND, "run", *store, "--job", "h", "--", sys.executable, *script.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout[done.stdout.index("{") :])
    answer = subprocess.run(
        [*PACEHOUND, "incidents", *store, "--json"], capture_output=True, text=True, timeout=100, check=True
    )
    # On a machine that others use there may be slowness besides.
    told_of = [(one, finding) for one in json.loads(answer.stdout)["incidents"] for finding in one["findings"]]
    ((incident, finding),) = [pair for pair in told_of if pair[1]["kind"] == "exit"]
    assert (finding["verdict"], finding["culprits"]) == ("culprit", [3])
    (shape,) = [piece for piece in finding["evidence"] if piece["kind"] == "job_shape"]
    assert (shape["dp"], shape["pp"], shape["micro_batches"]) == (4, 2, 4)
    assert shape["step_time_s"] == pytest.approx(told["plans"][0]["measured_s"], rel=0.5)
    (decision,) = [one for one in incident["decisions"] if one["action"] in ("replan", "reroute")]
    print("\n", shape["words"], "\n", decision["reason"], "\n", decision["alternatives"])
    assert (decision["aimed_at"], decision["taken"], decision["limit"]) == ([3], False, "")
    assert "% of the throughput before" in decision["reason"]
    assert "1 failed in" in decision["reason"]
    assert any("restart_without_rank" in one for one in decision["alternatives"])
    assert any("reroute" in one for one in (decision["reason"], *decision["alternatives"]))
