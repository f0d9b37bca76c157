"""Jobs with one cause each, and beforehand, per source, whether that cause must be named and by which word.

A mark follows from what the source can know (DESIGN sections 4 to 6); each carries its reason as a sentence. What must
not be named is right as `unknown` or `suspected`; an innocent is a culprit nowhere.

>>> case = next(cases("device times", 1))
>>> case.name, case.spec.layout.world_size >= 16
('clean', True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from pacehound.model.topology import Layout
from pacehound.model.truth.causes import CauseTruth
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
from simulator.suites.quiet_scenarios import clean, gone_host, hidden_lateness, pauses, silent_agent, symmetric
from simulator.suites.slow_scenarios import slow_both, slow_compute, slow_nvlink, slow_pair, slow_ring, slow_tree

SUSPECT_AFTER_S = 3.0
"""`hang.suspect_after_s` for these jobs: they hang for `HANG_S` and no longer, to be simulated quickly."""
HANG_S = 12.0
LARGE_HANG_S = 20.0
"""Ten iterations must fit in after a dump, too, before a hang is one: at 4,096 ranks they take four seconds."""

STEPS_BEFORE_HANG = (18, 26)
STEPS_BEFORE = (34, 40)
"""A job is quiet for so many steps; slowness then lasts for `STEPS_SLOW`: so many make a level, not an episode."""
STEPS_SLOW = 36
OFFSET_MS = 50.0
DROPPED = 0.05

_LAYOUTS = (
    Layout(dp=16),
    Layout(dp=8, pp=2),
    Layout(tp=2, dp=4, pp=2),
    Layout(tp=2, dp=8),
    Layout(tp=4, dp=2, pp=2),
    Layout(tp=4, dp=4, pp=2),
    Layout(tp=8, dp=4),
    Layout(tp=8, dp=2, pp=2),
    Layout(tp=2, dp=8, pp=4),
    Layout(tp=4, dp=4, pp=4),
    Layout(tp=4, dp=8, pp=2),
    Layout(tp=8, dp=8),
    Layout(tp=8, dp=4, pp=2),
)
_BY_SIZE = {
    16: (Layout(dp=16), Layout(dp=8, pp=2), Layout(tp=2, dp=8)),
    64: (Layout(tp=4, dp=8, pp=2), Layout(tp=8, dp=8), Layout(dp=16, pp=4)),
    512: (Layout(tp=8, dp=64), Layout(tp=8, dp=16, pp=4), Layout(tp=4, dp=32, pp=4)),
}
_LARGE = (Layout(tp=8, dp=64, pp=8), Layout(tp=4, dp=128, pp=8), Layout(tp=8, dp=128, pp=4))


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCauseCase:
    """One job and what must, and must not, be said of it."""

    name: str
    source: str  # the row of the scoreboard it counts in
    seed: int
    spec: JobSpec
    truth: CauseTruth  # what was injected, and whether the source shows enough to name it
    why: str  # the reason of that mark


SCENARIOS: Mapping[str, Scenario] = {
    "clean": clean,
    "slow computation": slow_compute,
    "stopped": stopped,
    "slow ring edge": slow_ring,
    "wrong call": wrong_call,
    "stuck": stuck,
    "slow pair": slow_pair,
    "dead link": dead_link,
    "dead device": dead_device,
    "slow both": slow_both,
    "symmetric hang": symmetric,
    "pauses": pauses,
    "slow tree edge": slow_tree,
    "slow NVLink": slow_nvlink,
    "silent agent": silent_agent,
    "gone host": gone_host,
    "hidden lateness": hidden_lateness,
}
"""By name; a seed takes the next one, so that every class comes up equally often."""

_SLOW = ("slow computation", "slow ring edge", "slow pair", "slow both", "slow tree edge", "slow NVLink")
_ONGOING = ("clean", "pauses", "silent agent", "hidden lateness")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One row of the scoreboard: a source, the jobs it is asked about, and what befalls them."""

    source: Source
    changes: Mapping[str, Any] = field(default_factory=dict)
    needs: Callable[[Layout], bool] = lambda layout: True


def _has_experts(layout: Layout) -> bool:
    return layout.dp % 4 == 0


SOURCES: Mapping[str, _Row] = {
    "c10d hooks, gloo": _Row(source=C10D_GLOO),
    "launch only": _Row(source=LAUNCH_ONLY),
    "device times": _Row(source=DEVICE_TIMES),
    "Flight Recorder": _Row(source=FLIGHT_RECORDER),
    "counts only": _Row(source=COUNTS_ONLY),
    "graph replay": _Row(source=GRAPH_REPLAY, needs=lambda layout: layout.tp > 1),
    "unseen library, tp": _Row(source=UNSEEN_TP, needs=lambda layout: layout.tp > 1),
    "unseen library, ep": _Row(source=UNSEEN_EP, changes={"ep": 4}, needs=_has_experts),
    "overlap": _Row(source=DEVICE_TIMES, changes={"overlaps": True}, needs=lambda layout: layout.dp > 1),
    "MoE": _Row(source=DEVICE_TIMES, changes={"ep": 4}, needs=_has_experts),
}
"""The rows of the scoreboard, by name."""


