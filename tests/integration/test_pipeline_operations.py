"""A real gloo pipeline job (DP 2 x PP 2, 1F1B) with a rank that waits longer, at three levels: its price is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collector.operations import operations_of
from collector.ring_set import Refused, RingSet
from collector.waiting import Intake
from pacehound.clock import ClockPair
from pacehound.events import FixPrice
from pacehound.instrument.launch import environment
from pacehound.operations import OPTYPES, Operations
from pacehound.whatif.result import MOST_DISCREPANCY
from streams.whatif.analysis import analyse, build
from streams.whatif.live import live_trace
from streams.whatif.prices import prices

pytest.importorskip("torch")
pytestmark = pytest.mark.integration

JOB = Path(__file__).with_name("pipeline_job.py")
MICRO_BATCHES, STEPS, EVERY = 8, 24, 2
FACTORS = (1.0, 1.25, 1.5, 2.2)


class Seen:
    """What the job's ranks wrote, and when its rank 0 ended each step by its own clock."""

    def __init__(self, run_dir: Path, results: Path) -> None:
        ring_set = RingSet(run_dir / "rings", {}, set())
        ring_set.discover()
        intakes = []
        for found in ring_set.read():
            assert not isinstance(found, Refused), found
            read = found.read
            intakes.append(Intake(attempt=0, rank=found.header.rank, records=read.records, lost=read.lost))
        ring_set.close()
        clock = ClockPair(monotonic_ns=0, unix_ns=0)
        (self.operations,) = operations_of(intakes, job="j", host="h", clock=clock)
        ends_s = np.array(json.loads((results / "0.json").read_text()))
        self.step_s = np.diff(ends_s, prepend=np.nan)

    def of_level(self, level: int) -> Operations:
        """The recorded steps of one factor, without the first after a change."""
        step = self.operations.integers("step")
        chosen = np.flatnonzero((step > level * STEPS) & (step < (level + 1) * STEPS))
        return Operations(job="j", attempt=0, host="h", rows=self.operations.rows.take(chosen))

    def measured(self, level: int) -> float:
        """How much longer a step takes than at the first level; the median, for the machine is not ours alone."""
        steps = [self.step_s[first * STEPS + 2 : (first + 1) * STEPS] for first in (level, 0)]
        return float(np.median(steps[0]) / np.median(steps[1]))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    run_dir, results = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("results")
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PACEHOUND_OPS_EVERY_STEPS": str(EVERY)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(JOB)]
    arguments = [str(results), str(MICRO_BATCHES), "0", str(STEPS), *map(str, FACTORS)]
    done = subprocess.run(
        [*command, *arguments], env=environment(run_dir, "j", environ), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not (run_dir / "notes").exists(), [path.read_text() for path in (run_dir / "notes").iterdir()]
    return Seen(run_dir, results)


def test_every_micro_batch_is_seen_on_every_rank(seen: Seen) -> None:
    """Stage 0 sends forward and receives backward, stage 1 the other way round; the first step is never recorded."""
    rows = seen.operations
    steps = set(rows.integers("step").tolist())
    assert steps == set(range(EVERY, STEPS * len(FACTORS), EVERY))
    names = {
        0: ("forward-compute", "backward-compute", "forward-send", "backward-recv"),
        1: ("forward-compute", "backward-compute", "forward-recv", "backward-send"),
    }
    for rank in range(4):
        is_rank = rows.integers("rank") == rank
        assert set(rows.integers("stage")[is_rank].tolist()) == {rank % 2}
        assert set(rows.integers("pipeline")[is_rank].tolist()) == {rank // 2 * 2}
        counts = np.bincount(rows.integers("optype")[is_rank], minlength=len(OPTYPES))
        expected = {OPTYPES.index(name): MICRO_BATCHES * len(steps) for name in names[rank % 2]}
        expected[OPTYPES.index("optimizer")] = len(steps)
        assert {code: count for code, count in enumerate(counts.tolist()) if count} == expected


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_estimated_slowdown_is_the_measured_one_within_five_points(seen: Seen, level: int) -> None:
    """What the slow worker costs, from the recorded steps alone: the analysis never sees the healthy ones."""
    built = build(live_trace([seen.of_level(level)], [], "job"), Path("live"))
    found = analyse(built)
    assert found.discrepancy <= MOST_DISCREPANCY
    (price,) = [fix for fix in prices(built.job, found) if (fix.what, fix.ranks) == ("worker", (0,))]
    assert isinstance(price, FixPrice)
    estimated, measured = 1 / (1 - price.gain), seen.measured(level)
    print(f"factor {FACTORS[level]}: estimated {estimated:.3f}, measured {measured:.3f}, S {found.slowdown:.3f}")
    assert estimated == pytest.approx(measured, abs=0.05)
    if level > 1:
        assert "single worker" in {pattern.name for pattern in found.patterns}
