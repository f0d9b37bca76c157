"""Jobs in which everything is drawn: layout, hosts, source, noise, what befalls them, and when.

The other suites have scenarios that rules were chosen on. Here a seed is a job that nobody has looked at.

>>> random_job(4) == random_job(4), random_job(4) == random_job(5)
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pacehound.model.topology import Layout
from pacehound.model.truth.causes import CauseTruth
from simulator.faults import EveryNth, ExitRank, Fault, RandomPauses, SlowCompute, SlowLink, StopRank
from simulator.source import (
    C10D_GLOO,
    COUNTS_ONLY,
    DEVICE_TIMES,
    FLIGHT_RECORDER,
    GRAPH_REPLAY,
    LAUNCH_ONLY,
    UNSEEN_EP,
    UNSEEN_TP,
    Source,
)
from simulator.spec import JobSpec
from simulator.suites.hang_scenarios import dead_device, dead_link, stopped, stuck, wrong_call
from simulator.suites.injection import Draw, Scenario
from simulator.suites.quiet_scenarios import gone_host, silent_agent, symmetric

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
    Layout(dp=32),
    Layout(tp=8, dp=4),
    Layout(dp=8, pp=4),
    Layout(tp=2, dp=8, pp=2),
    Layout(tp=4, dp=4, pp=4),
)

SEEN_ALL: tuple[Source, ...] = (C10D_GLOO, DEVICE_TIMES)
SEEN_LESS: tuple[Source, ...] = (LAUNCH_ONLY, FLIGHT_RECORDER, COUNTS_ONLY, GRAPH_REPLAY, UNSEEN_TP, UNSEEN_EP)
LESS = 0.25
"""Share of jobs of which not all is seen."""

ONSETS = (0, 3, 8, 12, 17, 22, 26, 35, 50)
"""Steps: from the start, within the first ones, and when a level is known."""

LASTS = (40, STEPS)
"""So many steps."""

TIMES_LONGER = (1.0, 3.0, 10.0)
"""What an iteration computes: small models, in which calls weigh as much, and larger ones."""

SUSPECT_AFTER_S = 3.0
"""`hang.suspect_after_s` for these jobs: they stand for `HANG_S` and no longer, to be simulated quickly."""
HANG_S = 30.0
MOST_DRAWS = 100
STALLS_S = (2.0, 8.0)
"""How long a rank is stopped that goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomJob:
    """One job, what befalls it and since when, and who is to blame; the truth says what its source must show."""

    kind: str
    onset: int
    spec: JobSpec
    truth: CauseTruth


def random_job(seed: int, kinds: Sequence[str] = ()) -> RandomJob:
    """The job of a seed, of some of the kinds only where they are given; a seed always gives the same one."""
    rng = np.random.default_rng(seed)
    names = list(kinds) or list(KINDS)
    for _ in range(MOST_DRAWS):
        base, kind, onset = _base(rng, seed), str(rng.choice(names)), int(rng.choice(ONSETS))
        struck = KINDS[kind](rng, base, onset, min(onset + int(rng.choice(LASTS)), STEPS))
        if struck is not None:
            return RandomJob(kind=kind, onset=onset, spec=struck[0], truth=struck[1])
    raise ValueError(f"{MOST_DRAWS} jobs of seed {seed} have no place for any of {', '.join(names)}")


