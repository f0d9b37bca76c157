"""Clean jobs as people write them: nobody is named, alone and beside other work; bench/ordinary.py has the jobs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from bench import ordinary

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, pytest.mark.prove, pytest.mark.timeout(7200), needs_torch]


def test_fifty_clean_jobs_half_of_them_beside_noise_name_nobody(tmp_path: Path) -> None:
    figures = {row["figure"]: row["value"] for row in ordinary.run(keep=tmp_path) if row["case"] == "all"}
    print(figures)
    assert figures["runs"] == ordinary.RUNS
    assert figures["jobs"] >= 8
    assert figures["runs that named somebody"] == 0
    assert figures["runs with an incident"] <= 1
