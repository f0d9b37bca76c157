"""A hybrid job over gloo loses nodes by kill -9 in mid-step, and trains on as if it had not."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
]

SCRIPT = Path(__file__).parents[2] / "examples/train_hybrid.py"


def trained(*args: str) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), "--pace-ms", "1", "--json", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """The losses of a node that does all by itself."""
    losses: list[float] = trained("--dp", "1", "--pp", "1", "--most-layers", "8", "--steps", "6")["losses"]
    return losses


def test_a_job_that_loses_a_node_in_mid_step_has_the_losses_of_one_node_that_does_all(alone: list[float]) -> None:
    """The nodes check themselves that each step has each sample once, and that replicas are equal at the end."""
    disturbed = trained("--dp", "2", "--pp", "2", "--steps", "4", "--die", "3:2:5")
    assert disturbed["losses"] == pytest.approx(alone[:4], rel=1e-5)
    after = disturbed["plans"][1]["recovery"]
    assert (after["lost"], after["applied"]) == ([3], 2)
    assert after["moved_bytes"] > 0


def test_a_node_that_dies_when_the_step_counts_makes_nobody_do_it_twice(alone: list[float]) -> None:
    """Its operation 18 is after all have said that their gradients are complete: the others apply them, and go on."""
    disturbed = trained("--dp", "2", "--pp", "2", "--steps", "3", "--die", "1:1:18")
    assert disturbed["losses"] == pytest.approx(alone[:3], rel=1e-5)
    assert disturbed["plans"][1]["recovery"]["applied"] == 2


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(10))
def test_one_of_eight_killed_anywhere_in_a_step(alone: list[float], seed: int) -> None:
    chance = random.Random(seed)
    where = f"{chance.randrange(8)}:{chance.randrange(1, 5)}:{chance.randrange(11)}"
    disturbed = trained("--dp", "4", "--pp", "2", "--steps", "6", "--die", where)
    assert len(disturbed["plans"]) == 2, where
    assert disturbed["losses"] == pytest.approx(alone, rel=1e-5), where
    assert disturbed["plans"][1]["seconds_to_next_step"] < 30
