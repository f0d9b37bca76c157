"""What is left of a thousand jobs that have vanished."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.prove, pytest.mark.timeout(1200)]


def test_a_thousand_jobs_that_vanish_leave_less_than_a_tenth_more_memory() -> None:
    """The short form, with operators counted: tests/jobs/test_vanished_jobs.py."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.vanished"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