def _base(rng: np.random.Generator, seed: int) -> JobSpec:
    """A job that nothing befalls."""
    layout = LAYOUTS[int(rng.integers(len(LAYOUTS)))]
    world = layout.world_size
    sources = SEEN_LESS if rng.random() < LESS else SEEN_ALL
    per_host = int(rng.choice([n for n in (1, 2, 4, 8) if world % n == 0]))
    return JobSpec(
        layout=layout,
        ranks_per_host=per_host,
        iterations=STEPS,
        micro_batches=int(rng.choice([2, 4, 8])),
        tp_calls=int(rng.choice([1, 2])),
        ep=int(rng.choice([1, 1, 2, 4])) if layout.dp % 4 == 0 else 1,
        is_sharded=bool(rng.random() < 0.2),
        overlaps=bool(rng.random() < 0.2),
        seed=seed,
        source=sources[int(rng.integers(len(sources)))],
        sequence_spread=float(rng.choice([0.0, 0.0, 0.2])),
        device_spread=float(rng.choice([0.0, 0.02])),
        wandering=float(rng.choice([0.0, 0.0, 0.03])),
        step_spread=float(rng.choice([0.0, 0.0, 0.0, 0.5])),
        spike_probability=float(rng.choice([0.0, 0.01])),
        spike_s=0.05,
        dropped_fraction=float(rng.choice([0.0, 0.0, 0.03])),
        clock_offsets_ms=tuple(rng.uniform(-20.0, 20.0, world // per_host).tolist()) if rng.random() < 0.3 else (),
        hang_s=HANG_S,
    ).with_longer_iterations(float(rng.choice(TIMES_LONGER)))


_Struck = tuple[JobSpec, CauseTruth]
_Kind = Callable[[np.random.Generator, JobSpec, int, int], _Struck | None]
"""Strikes a job from a step on, until another where it can: the job then, or nothing where that has no place in it."""


def _rank(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck:
    """A rank computes for longer."""
    rank = int(rng.integers(base.layout.world_size))
    return _with(base, _slow(rng, (rank,), onset, until)), CauseTruth(cause="S1", culprits=(rank,))


def _ranks(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck | None:
    """Two or three ranks do, alike."""
    most = min(base.layout.world_size // 2, 3)
    if most < 2:
        return None
    n = int(rng.integers(2, most + 1))
    ranks = tuple(sorted(rng.choice(base.layout.world_size, n, replace=False).tolist()))
    return _with(base, _slow(rng, ranks, onset, until)), CauseTruth(cause="S1", culprits=ranks)


def _host(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck | None:
    """All ranks of a host do."""
    if len(base.hosts) < 2:
        return None
    ranks = base.hosts[int(rng.integers(len(base.hosts)))]
    return _with(base, _slow(rng, ranks, onset, until)), CauseTruth(cause="S1", culprits=ranks)


def _slow(rng: np.random.Generator, ranks: tuple[int, ...], onset: int, until: int) -> SlowCompute:
    return SlowCompute(ranks=ranks, factor=float(rng.uniform(1.4, 2.5)), from_step=onset, to_step=until)


def _rank_beside_logs(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck:
    """A rank computes for longer, in a job in which rank 0 does something alone every few steps."""
    (logs,) = _logs(rng, base, onset, until)[0].faults
    slow, truth = _rank(rng, base, onset, until)
    return _with(slow, logs, *slow.faults), truth


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


def _stalls(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck:
    """A rank is stopped for some seconds."""
    rank = int(rng.integers(base.layout.world_size))
    stopped = StopRank(rank=rank, step=onset, resume_after_s=float(rng.uniform(*STALLS_S)))
    return _with(base, stopped), CauseTruth(cause="H1", culprits=(rank,))


def _exits(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck:
    """A rank leaves, and its peers hang or fail with it."""
    rank = int(rng.integers(base.layout.world_size))
    code, signal = (1, None) if rng.random() < 0.5 else (None, 9)
    fails_after_s = 1.0 if rng.random() < 0.5 else None
    gone = ExitRank(rank=rank, step=onset, exit_code=code, signal=signal, peers_fail_after_s=fails_after_s)
    return _ended(_with(base, gone), onset), CauseTruth(cause=None, culprits=(rank,))


def _as_in_suite(scenario: Scenario, *, ends: bool = True) -> _Kind:
    """What the suite of root causes puts in, from the first step at the earliest; it mostly ends the job."""

    def struck(rng: np.random.Generator, base: JobSpec, onset: int, until: int) -> _Struck | None:
        if onset == 0:
            return None
        injected = scenario(Draw(rng, replace(base, iterations=onset), base.dropped_fraction > 0.0))
        if injected is None:
            return None
        begun = _ended(base, onset) if ends else base
        spec = replace(begun, faults=injected.faults, **injected.changes)
        return spec, CauseTruth(
            cause=injected.cause,
            culprits=injected.culprits,
            links=injected.links,
            words=injected.mark.words,
            must_name=injected.mark.must_name,
        )

    return struck


def _with(base: JobSpec, *faults: Fault) -> JobSpec:
    return replace(base, faults=faults)


def _ended(base: JobSpec, onset: int) -> JobSpec:
    """The job ends in the step in which it is struck."""
    return replace(base, iterations=onset + 1)


KINDS: Mapping[str, _Kind] = {
    "rank": _rank,
    "ranks": _ranks,
    "host": _host,
    "rank beside logs": _rank_beside_logs,
    "link": _link,
    "logs": _logs,
    "pauses": _pauses,
    "nothing": _nothing,
    "stalls": _stalls,
    "exits": _exits,
    "stopped": _as_in_suite(stopped),
    "stuck": _as_in_suite(stuck),
    "wrong call": _as_in_suite(wrong_call),
    "dead link": _as_in_suite(dead_link),
    "dead device": _as_in_suite(dead_device),
    "symmetric": _as_in_suite(symmetric),
    "gone host": _as_in_suite(gone_host),
    "silent agent": _as_in_suite(silent_agent, ends=False),
}
