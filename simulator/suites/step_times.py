"""Step times of synthetic jobs, with what was done to them: the populations that detectors are scored on.

Examples
--------
>>> series = next(POPULATIONS["delay_20"].series(seed=0))
>>> series.name, len(series.log), series.truth.n_slow
('delay_20/000', 1500, 1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pacehound.model.step_log import StepLog
from pacehound.model.truth.steps import StepTruth, TrueChange
from simulator.suites.step_noise import QUIET, FloatArray, Mix, Noise

N_STEPS = 10_000
START_NS = 1_767_225_600_000_000_000
_FIRST_ONSET = 600  # a detector has learnt a job's pace by then, patterns included
_LAST_ROOM = 200  # steps after the last onset that the end of a series leaves


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepSeries:
    """The step times of one synthetic job, and what was done to them."""

    name: str  # unique in its population, for instance `four_node/017`
    log: StepLog  # as a reader of step-time logs gives it
    truth: StepTruth  # what happened, by step
    noise: Noise  # the jitter under it
    earlier: tuple[StepLog, ...] = ()  # runs of the same job before this one, for what compares with history


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Jobs of one kind. Each is made by itself from (seed, population, number), so that workers can share them out."""

    name: str  # one of `POPULATIONS`
    count: int  # how many series it has
    make: Callable[[int, int], StepSeries]  # makes number `i` of the series of a seed: `make(seed, i)`
    about: str  # what happens in it, for people

    def series(self, seed: int, count: int | None = None) -> Iterator[StepSeries]:
        """The first `count` series of a seed (default: all)."""
        for number in range(self.count if count is None else min(count, self.count)):
            yield self.make(seed, number)


@dataclass(frozen=True, slots=True)
class _Levels:
    """A series of factors, shape `(n,)`, and the changes that they stand for."""

    factor: FloatArray
    changes: tuple[TrueChange, ...] = ()


def _rng(seed: int, population: str, number: int) -> np.random.Generator:
    """Of its own for each series: `hash` would differ between processes."""
    return np.random.default_rng([seed, *population.encode(), number])


def _series(
    rng: np.random.Generator,
    name: str,
    noise: Noise,
    mix: Mix,
    levels: _Levels,
    *,
    base_s: float | None = None,
    work: Mapping[str, FloatArray] | None = None,
) -> StepSeries:
    n = len(levels.factor)
    if base_s is None:
        base_s = math.exp(rng.uniform(math.log(0.1), math.log(20.0)))
    step_time_s = base_s * levels.factor * mix.texture(rng, n) * np.exp(noise.sample(rng, n))
    log = StepLog(
        path=name,
        format="synthetic",
        step=np.arange(n),
        n_steps=np.ones(n, np.int64),
        time_ns=START_NS + np.round(np.cumsum(step_time_s) * 1e9).astype(np.int64),
        step_time_s=step_time_s,
        work=dict(work or {}),
    )
    return StepSeries(
        name=name, log=log, truth=StepTruth(first_step=0, last_step=n - 1, changes=levels.changes), noise=noise
    )


def _factor_of(rng: np.random.Generator, noise: Noise) -> float:
    """How slow a fault makes a job: from what must be found up to 2.5 times, the weak ones more often."""
    return math.exp(rng.uniform(math.log1p(noise.smallest_change()), math.log(2.5)))


def _length_of(rng: np.random.Generator, longest: int) -> int:
    """How long a fault lasts: 30 to 5,000 steps, evenly in the logarithm."""
    return round(math.exp(rng.uniform(math.log(30), math.log(min(longest, 5_000)))))


