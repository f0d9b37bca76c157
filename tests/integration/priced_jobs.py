"""Real jobs whose rank 0 waits longer, and what the what-if analysis says that costs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.rig import realjob
from collector.calls.operations import operations_of
from collector.calls.pending_records import RingRecords
from collector.calls.ring_set import Refused, RingSet
from pacehound.clock import ClockPair
from pacehound.instrument.launch import environment
from pacehound.model.operations import Operations
from pacehound.model.rounds import Rounds
from pacehound.model.whatif_result import MOST_DISCREPANCY
from streams.whatif.analysis import analyse, build
from streams.whatif.live import live_trace
from streams.whatif.prices import prices
from streams.whatif.tensor_groups import NO_GROUPS, TensorGroups

TURN_STEPS, TURNS, EVERY = 8, 3, 2
"""The factors take turns: while the machine becomes slower or faster by itself, it does so for all of them."""
STEPS = TURN_STEPS * TURNS

APART = 0.05
"""Stretches to which the same was done differ by less where the machine is ours."""


@dataclass(frozen=True)
class Priced:
    """By how much rank 0 slows the job down: as the analysis says, and as the clock says."""

    estimated: float
    measured: float
    discrepancy: float
    patterns: frozenset[str]

    def check(self, difference: float, same: Iterable[Sequence[np.ndarray]]) -> None:
        """The estimate is the measured one; `same` are stretches of steps of the run to which the same was done."""
        with realjob.unless_disturbed(lambda: disturbance(same)):
            assert self.discrepancy <= MOST_DISCREPANCY, self
            assert abs(self.estimated - self.measured) <= difference, self


def disturbance(same: Iterable[Sequence[np.ndarray]]) -> str:
    """By how much stretches differ that ought not to: the control within the run, for the factors take turns."""
    for stretches in same:
        medians = [float(np.median(steps)) for steps in stretches]
        apart = max(medians) / min(medians) - 1
        if apart > APART:
            return f"stretches of {medians[0]:.3f} s a step differ by {apart:.0%}"
    return ""


def priced(
    operations: Sequence[Operations], rounds: Sequence[Rounds], measured: float, groups: TensorGroups = NO_GROUPS
) -> Priced:
    """From recorded steps alone: the analysis never sees the healthy ones."""
    built = build(live_trace(list(operations), list(rounds), "job", groups), Path("live"))
    found = analyse(built)
    slow = ("worker", groups.ranks(0))
    (price,) = [fix for fix in prices(built.job, found, groups) if (fix.what, fix.ranks) == slow]
    said = Priced(1 / (1 - price.gain), measured, found.discrepancy, frozenset(one.name for one in found.patterns))
    print(f"S {found.slowdown:.3f}, {said}")
    return said


def run_job(script: Path, run_dir: Path, results: Path, *arguments: object, **environ: str) -> None:
    """Four ranks of a script, watched."""
    done = subprocess.run(
        realjob.forked(results, *arguments, script=script),
        env=environment(run_dir, "j", {**os.environ, "OMP_NUM_THREADS": "1", **environ}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not (run_dir / "notes").exists(), [path.read_text() for path in (run_dir / "notes").iterdir()]


def step_times_s(results: Path) -> np.ndarray:
    """By rank 0's own clock; the first is not known."""
    ends_s = np.array(json.loads((results / "0.json").read_text()))
    return np.diff(ends_s, prepend=np.nan)


def of_each_turn(factors: Sequence[float]) -> list[float]:
    """What a script that takes `TURN_STEPS` steps per factor is given."""
    return [*factors] * TURNS


def _is_of(level: int, n_levels: int, step: np.ndarray, left_out: int) -> np.ndarray:
    """Whether a step has one of so many factors, and is not among the first after a change."""
    is_of: np.ndarray = (step // TURN_STEPS % n_levels == level) & (step % TURN_STEPS >= left_out)
    return is_of


def turns_of(step_s: np.ndarray, level: int) -> list[list[np.ndarray]]:
    """The steps of the first factor and of another one, by turns: alike where the machine leaves them alone."""
    step = np.arange(len(step_s))
    turn = step // (len(step) // TURNS)
    levels = (_is_of(one, len(step) // STEPS, step, 2) for one in (0, level))
    return [[step_s[is_of & (turn == number)] for number in range(TURNS)] for is_of in levels]


def slowdown_of(step_s: np.ndarray, level: int) -> float:
    """Of one factor against the first: medians of step times, without the first two steps after a change."""
    step = np.arange(len(step_s))
    slow, healthy = (step_s[_is_of(one, len(step) // STEPS, step, 2)] for one in (level, 0))
    return float(np.median(slow) / np.median(healthy))


def of_level(event: Operations, level: int, n_levels: int) -> Operations:
    """The recorded steps of one of so many factors, without the first after a change."""
    rows = event.rows.take(np.flatnonzero(_is_of(level, n_levels, event.integers("step"), 1)))
    return Operations(job=event.job, attempt=event.attempt, host=event.host, rows=rows)


class Seen:
    """What the job's ranks wrote, and when its rank 0 ended each step by its own clock."""

    def __init__(self, run_dir: Path, results: Path) -> None:
        ring_set = RingSet(run_dir / "rings", {}, set())
        ring_set.discover()
        records_by_ring = []
        for found in ring_set.read():
            assert not isinstance(found, Refused), found
            read = found.read
            records_by_ring.append(RingRecords(attempt=0, rank=found.header.rank, records=read.records, lost=read.lost))
        ring_set.close()
        clock = ClockPair(monotonic_ns=0, unix_ns=0)
        (self.operations,) = operations_of(records_by_ring, job="j", host="h", clock=clock)
        self.step_s = step_times_s(results)

    def priced(self, level: int) -> Priced:
        """Against the first level."""
        slow = of_level(self.operations, level, len(self.step_s) // STEPS)
        return priced([slow], [], slowdown_of(self.step_s, level))

    def check(self, level: int, difference: float) -> Priced:
        """What is said of a level is right; what it was."""
        said = self.priced(level)
        said.check(difference, turns_of(self.step_s, level))
        return said


def seen_job(script: Path, run_dir: Path, results: Path, micro_batches: int, factors: Sequence[float]) -> Seen:
    """Run a script that takes so many steps per factor, with every second of them recorded."""
    arguments = (micro_batches, 0, TURN_STEPS, *of_each_turn(factors))
    run_job(script, run_dir, results, *arguments, PACEHOUND_OPS_EVERY_STEPS=str(EVERY))
    return Seen(run_dir, results)
