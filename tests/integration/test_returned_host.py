"""A job of three hosts loses one and goes on with two; the host comes back, and a decision says whether that pays."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob
from pacehound.runtime.head.client import live_owner
from tests.integration.asked_job import AskedJob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.prove,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        find_spec("torch") is None or find_spec("scipy") is None, reason="there is no torch, or no scipy"
    ),
]
SCRIPT = Path(__file__).parents[2] / "examples/train_hybrid.py"
WITHIN_S = 600
LOST = 2


class HybridHosts(AskedJob):
    """The example over three hosts of this machine, each with an agent of its own, and a head."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "store"
        self.log = (folder / "log").open("ab")
        head = [*realjob.PACEHOUND, "up", "--store", str(self.store)]
        self.head = subprocess.Popen(head, env=realjob.environment({}), stdout=self.log, stderr=self.log, cwd="/")
        realjob.until("the head", lambda: live_owner(self.store) is not None, 90)
        launch = f"{' '.join(self.watched('h{node}'))} --"
        words = [sys.executable, str(SCRIPT), "--dp", "3", "--pp", "1", "--pace-ms", "5", "--steps", "1000000"]
        words += ["--most-layers", "8"]
        words += ["--die", f"{LOST}:12:4", "--stop", str(folder / "stop"), "--launch", launch, "--json"]
        self.process = subprocess.Popen(
            words, env=realjob.environment({"OMP_NUM_THREADS": "1"}), stdout=subprocess.PIPE, stderr=self.log, cwd="/"
        )

    def watched(self, host: str) -> list[str]:
        return [*realjob.PACEHOUND, "run", "--store", str(self.store), "--job", "hybrid", "--set", f"host.name={host}"]

    def said(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def decisions(self) -> list[dict[str, Any]]:
        found = self.rows("SELECT event FROM decisions ORDER BY time_ns")
        return [json.loads(one["event"]) for one in found]

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not done():
            late = time.monotonic() > deadline_s
            assert not late, f"{what}: {self.decisions()}; {self.said()}"
            assert self.process.poll() is None, self.said()
            time.sleep(0.5)


def test_a_host_that_comes_back_gets_a_decision_on_the_incident_of_its_loss(tmp_path: Path) -> None:
    job = HybridHosts(tmp_path)
    returned: subprocess.Popen[bytes] | None = None
    try:
        job.until(lambda: any(one["action"] in ("replan", "reroute") for one in job.decisions()), "it loses a host")
        job.until(lambda: job.rows("SELECT 1 FROM topology WHERE is_world AND world_size = 2") != [], "it goes on")
        (loss,) = [one for one in job.decisions() if one["action"] in ("replan", "reroute")]
        command = [*job.watched(f"h{LOST}"), "--", "sleep", "600"]
        returned = subprocess.Popen(command, env=realjob.environment({}), stdout=job.log, stderr=job.log, cwd="/")
        job.until(lambda: any(one.get("joined") for one in job.decisions()), "its host is back")
        (decision,) = [one for one in job.decisions() if one.get("joined")]
        print("\n", decision["reason"], "\n", decision["alternatives"], "\n", decision["limit"])
        assert (decision["action"], decision["mode"], decision["taken"]) == ("replan", "observe", False)
        assert (decision["joined"], decision["aimed_at"], decision["incident"]) == (["h2"], [LOST], loss["incident"])
        assert decision["reason"].startswith("with h2 (1 rank): ")
        assert "the plan of now" in decision["reason"]
        assert decision["alternatives"][0].startswith("going on as ")
        (tmp_path / "stop").touch()
        out, _ = job.process.communicate(timeout=WITHIN_S)
        assert job.process.returncode == 0, job.said()
        assert [plan.get("recovery", {}).get("lost") for plan in json.loads(out)["plans"]] == [None, [LOST]]
        # Whose decisions are read again by somebody who asks for the incident.
        shown = subprocess.run(
            [*realjob.PACEHOUND, "incidents", "--store", str(job.store)], capture_output=True, text=True, timeout=100,
            check=True,
        ).stdout  # fmt: skip
        words = " ".join(shown.split())
        assert words.count("would do replan: with h2") == 1, shown
        assert f"would do {loss['action']}: for an exit of rank {LOST}" in words, shown
    finally:
        (tmp_path / "stop").touch()
        for process in (returned, job.process):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(WITHIN_S)
        job.head.terminate()
        job.head.wait(WITHIN_S)