def _faults(rng: np.random.Generator, n: int, noise: Noise) -> _Levels:
    """One fault with its relief, or one to the end, or two, or one with two levels."""
    factor = np.ones(n)
    shape = rng.choice(["relieved", "to_the_end", "two", "two_levels"], p=[0.55, 0.15, 0.15, 0.15])
    if shape == "to_the_end":
        onset = int(rng.integers(_FIRST_ONSET, n - _LAST_ROOM))
        spans: list[tuple[int, int | None]] = [(onset, None)]
    elif shape == "two":
        # A gap of 600 healthy steps: faults nearer to each other may as well be taken for one.
        half = n // 2
        spans = []
        for first, last in ((_FIRST_ONSET, half - 300), (half + 300, n - _LAST_ROOM)):
            length = _length_of(rng, (last - first) // 2)
            onset = int(rng.integers(first, last - length))
            spans.append((onset, onset + length))
    else:
        length = _length_of(rng, n - _FIRST_ONSET - _LAST_ROOM - 1)
        if shape == "two_levels":
            length = max(length, 120)
        onset = int(rng.integers(_FIRST_ONSET, n - _LAST_ROOM - length))
        spans = [(onset, onset + length)]
    changes = []
    for onset, end in spans:
        slow = _factor_of(rng, noise)
        factor[onset:end] = slow
        if shape == "two_levels" and end is not None:
            second = int(rng.integers(onset + 60, end - 59))
            factor[second:end] = _factor_of(rng, noise)
        magnitude = float(factor[onset:end].mean()) - 1.0
        changes.append(TrueChange(kind="slow", onset=onset, end=end, magnitude=magnitude))
    return _Levels(factor, tuple(changes))


def _falcon_job(population: str, count: int, n_slow: int, mix: Mix) -> Callable[[int, int], StepSeries]:
    def make(seed: int, number: int) -> StepSeries:
        slow = np.random.default_rng([seed, *population.encode()]).choice(count, n_slow, replace=False)
        rng = _rng(seed, population, number)
        noise = mix.noise(rng)
        levels = _faults(rng, N_STEPS, noise) if number in slow else _Levels(np.ones(N_STEPS))
        return _series(rng, f"{population}/{number:03d}", noise, mix, levels)

    return make


def _drift(seed: int, number: int) -> StepSeries:
    """5 % slower over 500 steps, staying so."""
    rng = _rng(seed, "drift", number)
    mix = Mix(noisy=0.0)
    noise = mix.noise(rng)
    onset = int(rng.integers(1_000, N_STEPS - 3_000))
    ramp = np.clip((np.arange(N_STEPS) - onset) / 500.0, 0.0, 1.0)
    change = TrueChange(kind="slow", onset=onset, settled=onset + 500, magnitude=0.05)
    return _series(rng, f"drift/{number:03d}", noise, mix, _Levels(1.0 + 0.05 * ramp, (change,)))


def _speedup(seed: int, number: int) -> StepSeries:
    """From some step on 12 to 50 % faster: a change, never a fault."""
    rng = _rng(seed, "speedup", number)
    mix = Mix()
    noise = mix.noise(rng)
    onset = int(rng.integers(_FIRST_ONSET, N_STEPS - _LAST_ROOM))
    faster = 1.0 / (1.0 + rng.uniform(max(0.15, noise.smallest_change()), 1.0))
    factor = np.where(np.arange(N_STEPS) < onset, 1.0, faster)
    change = TrueChange(kind="change", onset=onset, magnitude=faster - 1.0)
    return _series(rng, f"speedup/{number:03d}", noise, mix, _Levels(factor, (change,)))


def _intermittent(seed: int, number: int) -> StepSeries:
    """For 1,500 to 4,000 steps, 3 to 20 % of the steps are slow, alone or in bursts of up to 5; the median is not."""
    rng = _rng(seed, "intermittent", number)
    mix = Mix(noisy=0.0, spiky=0.0, every_nth=0.0, alternating=0.0)
    noise = mix.noise(rng)
    length = int(rng.integers(1_500, 4_001))
    onset = int(rng.integers(1_000, N_STEPS - length))
    share, burst = rng.uniform(0.03, 0.20), int(rng.integers(1, 6))
    # Healthy steps between two bursts: at least as many as in one, and of random number, or it would be a pattern.
    mean_gap = burst * (1.0 / share - 1.0)
    gaps = burst + rng.geometric(1.0 / max(mean_gap - burst, 1.0), length)
    begins = onset + np.cumsum(gaps + burst) - burst
    steps = (begins[:, None] + np.arange(burst)).ravel()
    factor = np.ones(N_STEPS)
    least = max(1.3, math.exp(6.0 * noise.sd))
    factor[steps[steps < onset + length]] = rng.uniform(least, least + 1.0)
    magnitude = float(factor[onset : onset + length].mean()) - 1.0
    end = onset + length
    change = TrueChange(kind="intermittent", onset=onset, settled=end - 1, end=end, magnitude=magnitude)
    return _series(rng, f"intermittent/{number:03d}", noise, mix, _Levels(factor, (change,)))


def _schedule(seed: int, number: int) -> StepSeries:
    """A schedule of the job changes its step time two to five times; an earlier run had it too."""
    plan = _rng(seed, "schedule", number)
    mix = Mix(noisy=0.0)
    noise = mix.noise(plan)
    n_changes = int(plan.integers(2, 6))
    room = (N_STEPS - _FIRST_ONSET - _LAST_ROOM) // n_changes
    onsets = _FIRST_ONSET + room * np.arange(n_changes) + plan.integers(0, room // 2, n_changes)
    level, factor, changes = 1.0, np.ones(N_STEPS), []
    for onset, end in zip(onsets.tolist(), [*onsets[1:].tolist(), None], strict=True):
        ratio = 1.0 + plan.uniform(noise.smallest_change() + 0.03, 0.6)
        # Down again sooner or later, or the steps of a long schedule would grow without end.
        is_longer = level < 1.5 if level != 1.0 else plan.random() < 0.7
        is_longer = is_longer and plan.random() < 0.8
        level *= ratio if is_longer else 1.0 / ratio
        factor[onset:end] = level
        changes.append(
            TrueChange(kind="planned", onset=onset, end=end, magnitude=ratio - 1.0 if is_longer else 1.0 / ratio - 1.0)
        )
    levels = _Levels(factor, tuple(changes))
    base_s = math.exp(plan.uniform(math.log(0.1), math.log(20.0)))
    runs = [
        _series(_rng(seed, f"schedule run {run}", number), f"schedule/{number:03d}", noise, mix, levels, base_s=base_s)
        for run in range(2)
    ]
    return StepSeries(name=runs[1].name, log=runs[1].log, truth=runs[1].truth, noise=noise, earlier=(runs[0].log,))


def _batch_ramp(seed: int, number: int) -> StepSeries:
    """The batch grows in 3 to 8 stages and the step with it; the log names the batch size."""
    rng = _rng(seed, "batch_ramp", number)
    mix = Mix(noisy=0.0)
    noise = mix.noise(rng)
    n_stages, per_stage = int(rng.integers(3, 9)), int(rng.integers(200, 801))
    begins = _FIRST_ONSET + per_stage * np.arange(n_stages)
    stage = np.searchsorted(begins, np.arange(N_STEPS), side="right")
    batch = (256 * (1 + stage)).astype(np.float64)
    fixed = rng.uniform(0.05, 0.4)  # of the first step time, the share that does not grow with the batch
    factor = fixed + (1.0 - fixed) * batch / 256.0
    changes = tuple(
        TrueChange(
            kind="planned",
            onset=int(begin),
            end=int(begins[i + 1]) if i + 1 < n_stages else None,
            magnitude=float(factor[begin] / factor[begin - 1]) - 1.0,
            is_explained=True,
        )
        for i, begin in enumerate(begins)
    )
    return _series(
        rng,
        f"batch_ramp/{number:03d}",
        noise,
        mix,
        _Levels(factor, changes),
        work={"global_batch_size": batch},
    )


def _clean(seed: int, number: int) -> StepSeries:
    """Nothing is wrong, and every second job has a pattern; one in four has 3 to 6 % of jitter."""
    rng = _rng(seed, "clean", number)
    mix = Mix(noisy=0.25, checkpoint=0.2, evaluation=0.15, every_nth=0.1, alternating=0.1)
    return _series(rng, f"clean/{number:03d}", mix.noise(rng), mix, _Levels(np.ones(N_STEPS)))


def _delay(population: str, change: float) -> Callable[[int, int], StepSeries]:
    """A slowdown of 200 steps on a short series with jitter of 0.5 to 3 %, correlated by 0 to 0.8, and nothing else."""

    def make(seed: int, number: int) -> StepSeries:
        rng = _rng(seed, population, number)
        noise = Noise(sd=math.exp(rng.uniform(math.log(0.005), math.log(0.03))), correlation=rng.uniform(0.0, 0.8))
        onset = int(rng.integers(_FIRST_ONSET, 1_000))
        factor = np.ones(1_500)
        factor[onset : onset + 200] += change
        true = TrueChange(kind="slow", onset=onset, end=onset + 200, magnitude=change)
        return _series(rng, f"{population}/{number:03d}", noise, QUIET, _Levels(factor, (true,)))

    return make


def _young(seed: int, number: int) -> StepSeries:
    """A slowdown that begins 24 to 60 steps into the job, and lasts to its end; warm-up and pauses as elsewhere."""
    rng = _rng(seed, "young", number)
    mix = Mix()
    noise = mix.noise(rng)
    onset = int(rng.integers(24, 61))
    slow = _factor_of(rng, noise)
    factor = np.ones(260)
    factor[onset:] = slow
    change = TrueChange(kind="slow", onset=onset, magnitude=slow - 1.0)
    return _series(rng, f"young/{number:03d}", noise, mix, _Levels(factor, (change,)))


_ALL = (
    Population(
        name="one_node",
        count=392,
        make=_falcon_job("one_node", 392, 6, Mix()),
        about="As Falcon's table 4: 6 of 392 jobs are slow, by 12 % to 150 %, for 30 to 5,000 steps or to the end.",
    ),
    Population(
        name="four_node",
        count=107,
        make=_falcon_job("four_node", 107, 43, Mix(spiky=0.7, noisy=0.15)),
        about="As Falcon's table 5: 43 of 107 jobs are slow, in the same ways, with more jitter and more spikes.",
    ),
    Population(name="clean", count=100, make=_clean, about="Nothing is wrong; every second job has a pattern."),
    Population(name="drift", count=60, make=_drift, about="5 % slower over 500 steps, then staying so."),
    Population(name="speedup", count=40, make=_speedup, about="13 % to 50 % faster from some step on: no fault."),
    Population(
        name="intermittent",
        count=40,
        make=_intermittent,
        about="For 1,500 to 4,000 steps 3 % to 20 % of the steps are slow, singly or in bursts of up to 5.",
    ),
    Population(
        name="schedule",
        count=30,
        make=_schedule,
        about="A schedule changes the step time two to five times, and nothing in the log says so. No history given.",
    ),
    Population(
        name="batch_ramp",
        count=30,
        make=_batch_ramp,
        about="The batch grows in stages and the steps with it; the log names the batch size.",
    ),
    Population(
        name="delay_20",
        count=200,
        make=_delay("delay_20", 0.20),
        about="A plain slowdown of 20 % for 200 steps, jitter of 0.5 % to 3 %, correlations of 0 to 0.8.",
    ),
    Population(
        name="delay_12",
        count=200,
        make=_delay("delay_12", 0.12),
        about="A plain slowdown of 12 % for 200 steps, jitter of 0.5 % to 3 %, correlations of 0 to 0.8.",
    ),
    Population(
        name="young",
        count=200,
        make=_young,
        about="A slowdown of 12 % to 150 % that begins 24 to 60 steps into the job; most warm up for 10 to 30 steps.",
    ),
)

POPULATIONS: Mapping[str, Population] = {population.name: population for population in _ALL}
"""By name; `one_node` and `four_node` have the sizes of Falcon's tables 4 and 5."""
