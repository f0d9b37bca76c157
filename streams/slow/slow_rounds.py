"""Slow rounds of single communicators, as CCL-D finds them (4.2.1): a cross-check, and what is left without iterations.

For each communicator, operation and size: `T_base` is the mean of the longest durations of the first
`m = min(100, rounds in two minutes)` rounds. In each window of one minute the round with the largest
`T_max - T_min` over its ranks is taken, and

    R = (T_max - T_base) / T_base,        P = (T_max - T_min) / (T_max - T_base).

`R > theta` in repeated windows is slow. P near 1 says that a rank came late (computation), near 0 that the transfer
itself took long (communication), with 0.6 and 0.4 between them.

It names nobody: on its own P blames the victims of a pipeline, and data-parallel groups behind a slow
tensor-parallel one, and it explodes where T_max nears T_base. It is evidence beside a name that the critical path
gives, and it speaks for itself only where no iteration can be recognised. Barriers (an all_reduce of up to 4 bytes)
are left out. All durations are differences on one rank's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pacehound.model.calls import OP_CODE, OPS, Sees
from pacehound.model.events import Finding, Instant
from pacehound.model.evidence.transfers import SlowRoundsOfKind
from pacehound.model.identity import event_id
from pacehound.model.rounds import Rounds
from streams.slow.thresholds import (
    BASE_NS,
    BASE_ROUNDS,
    LEARNT_FROM,
    MIN_THETA,
    REPEATED,
    SLOW_SIGMAS,
    SLOW_WINDOW_NS,
    THETA,
)
from streams.watching.moment import Moment
from streams.watching.watch import Said, Watch

MAX_RATIOS = 60

COMPUTATION, COMMUNICATION = 0.6, 0.4

MAX_KINDS = 16
"""Sizes followed per communicator; where more come the first ones stay: they recur or nothing does."""

BARRIER_BYTES = 4
_ALL_REDUCE, _BARRIER = OP_CODE["all_reduce"], OP_CODE["barrier"]


@dataclass(frozen=True, slots=True)
class SlowRound:
    """The round that stands for a window: its ratio R, its P (`None` where it is not longer than the base)."""

    time_ns: int
    ratio: float
    p: float | None


_SIZE_BITS = 56
_LARGEST_SIZE = (1 << _SIZE_BITS) - 1


@dataclass(slots=True)
class _Kind:
    """One operation and size on one communicator."""

    op: int
    size_bytes: int
    first_ns: int
    base: list[float] = field(default_factory=list)  # the longest duration of each of the first rounds
    base_ns: float | None = None
    window: int = -1
    widest: tuple[float, float, int] = (-1.0, 0.0, 0)  # range, longest, time
    ratios: list[float] = field(default_factory=list)
    hits: int = 0
    last: SlowRound | None = None
    since_ns: int = 0

    @property
    def theta(self) -> float:
        """Above this a window is slow: what its quiet windows reach, and then some."""
        if len(self.ratios) < LEARNT_FROM:
            return THETA
        ratios = np.array(self.ratios)
        middle = float(np.median(ratios))
        return max(MIN_THETA, middle + SLOW_SIGMAS * 1.4826 * float(np.median(np.abs(ratios - middle))))


class SlowRounds(Watch):
    """Follows all communicators of a job."""

    def __init__(self, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._kinds: dict[str, dict[tuple[int, int], _Kind]] = {}
        self._findings: dict[str, Finding] = {}

    def on_rounds(self, rounds: Rounds) -> None:
        """Take in rounds; those of pairs, and without starts and ends, say nothing here."""
        if rounds.is_pair or not (Sees.START in rounds.sees and Sees.END in rounds.sees) or not len(rounds):
            return
        is_barrier = (rounds.op == _BARRIER) | ((rounds.op == _ALL_REDUCE) & (rounds.size_bytes <= BARRIER_BYTES))
        start = np.where(rounds.start_ns > 0, rounds.start_ns, rounds.arrival_ns)
        seen = (rounds.end_ns > 0) & (start > 0)
        durations = np.where(seen, rounds.end_ns - start, 0)
        longest = durations.max(axis=1)
        shortest = np.where(seen, durations, np.iinfo(np.int64).max).min(axis=1)
        usable = ~is_barrier & (seen.sum(axis=1) >= 2)
        kinds = self._kinds.setdefault(rounds.communicator, {})
        times_ns = rounds.times_ns
        # Operation and size as one number, which is sorted many times as fast as rows of two.
        labels = rounds.op.astype(np.int64) << _SIZE_BITS | np.minimum(rounds.size_bytes, _LARGEST_SIZE)
        for label in np.unique(labels[usable]).tolist():
            op, size_bytes = label >> _SIZE_BITS, label & _LARGEST_SIZE
            if (op, size_bytes) not in kinds and len(kinds) >= MAX_KINDS:
                continue
            mine = np.flatnonzero(usable & (labels == label))
            kind = kinds.setdefault((op, size_bytes), _Kind(op, size_bytes, int(times_ns[mine[0]])))
            _follow(kind, times_ns[mine], longest[mine].astype(np.float64), shortest[mine].astype(np.float64))

    def of_communicator(self, communicator: str) -> SlowRoundsOfKind | None:
        """The slowest kind of rounds of a communicator; nothing where none is slow."""
        worst = self._worst(communicator)
        return None if worst is None else _evidence(worst)

    def rank_came_late(self, communicator: str) -> bool:
        """Whether a rank that came late is why the slowest rounds of a communicator are slow, by their P."""
        worst = self._worst(communicator)
        return worst is not None and worst.last is not None and (worst.last.p or 0.0) > COMPUTATION

    def _worst(self, communicator: str) -> _Kind | None:
        slow = [kind for kind in self._kinds.get(communicator, {}).values() if kind.hits and kind.last is not None]
        return max(slow, key=lambda kind: kind.last.ratio if kind.last else 0.0, default=None)

    def on_tick(self, moment: Moment) -> list[Said]:
        """Findings about communicators that are slow again and again, where there are no iterations to judge by."""
        findings: list[Said] = []
        has_iterations = moment.n_iterations > 0
        for communicator, kinds in sorted(self._kinds.items()):
            known = self._findings.get(communicator)
            slow = [kind for kind in kinds.values() if kind.hits >= REPEATED and kind.last is not None]
            if known is None and slow and not has_iterations:
                worst = max(slow, key=lambda kind: kind.last.ratio if kind.last else 0.0)
                self._findings[communicator] = self._finding(worst, communicator, moment)
                findings.append(self._findings[communicator])
            elif known is not None and (has_iterations or all(kind.hits == 0 for kind in kinds.values())):
                findings.append(known.next_version(relief=Instant(step=None, time_ns=moment.now_ns)))
                del self._findings[communicator]
        return findings

    def _finding(self, kind: _Kind, communicator: str, moment: Moment) -> Finding:
        name, members = moment.communicators.get(communicator, (communicator, ()))
        return Finding(
            id=event_id("finding", self._job, self._attempt, "slow rounds", communicator, kind.since_ns),
            job=self._job,
            attempt=self._attempt,
            kind="slow",
            verdict="unknown",
            cause=None,
            candidates=members,
            onset=Instant(step=None, time_ns=kind.since_ns),
            detected=Instant(step=None, time_ns=moment.now_ns),
            lasting=True,
            pages=True,
            evidence=(_evidence(kind, name),),
            unseen=("no iteration can be recognised in this job: by how much it is slower, and whose delay it is",),
        )


def _follow(kind: _Kind, times_ns: np.ndarray, longest: np.ndarray, shortest: np.ndarray) -> None:
    """The next rounds of one kind, in order."""
    learnt = 0
    if kind.base_ns is None:
        within = int(np.searchsorted(times_ns, kind.first_ns + BASE_NS))
        learnt = min(within, BASE_ROUNDS - len(kind.base))
        kind.base += longest[:learnt].tolist()
        if len(kind.base) < BASE_ROUNDS and within == len(times_ns):
            return
        kind.base_ns, kind.base = float(np.mean(kind.base)), []
    windows = times_ns // SLOW_WINDOW_NS
    ranges = longest - shortest
    for window in np.unique(windows[learnt:]).tolist():
        inside = np.flatnonzero(windows == window)
        inside = inside[inside >= learnt]
        if window > kind.window:
            _close(kind)
            kind.window, kind.widest = window, (-1.0, 0.0, 0)
        widest = inside[int(ranges[inside].argmax())]
        if ranges[widest] > kind.widest[0]:
            kind.widest = (float(ranges[widest]), float(longest[widest]), int(times_ns[widest]))


def _close(kind: _Kind) -> None:
    """A window is over."""
    spread_ns, longest_ns, time_ns = kind.widest
    if spread_ns < 0 or not kind.base_ns:
        return
    ratio = (longest_ns - kind.base_ns) / kind.base_ns
    if ratio > kind.theta:
        if kind.hits == 0:
            kind.since_ns = time_ns
        kind.hits = min(kind.hits + 1, 2 * REPEATED)
        kind.last = SlowRound(time_ns, ratio, min(spread_ns / (longest_ns - kind.base_ns), 1.0))
        return
    kind.hits = max(kind.hits - 1, 0)
    kind.ratios = [*kind.ratios[-MAX_RATIOS + 1 :], ratio]


def _evidence(kind: _Kind, communicator: str = "") -> SlowRoundsOfKind:
    assert kind.last is not None
    p = kind.last.p
    what: Literal["", "transfer", "both", "rank"] = ""
    if p is not None:
        what = "transfer" if p < COMMUNICATION else "rank" if p > COMPUTATION else "both"
    return SlowRoundsOfKind(
        communicator=communicator, op=OPS[kind.op], size_bytes=kind.size_bytes, ratio=kind.last.ratio, p=p, what=what
    )
