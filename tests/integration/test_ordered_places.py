"""Ranks of the hybrid example change places by an order; its losses stay as they are.

On one host and without a slow link; why places are changed, and what it brings, is in `test_changed_places.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob
from tests.integration.hybrid_job import SCRIPT, WITHIN_S, HybridJob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
]
SHAPE = ("--dp", "2", "--pp", "2", "--layers", "4", "--batch", "4", "--width", "16")
ORDERED = [2, 1, 0, 3]
"""Rank 0 is behind rank 2 then, which was behind it: what `plan_topology` does about a slow link 2->3."""


class MovedJob(HybridJob):
    """The example with four nodes under one `pacehound run`; its head gives no orders of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        words = [*self.watched("--"), sys.executable, str(SCRIPT), *SHAPE, "--pace-ms", "50", "--steps", "1000000"]
        words += ["--csv", str(folder / "csv"), "--stop", str(folder / "stop"), "--json"]
        self.start(words)

    def places(self) -> list[str]:
        """Of each step so far, who was where."""
        path = self.folder / "csv"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split(",")[2] for line in lines]

    def moves_to(self, rank_at: list[int]) -> None:
        """By an order, and goes on there."""
        words = ["order", "topology", "--payload", json.dumps(rank_at), "--job", "hybrid", "--store", str(self.store)]
        done = subprocess.run([*realjob.PACEHOUND, *words], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        there = " ".join(map(str, rank_at))
        self.until(lambda: self.places()[-3:] == [there] * 3, f"three steps as {there}, of {self.places()[-3:]}")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MovedJob]:
    made = MovedJob(tmp_path)
    yield made
    made.close()


@pytest.mark.prove
def test_ranks_that_change_places_have_the_losses_of_a_job_that_nobody_touched(job: MovedJob) -> None:
    job.until(lambda: len(job.places()) > 3, "it begins")
    job.moves_to(ORDERED)
    found = job.end()
    words = [sys.executable, str(SCRIPT), *SHAPE, "--pace-ms", "0", "--steps", str(len(found["losses"])), "--json"]
    alone = json.loads(subprocess.run(words, check=True, capture_output=True, timeout=WITHIN_S).stdout)
    assert found["losses"] == alone["losses"]
