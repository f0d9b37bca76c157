"""Small jobs in which everything is drawn: layout, hosts, source, noise, what befalls them, and when.

The other suites have scenarios that rules were chosen on. Here a seed is a job that nobody has looked at.

>>> random_job(4) == random_job(4), random_job(4) == random_job(5)
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pacehound.model.topology import Layout
from pacehound.model.truth.causes import CauseTruth
from simulator.faults import EveryNth, Fault, RandomPauses, SlowCompute, SlowLink
from simulator.source import C10D_GLOO, DEVICE_TIMES
from simulator.spec import JobSpec

STEPS = 130

LAYOUTS = (
    Layout(dp=2),
    Layout(dp=4),
    Layout(dp=8),
    Layout(dp=16),
    Layout(pp=2),
    Layout(pp=4),
    Layout(tp=4),
    Layout(dp=2, pp=2),
    Layout(tp=2, dp=2),
    Layout(tp=2, pp=2),
    Layout(tp=2, dp=2, pp=2),
    Layout(dp=4, pp=2),
    Layout(tp=4, dp=2),
)

ONSETS = (0, 3, 8, 12, 17, 22, 26, 35, 50)
"""Steps: from the start, within the first ones, and when a level is known."""

LASTS = (40, STEPS)
"""So many steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomJob:
    """One job, what befalls it and since when, and who is to blame; `truth` says nowhere that it must be named."""

    kind: str
    onset: int
    spec: JobSpec
    truth: CauseTruth


def random_job(seed: int) -> RandomJob:
    """The job of a seed; a seed always gives the same one."""
    rng = np.random.default_rng(seed)
    layout = LAYOUTS[int(rng.integers(len(LAYOUTS)))]
    world = layout.world_size
    base = JobSpec(
        layout=layout,
        ranks_per_host=int(rng.choice([n for n in (1, 2, 4, 8) if world % n == 0])),
        iterations=STEPS,
        micro_batches=int(rng.choice([2, 4, 8])),
        tp_calls=int(rng.choice([1, 2])),
        seed=seed,
        source=(C10D_GLOO, DEVICE_TIMES)[int(rng.integers(2))],
        sequence_spread=float(rng.choice([0.0, 0.0, 0.2])),
        device_spread=float(rng.choice([0.0, 0.02])),
        wandering=float(rng.choice([0.0, 0.0, 0.03])),
        spike_probability=float(rng.choice([0.0, 0.01])),
        spike_s=0.05,
        dropped_fraction=float(rng.choice([0.0, 0.0, 0.03])),
    )
    kind = str(rng.choice(list(KINDS)))
    onset = int(rng.choice(ONSETS))
    spec, truth = KINDS[kind](rng, base, onset, min(onset + int(rng.choice(LASTS)), STEPS))
    return RandomJob(kind=kind, onset=onset, spec=spec, truth=truth)


_Struck = tuple[JobSpec, CauseTruth]


def _rank(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck:
    """A rank computes for longer."""
    rank = int(rng.integers(base.layout.world_size))
    slow = SlowCompute(ranks=(rank,), factor=float(rng.uniform(1.4, 2.5)), from_step=onset, to_step=until)
    return _with(base, slow), CauseTruth(cause="S1", culprits=(rank,))


def _link(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck:
    """A link over which something is sent has a part of its bandwidth left."""
    world, left = base.layout.world_size, float(rng.uniform(0.05, 0.5))
    pairs = [(a, b) for a in range(world) for b in range(world) if a != b]
    for at in rng.permutation(len(pairs)).tolist():
        slow = SlowLink(link=pairs[at], bandwidth_factor=left, from_step=onset, to_step=until)
        try:
            return _with(base, slow), CauseTruth(cause="S2", links=(pairs[at],))
        except ValueError:
            continue  # nothing is sent over it
    raise AssertionError("a job of two ranks and more sends something")


def _logs(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck:
    """Rank 0 does something alone, every few steps."""
    return _with(base, EveryNth(every_steps=int(rng.choice([5, 10])), extra_s=0.05, ranks=(0,))), CauseTruth()


def _pauses(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck:
    """All ranks pause now and then, from a step on."""
    pauses = RandomPauses(probability=float(rng.choice([0.02, 0.1])), extra_s=0.04, from_step=onset)
    return _with(base, pauses), CauseTruth()


def _nothing(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck:
    return base, CauseTruth()


def _with(base: JobSpec, fault: Fault) -> JobSpec:
    return replace(base, faults=(fault,))


KINDS: Mapping[str, Callable[[np.random.Generator, JobSpec, int, int], _Struck]] = {
    "rank": _rank,
    "link": _link,
    "logs": _logs,
    "pauses": _pauses,
    "nothing": _nothing,
}
