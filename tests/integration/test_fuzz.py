"""A fuzzer led by coverage finds no input that a door does not stand, and the loops in C stand what is damaged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile import sanitized
from tests.hostile.doors import DOORS
from tests.hostile.readers import READERS

pytestmark = [pytest.mark.integration, pytest.mark.prove, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
SECONDS = 60
FUZZED = [*READERS, *(name for name in DOORS if name != "messages")]
"""Messages are jobs that follow each other, with damage among them: what one input reaches says nothing there."""


@pytest.mark.parametrize("door", FUZZED)
def test_no_input_is_found_that_a_door_does_not_stand(door: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="`make prove` installs it: pip install -e '.[prove]'")
    options = [f"-max_total_time={SECONDS}", "-seed=1"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.hostile.fuzz", door, str(tmp_path), *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    said = done.stdout
    assert done.returncode == 0, f"{[path.name for path in tmp_path.glob('*-*')]} in {tmp_path}\n{said[-6000:]}"
    first, last = (re.findall(r"cov: (\d+)", said)[at] for at in (0, -1))
    figures = dict(re.findall(r"stat::(\w+): +(\d+)", said))
    print(
        f"{door}: {int(figures['number_of_executed_units']):,} inputs, branches {first} -> {last}, "
        f"slowest {figures['slowest_unit_time_sec']} s, at most {figures['peak_rss_mb']} MiB"
    )


@pytest.mark.parametrize(("door", "n_inputs"), [("snapshots", 3_000), ("messages", 10_000), ("operators", 300)])
def test_the_inner_loops_touch_nothing_that_is_not_theirs(door: str, n_inputs: int) -> None:
    """Compiled with AddressSanitizer and UndefinedBehaviorSanitizer; a state that is taken is worked on by them."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.hostile.sanitized", door, str(n_inputs), "1"],
        cwd=ROOT,
        env=sanitized.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    print(done.stdout[-300:])
    assert done.returncode == 0, done.stdout[-6000:]
