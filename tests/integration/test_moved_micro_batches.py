"""A real DDP job in mode `auto` and nobody who touches anything: a rank becomes slow, and its micro-batches are moved.

What is compared: the time of an iteration with that of the best distribution for the speeds that the job itself showed,
and its parameters in the end with those of one process that did the same steps alone. Both add up the same gradients of
the same micro-batches, in another order: 32 double-precision numbers summed in another order differ by less than 32
times 2^-53 of the sum of their absolute values, and hundreds of contracting steps of plain descent do not amplify that
by more than some thousand times. TOLERANCE is a hundred times more, and a millionth of what one micro-batch that was
left out or weighted wrongly changes (`test_a_wrong_weight_would_be_seen`).
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from actuators.mitigation.microbatches import distribute
from bench.rig import realjob
from pacehound.instrument import hold, shim
from tests.integration.asked_job import AskedJob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
    pytest.mark.skipif(shim.reason_not_made() is not None, reason="no C compiler"),
]
SCRIPT = Path(__file__).parents[2] / "examples" / "train_microbatches.py"
RANKS, EACH = 4, 8
SLOW_RANK, SLOW_BY = 2, 2.0
TOLERANCE = 1e-9
OF_THE_OPTIMUM = 1.15
FAST_STEPS = 120
WITHIN_S = 150
PROVED = 10


class MovedJob(AskedJob):
    """The example, watched; what it does is read from its store."""

    def __init__(self, folder: Path, *words: str, mode: str = "auto") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.store = folder, folder / "store"
        self.slow, self.stop = folder / "slow", folder / "stop"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        options = ["--steps", "1000000", "--slow-rank", str(SLOW_RANK), "--slow-by", str(SLOW_BY), *words]
        options += ["--slow-while", str(self.slow), "--stop", str(self.stop)]
        options += ["--csv", str(folder / "csv"), "--parameters", str(folder / "parameters")]
        watched = [sys.executable, "-m", "pacehound", "run", "--store", str(self.store)]
        watched += ["--set", f"actuators.mode={mode}", "--", *torchrun, str(SCRIPT), *options]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(watched, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=log, stderr=log)

    def decisions(self) -> list[dict[str, Any]]:
        """What was done, in its order."""
        found = self.rows("SELECT event FROM decisions WHERE taken ORDER BY time_ns")
        return [json.loads(one["event"]) for one in found]

    def actions(self) -> list[str]:
        """About micro-batches, in their order; the phases of looking and measuring are told beside them."""
        return [one["action"] for one in self.decisions() if one["number"]]

    def until(self, done: Callable[[], bool], what: str) -> None:
        def say() -> str:
            said = [(one["action"], one["reason"]) for one in self.decisions()]
            return f"{said}; {(self.folder / 'log').read_text()[-2000:]}"

        realjob.until(what, done, WITHIN_S, 0.3, say, self.process)

    def goes_on(self, steps: int) -> None:
        before = self.steps()
        self.until(lambda: self.steps() >= before + steps, "it goes on")

    def end(self) -> None:
        self.stop.touch()
        try:
            self.process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def times(self) -> dict[str, list[float]]:
        """Of the steps, by the distribution in their order: `8 8 8 8`, `9 9 5 9`, `8 8 8 8 again`."""
        found: dict[str, list[float]] = {}
        before = ""
        with (self.folder / "csv").open() as file:
            for row in csv.DictReader(file):
                name = row["micro_batches"]
                if name != before.removesuffix(" again"):
                    before = name if name not in found else f"{name} again"
                found.setdefault(before, []).append(float(row["step_time_s"]))
        return found


def alone(folder: Path, steps: int) -> dict[str, Any]:
    """Parameters after the same steps of one process that computes all micro-batches."""
    import torch

    env = {**os.environ, "OMP_NUM_THREADS": "1", "RANK": "0", "WORLD_SIZE": "1"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    words = ["--steps", str(steps), "--compute-ms", "0", "--wait-ms", "0", "--parameters", str(folder / "alone")]
    subprocess.run([sys.executable, str(SCRIPT), *words], env=env, check=True, timeout=WITHIN_S)
    found: dict[str, Any] = torch.load(folder / "alone")
    assert found["steps"] == steps
    return dict(found["parameters"])


def furthest(ours: dict[str, Any], others: dict[str, Any]) -> float:
    """The largest difference of a parameter, over the largest one."""
    most = max(float(one.abs().max()) for one in others.values())
    return max(float((ours[name] - others[name]).abs().max()) for name in others) / most


def assert_parameters_are_those_of_one_process(job: MovedJob) -> None:
    import torch

    found = torch.load(job.folder / "parameters")
    assert furthest(found["parameters"], alone(job.folder, found["steps"])) < TOLERANCE


def assert_it_is_moved_and_given_back(folder: Path) -> str:
    """What was seen, in a line."""
    job = MovedJob(folder)
    try:
        job.until(lambda: job.steps() > FAST_STEPS, "it begins")
        fast_until = job.steps()
        job.slow.touch()
        job.until(lambda: "keep_microbatches" in job.actions(), "micro-batches are moved, and it is kept")
        moved = job.actions()
        job.goes_on(40)
        job.slow.unlink()
        job.until(lambda: job.actions()[-2:] == ["restore_microbatches", "track"], "they are given back")
        decisions = job.decisions()
        job.goes_on(20)
    finally:
        job.end()
    adjusted = next(one for one in decisions if one["action"] == "adjust_microbatches")
    kept = next(one for one in decisions if one["action"] == "keep_microbatches")
    assert decisions[0]["action"] == "profile"
    assert moved == ["adjust_microbatches", "keep_microbatches"]
    assert (adjusted["aimed_at"], adjusted["mode"], adjusted["price_s"]) == ([SLOW_RANK], "auto", 5.0)
    assert adjusted["alternatives"]
    assert kept["seen_gain"] >= adjusted["promised_gain"] / 2
    assert [one for one in decisions if one["number"]][-1]["reason"].startswith(
        "every rank computes as many micro-batches as before"
    )
    equal, plan, *_ = times = job.times()
    assert plan != equal
    assert list(times)[-1] == f"{equal} again"
    fast_s = statistics.median(times[equal][fast_until // 2 : fast_until])
    slow_s = statistics.median(times[equal][fast_until + 20 :])
    moved_s = statistics.median(times[plan][: len(times[plan]) // 2])
    ratios = [slow_s / fast_s if rank == SLOW_RANK else 1.0 for rank in range(RANKS)]
    optimum_s = fast_s / EACH * distribute(ratios, RANKS * EACH).bottleneck_s
    line = (
        f"{equal} to {plan}: {1e3 * fast_s:.0f} ms, slow {1e3 * slow_s:.0f} ms, moved {1e3 * moved_s:.0f} ms "
        f"({moved_s / optimum_s:.2f} of the optimum)"
    )
    assert moved_s <= OF_THE_OPTIMUM * optimum_s, line
    assert_parameters_are_those_of_one_process(job)
    return line


@pytest.mark.prove
def test_a_wrong_weight_would_be_seen(tmp_path: Path) -> None:
    """One micro-batch more or less in a single step changes parameters a million times more than the tolerance."""
    import torch

    whole, other = alone(tmp_path, 20), alone(tmp_path, 21)
    assert furthest(whole, other) > 1e6 * TOLERANCE
    assert all(one.dtype == torch.float64 for one in whole.values())


@pytest.mark.prove
@pytest.mark.parametrize("number", range(PROVED))
def test_ten_times_micro_batches_are_moved_and_come_back(tmp_path: Path, number: int) -> None:
    hold.build()
    print(number, assert_it_is_moved_and_given_back(tmp_path))


@pytest.mark.prove
@pytest.mark.parametrize("number", range(PROVED))
def test_in_ten_clean_runs_nothing_is_moved(tmp_path: Path, number: int) -> None:
    hold.build()
    job = MovedJob(tmp_path)
    try:
        job.until(lambda: job.steps() > FAST_STEPS, "it begins")
        time.sleep(40)  # as long as a slow one takes
        actions = job.actions()
    finally:
        job.end()
    assert actions == [], number
    assert_parameters_are_those_of_one_process(job)


@pytest.mark.prove
def test_a_plan_that_makes_it_worse_is_undone_within_the_planned_iterations(tmp_path: Path) -> None:
    """Injected: the script spins for as much longer as micro-batches were taken from the slow rank."""
    hold.build()
    job = MovedJob(tmp_path, "--worse")
    try:
        job.until(lambda: job.steps() > FAST_STEPS, "it begins")
        job.slow.touch()
        job.until(lambda: job.actions()[-2:] == ["restore_microbatches", "track"], "it is undone")
        decisions = job.decisions()
        job.goes_on(20)
    finally:
        job.end()
    restored = next(one for one in decisions if one["action"] == "restore_microbatches")
    assert restored["seen_gain"] < restored["promised_gain"] / 2
    assert "keep_microbatches" not in [one["action"] for one in decisions]
    assert [name.removesuffix(" again") for name in job.times()][::2] == ["8 8 8 8", "8 8 8 8"]
    assert_parameters_are_those_of_one_process(job)