def cases(source: str, n: int, *, first_seed: int = 0) -> Iterator[RootCauseCase]:
    """The cases of `n` seeds of one row, at up to 64 ranks; a seed always gives the same one.

    Raises
    ------
    ValueError
        There is no such row.
    """
    if source not in SOURCES:
        raise ValueError(f"there is no source {source!r}; there are {', '.join(SOURCES)}")
    for seed in range(first_seed, first_seed + n):
        yield case_of(source, seed)


def case_of(source: str, seed: int, layouts: Sequence[Layout] = _LAYOUTS) -> RootCauseCase:
    """The case of one seed. Scenarios take turns; where a layout has no place for one, another layout is drawn."""
    row = SOURCES[source]
    names = list(SCENARIOS)
    fitting = [layout for layout in layouts if row.needs(layout)]
    for attempt in range(200):
        name = names[(seed + attempt // 20) % len(names)]
        # By the row's place: a string's hash differs between runs.
        rng = np.random.default_rng([seed, attempt, list(SOURCES).index(source)])
        layout = fitting[int(rng.integers(len(fitting)))]
        has_drops, has_offsets = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
        is_ongoing = name in _SLOW or name in _ONGOING
        base = _base(row, layout, seed, rng, STEPS_BEFORE if is_ongoing else STEPS_BEFORE_HANG)
        injected = SCENARIOS[name](Draw(rng, base, has_drops))
        if injected is None:
            continue
        offsets = rng.uniform(-OFFSET_MS, OFFSET_MS, len(base.hosts)) if has_offsets else ()
        spec = replace(
            base,
            iterations=base.iterations + (STEPS_SLOW if is_ongoing else 1),
            faults=injected.faults,
            clock_offsets_ms=tuple(float(offset) for offset in offsets),
            dropped_fraction=DROPPED if has_drops else 0.0,
            **injected.changes,
        )
        return RootCauseCase(
            name=name,
            source=source,
            seed=seed,
            spec=spec,
            truth=CauseTruth(
                cause=injected.cause,
                culprits=injected.culprits,
                links=injected.links,
                words=injected.mark.words,
                must_name=injected.mark.must_name,
            ),
            why=injected.mark.why,
        )
    raise ValueError(f"no layout has a place for {names[seed % len(names)]!r} in the row {source!r}")


def large_cases() -> Iterator[RootCauseCase]:
    """Eleven cases at 4,096 ranks: every class, by sources that show enough to name it, and two with nobody to name."""
    for index, (source, name) in enumerate(_AT_4096):
        case = next(_marked(source, name, _LARGE, 100_000 + 100 * index))
        yield replace(case, spec=replace(case.spec, hang_s=LARGE_HANG_S))


def link_cases(n: int) -> Iterator[tuple[int, RootCauseCase]]:
    """Slow edges of rings and of trees by device times, all to be named: the number of ranks, and `n` cases of each."""
    for n_ranks, layouts in _BY_SIZE.items():
        for name in ("slow ring edge", "slow tree edge"):
            for case in islice(_marked("device times", name, layouts, 200_000 + n_ranks), n):
                yield n_ranks, case


def _marked(source: str, name: str, layouts: Sequence[Layout], turn: int) -> Iterator[RootCauseCase]:
    """Cases of a scenario with the mark that is wanted, from that turn on: far from the seeds of small cases."""
    names = list(SCENARIOS)
    for seed in range(turn * len(names) + names.index(name), (turn + 1_000) * len(names), len(names)):
        case = case_of(source, seed, layouts)
        if case.name == name and case.truth.must_name == (name not in _NOBODYS):
            yield case


_NOBODYS = ("symmetric hang", "pauses")
_AT_4096 = (
    ("device times", "slow computation"),
    ("device times", "slow ring edge"),
    ("device times", "slow tree edge"),
    ("device times", "slow both"),
    ("device times", "stopped"),
    ("device times", "wrong call"),
    ("device times", "dead link"),
    ("Flight Recorder", "dead device"),
    ("counts only", "stuck"),
    ("device times", "symmetric hang"),
    ("MoE", "pauses"),
)


def _base(row: _Row, layout: Layout, seed: int, rng: np.random.Generator, before: tuple[int, int]) -> JobSpec:
    """A healthy job that has been quiet up to `iterations`, where a scenario begins."""
    return JobSpec(
        layout=layout,
        iterations=int(rng.integers(*before)),
        micro_batches=4 if layout.pp > 2 else int(rng.integers(2, 5)),
        tp_calls=1,
        seed=seed,
        forward_s=float(rng.uniform(0.004, 0.008)),
        jitter=float(rng.uniform(0.005, 0.02)),
        hang_s=HANG_S,
        source=row.source,
        job=f"{row.source.name} {seed}",
        **row.changes,
    )
