"""A hybrid job over gloo loses nodes by kill -9 in mid-step, and trains on as if it had not."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parents[2] / "examples/train_hybrid.py"


def trained(*args: str) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), "--pace-ms", "1", "--json", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_job_that_loses_a_node_in_mid_step_has_the_losses_of_one_node_that_does_all() -> None:
    """The nodes check themselves that each step has each sample once, and that replicas are equal at the end."""
    alone = trained("--dp", "1", "--pp", "1", "--most-layers", "8", "--steps", "5")
    disturbed = trained("--dp", "2", "--pp", "2", "--steps", "5", "--die", "3:2:5")
    assert disturbed["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    after = disturbed["plans"][1]["recovery"]
    assert (after["lost"], after["applied"]) == ([3], 2)
    assert after["moved_bytes"] > 0


def test_a_node_that_dies_after_the_step_counted_makes_nobody_do_it_twice() -> None:
    """Operation 11 comes after all have said that their gradients are complete: whoever has not applied them does."""
    alone = trained("--dp", "1", "--pp", "1", "--most-layers", "8", "--steps", "4", "--batch", "8")
    disturbed = trained("--dp", "2", "--pp", "2", "--steps", "4", "--batch", "8", "--die", "1:1:10")
    assert disturbed["losses"] == pytest.approx(alone["losses"], rel=1e-5)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(10))
def test_one_of_eight_killed_anywhere_in_a_step(seed: int) -> None:
    chance = random.Random(seed)
    where = f"{chance.randrange(8)}:{chance.randrange(1, 5)}:{chance.randrange(11)}"
    alone = trained("--dp", "1", "--pp", "1", "--most-layers", "8", "--steps", "6")
    disturbed = trained("--dp", "4", "--pp", "2", "--steps", "6", "--die", where)
    assert len(disturbed["plans"]) == 2, where
    assert disturbed["losses"] == pytest.approx(alone["losses"], rel=1e-5), where
    assert disturbed["plans"][1]["seconds_to_next_step"] < 30
