"""A job of three hosts loses one and goes on with two; the host comes back, and a decision says whether that pays."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob
from tests.integration.hybrid_job import SCRIPT, WITHIN_S, HybridJob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.prove,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        find_spec("torch") is None or find_spec("scipy") is None, reason="there is no torch, or no scipy"
    ),
]
LOST = 2


class HybridHosts(HybridJob):
    """The example over three hosts of this machine, each with an agent of its own, and a head."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        launch = f"{' '.join(self.on('h{node}'))} --"
        words = [sys.executable, str(SCRIPT), "--dp", "3", "--pp", "1", "--pace-ms", "5", "--steps", "1000000"]
        words += ["--most-layers", "8"]
        words += ["--die", f"{LOST}:12:4", "--stop", str(folder / "stop"), "--launch", launch, "--json"]
        self.start(words)

    def on(self, host: str) -> list[str]:
        return self.watched("--set", f"host.name={host}")


def test_a_host_that_comes_back_gets_a_decision_on_the_incident_of_its_loss(tmp_path: Path) -> None:
    job = HybridHosts(tmp_path)
    returned: subprocess.Popen[bytes] | None = None
    try:
        job.until(lambda: any(one["action"] in ("replan", "reroute") for one in job.decisions()), "it loses a host")
        job.until(lambda: job.rows("SELECT 1 FROM topology WHERE is_world AND world_size = 2") != [], "it goes on")
        (loss,) = [one for one in job.decisions() if one["action"] in ("replan", "reroute")]
        command = [*job.on(f"h{LOST}"), "--", "sleep", "600"]
        returned = subprocess.Popen(command, env=realjob.environment({}), stdout=job.log, stderr=job.log, cwd="/")
        job.until(lambda: any(one.get("joined") for one in job.decisions()), "its host is back")
        (decision,) = [one for one in job.decisions() if one.get("joined")]
        print("\n", decision["reason"], "\n", decision["alternatives"], "\n", decision["limit"])
        assert (decision["action"], decision["mode"], decision["taken"]) == ("replan", "observe", False)
        assert (decision["joined"], decision["aimed_at"], decision["incident"]) == (["h2"], [LOST], loss["incident"])
        assert decision["reason"].startswith("with h2 (1 rank): ")
        assert "the plan of now" in decision["reason"]
        assert decision["alternatives"][0].startswith("going on as ")
        assert [plan.get("recovery", {}).get("lost") for plan in job.end()["plans"]] == [None, [LOST]]
        # Whose decisions are read again by somebody who asks for the incident.
        shown = subprocess.run(
            [*realjob.PACEHOUND, "incidents", "--store", str(job.store)], capture_output=True, text=True, timeout=100,
            check=True,
        ).stdout  # fmt: skip
        words = " ".join(shown.split())
        assert words.count("would do replan: with h2") == 1, shown
        assert f"would do {loss['action']}: for an exit of rank {LOST}" in words, shown
    finally:
        if returned is not None and returned.poll() is None:
            returned.terminate()
            returned.wait(WITHIN_S)
        job.close()
