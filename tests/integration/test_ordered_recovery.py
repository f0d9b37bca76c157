"""A job that loses a rank asks its head which plan to go on with, and says which it used.

By itself the example would reroute, for it is told that the next failure is near. The head knows of no failures and
orders a new plan: so it is seen who has decided.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hybrid_job import SCRIPT, HybridJob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.prove,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        find_spec("torch") is None or find_spec("scipy") is None, reason="there is no torch, or no scipy"
    ),
]
ASK_S = 20.0
"""The deadline is ten times the default: it is not the time that is tested here, on a machine that others use."""
LOST = 3
NEAR = ("--until-next-s", "1.2")


class AskingJob(HybridJob):
    """The example with four nodes under one `pacehound run`, and a head in a mode."""

    def __init__(self, folder: Path, mode: str) -> None:
        super().__init__(folder, f"actuators.mode={mode}")
        words = [*self.watched("--"), sys.executable]
        words += [str(SCRIPT), "--dp", "2", "--pp", "2", "--pace-ms", "5", "--steps", "1000000", "--json"]
        words += ["--die", f"{LOST}:12:4", "--stop", str(folder / "stop"), "--ask-s", str(ASK_S), *NEAR]
        self.start(words)

    def decisions(self) -> list[dict[str, Any]]:
        return [one for one in super().decisions() if one["mode"] == "auto"]

    def goes_on(self) -> None:
        self.until(
            lambda: self.rows("SELECT 1 FROM topology WHERE is_world AND world_size = 3") != [], "it goes on with three"
        )

    def plan_after_the_loss(self) -> dict[str, Any]:
        """What the job says of it in the end."""
        _, after = self.end()["plans"]
        assert after["recovery"]["lost"] == [LOST]
        found: dict[str, Any] = after
        return found


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    made = AskingJob(tmp_path, getattr(request, "param", "auto"))
    yield made
    made.close()


def test_in_auto_the_head_orders_a_plan_all_survivors_use_it_and_its_effect_is_written(job: AskingJob) -> None:
    job.goes_on()
    job.until(lambda: any(one["action"] == "track" for one in job.decisions()), "what it has brought")
    ordered, effect = job.decisions()
    print("\n", ordered["reason"], "\n", effect["reason"])
    after = job.plan_after_the_loss()
    assert after["recovery"]["is_ordered"] is True
    assert after["kind"] != "reroute"
    assert (ordered["action"], ordered["taken"], ordered["aimed_at"]) == ("replan", True, [LOST])
    assert ordered["limit"] == ""
    assert "1 failed in" in ordered["reason"]
    assert "too few to tell a rate" in ordered["reason"]
    assert effect["reason"].startswith("training stood still for ")
    assert effect["seen_gain"] is not None


@pytest.mark.parametrize("job", ["observe"], indirect=True)
def test_in_observe_it_is_told_and_the_job_decides_by_itself(job: AskingJob) -> None:
    job.goes_on()
    assert job.decisions() == []
    after = job.plan_after_the_loss()
    assert (after["kind"], after["recovery"]["is_ordered"]) == ("reroute", False)
    assert "gives most until the next failure" in after["recovery"]["recommended"]
