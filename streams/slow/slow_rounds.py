"""Slow rounds of single communicators, as CCL-D finds them (4.2.1): a cross-check, and what is left without iterations.

For each communicator, operation and size: `T_base` is the mean of the longest durations of the first
`m = min(100, rounds in two minutes)` rounds, and before that what `slow.base_times` sets, or what the fleet's history
says of that operation, size, shape and kind of host (equation 1: the paper's administrator sets it). Where the first
rounds are slow by such a base themselves, it stays the base: such a communicator is slow from the start. In each
window of one minute the round with the largest `T_max - T_min` over its ranks is taken, and

    R = (T_max - T_base) / T_base,        P = (T_max - T_min) / (T_max - T_base).

`R > theta` in repeated windows is slow. P near 1 says that a rank came late (computation), near 0 that the transfer
itself took long (communication), with 0.6 and 0.4 between them.

It names nobody: on its own P blames the victims of a pipeline, and data-parallel groups behind a slow
tensor-parallel one, and it explodes where T_max nears T_base. It is evidence beside a name that the critical path
gives, and it speaks for itself only where no iteration can be recognised. Barriers (an all_reduce of up to 4 bytes)
are left out. All durations are differences on one rank's clock.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pacehound.model.calls import OP_CODE, OPS
from pacehound.model.events import Finding, HostVitals, Instant, LearntRounds, UsualRounds
from pacehound.model.evidence.transfers import SlowRoundsOfKind
from pacehound.model.identity import event_id
from streams.rounds.round_table import RoundTable
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
from streams.spread import MAD_TO_SIGMA
from streams.watching.moment import Moment
from streams.watching.watch import Heard, Said, Watch

MAX_RATIOS = 60

COMPUTATION, COMMUNICATION = 0.6, 0.4

MAX_KINDS = 16
"""Sizes followed per communicator; where more come the first ones stay: they recur or nothing does."""

MAX_TOLD = 64
"""Kinds that the fleet is told of, per attempt."""

BARRIER_BYTES = 4
_ALL_REDUCE, _BARRIER = OP_CODE["all_reduce"], OP_CODE["barrier"]


@dataclass(frozen=True, slots=True)
class SlowRound:
    """The round that stands for a window: its ratio R, its P (`None` where it is not longer than the base)."""

    time_ns: int
    ratio: float
    p: float | None


@dataclass(slots=True)
class _Kind:
    """One operation and size on one communicator."""

    op: int
    size_bytes: int
    first_ns: int
    source: str = ""
    base: list[float] = field(default_factory=list)  # the longest duration of each of the first rounds
    base_ns: float | None = None
    is_learnt: bool = False
    is_told: bool = False
    given_by: Literal["", "set", "fleet"] = ""  # who said what `base_ns` is; empty: the first rounds
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
        return max(MIN_THETA, middle + SLOW_SIGMAS * MAD_TO_SIGMA * float(np.median(np.abs(ratios - middle))))


_Shape = tuple[str, int, str, int, int, str]
"""Operation, size, source, ranks, hosts, kind of host: what makes rounds of two jobs comparable."""


class SlowRounds(Watch):
    """Follows all communicators of a job.

    Parameters
    ----------
    job, attempt
        Of the job.
    set_ns
        What rounds take, by operation (its code) and size, where somebody has set that.

    """

    def __init__(self, job: str, attempt: int, set_ns: Mapping[tuple[int, int], float] | None = None) -> None:
        self._job = job
        self._attempt = attempt
        self._set_ns = dict(set_ns or {})
        self._usual_ns: dict[_Shape, float] = {}
        self._host_kinds: dict[str, str] = {}
        self._told: set[_Shape] = set()
        self._kinds: dict[str, dict[tuple[int, int], _Kind]] = {}
        self._findings: dict[str, Finding] = {}

    def on_history(self, usual: Sequence[UsualRounds]) -> None:
        """What rounds take in the fleet."""
        for one in usual:
            if 0 < one.longest_s < math.inf:
                shape = (one.op, one.size_bytes, one.source, one.n_ranks, one.n_hosts, one.host_kind)
                self._usual_ns[shape] = one.longest_s * 1e9

    def hear(self, event: Heard, step: int | None) -> list[Finding]:
        """A host says what it is."""
        if isinstance(event, HostVitals) and (kind := kind_of_host(event)):
            self._host_kinds[event.host] = kind
        return []

    def on_rounds(self, arrived: RoundTable) -> None:
        """Take in rounds; those of pairs, and without starts and ends, say nothing here."""
        for rounds, of_kinds in arrived.transfers:
            kinds = self._kinds.setdefault(rounds.communicator, {})
            for one in of_kinds:
                key, lines = (one.op, one.size_bytes), one.lines
                is_barrier = one.op == _BARRIER or (one.op == _ALL_REDUCE and one.size_bytes <= BARRIER_BYTES)
                if is_barrier or (key not in kinds and len(kinds) >= MAX_KINDS):
                    continue
                columns = (arrived.times_ns, arrived.longest_ns, arrived.shortest_ns)
                times_ns, longest, shortest = (column[lines] for column in columns)
                is_usable = arrived.n_seen[lines] >= 2
                if not is_usable.all():
                    times_ns, longest, shortest = times_ns[is_usable], longest[is_usable], shortest[is_usable]
                if not len(times_ns):
                    continue
                kind = kinds.get(key)
                if kind is None:
                    kind = kinds[key] = _Kind(*key, int(times_ns[0]), rounds.source)
                    if set_ns := self._set_ns.get(key):
                        kind.base_ns, kind.given_by = set_ns, "set"
                _follow(kind, times_ns, longest.astype(np.float64), shortest.astype(np.float64))

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
        findings: list[Said] = self._compared_with_fleet(moment)
        has_iterations = moment.n_iterations > 0
        if has_iterations and not self._findings:
            return findings
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

    def _compared_with_fleet(self, moment: Moment) -> list[Said]:
        """Give kinds that are still learnt what is usual in the fleet, and tell the fleet of those that are."""
        learnt: dict[_Shape, list[float]] = {}
        if not self._host_kinds:
            return []  # rounds of unknown hosts compare with none
        for communicator, kinds in self._kinds.items():
            asking = [
                kind
                for kind in kinds.values()
                if not kind.is_told and (kind.is_learnt or (self._usual_ns and not kind.given_by))
            ]
            if not asking or (where := self._where(communicator, moment)) is None:
                continue
            for kind in asking:
                shape = (OPS[kind.op], kind.size_bytes, kind.source, *where)
                if not kind.is_learnt:
                    if usual_ns := self._usual_ns.get(shape):
                        kind.base_ns, kind.given_by = usual_ns, "fleet"
                    continue
                kind.is_told = True
                # What is slow by what was given is not what is usual.
                if not kind.given_by and kind.base_ns and shape not in self._told:
                    learnt.setdefault(shape, []).append(kind.base_ns)
        said: list[Said] = []
        for shape, bases_ns in learnt.items():
            if len(self._told) >= MAX_TOLD:
                break
            self._told.add(shape)
            op, size_bytes, source, n_ranks, n_hosts, host_kind = shape
            said.append(
                LearntRounds(
                    job=self._job,
                    attempt=self._attempt,
                    time_ns=moment.now_ns,
                    op=op,
                    size_bytes=size_bytes,
                    source=source,
                    n_ranks=n_ranks,
                    n_hosts=n_hosts,
                    host_kind=host_kind,
                    longest_s=statistics.median(bases_ns) / 1e9,
                )
            )
        return said

    def _where(self, communicator: str, moment: Moment) -> tuple[int, int, str] | None:
        """Ranks, hosts and the kind of all of these hosts; `None` where not all are known to be of one kind."""
        _, members = moment.communicators.get(communicator, ("", ()))
        hosts = {moment.host_of.get(rank, "") for rank in members}
        kinds = {self._host_kinds.get(host, "") for host in hosts}
        if len(kinds) != 1 or "" in kinds:
            return None
        return len(members), len(hosts), next(iter(kinds))

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


def kind_of_host(vitals: HostVitals) -> str:
    """What a host is, as far as it decides how long transfers take; empty where it has not said.

    >>> from pacehound.model.events import GpuReading
    >>> gpus = tuple(GpuReading(uuid=str(i), index=i, model="NVIDIA H20") for i in range(8))
    >>> kind_of_host(HostVitals(job="j", attempt=0, time_ns=1, host="h", gpus=gpus))
    '8 x NVIDIA H20'
    """
    models = sorted({gpu.model for gpu in vitals.gpus})
    if models:
        return f"{len(vitals.gpus)} x {', '.join(models)}" if all(models) else ""
    return f"{vitals.processors.count} processors" if vitals.processors is not None else ""


def _follow(kind: _Kind, times_ns: np.ndarray, longest: np.ndarray, shortest: np.ndarray) -> None:
    """The next rounds of one kind, in order."""
    skipped = 0
    if not kind.is_learnt:
        within = int(np.searchsorted(times_ns, kind.first_ns + BASE_NS))
        learnt = min(within, BASE_ROUNDS - len(kind.base))
        kind.base += longest[:learnt].tolist()
        skipped = 0 if kind.given_by else learnt
        if len(kind.base) >= BASE_ROUNDS or within < len(times_ns):
            _learn(kind)
        elif not kind.given_by:
            return
    if skipped == len(times_ns):
        return
    windows = times_ns // SLOW_WINDOW_NS
    ranges = longest - shortest
    is_one_window = bool((windows[skipped:] == windows[-1]).all())  # a minute, as nearly always
    for window in windows[-1:].tolist() if is_one_window else np.unique(windows[skipped:]).tolist():
        inside = np.arange(skipped, len(windows)) if is_one_window else np.flatnonzero(windows == window)
        inside = inside[inside >= skipped]
        if window > kind.window:
            _close(kind)
            kind.window, kind.widest = window, (-1.0, 0.0, 0)
        widest = inside[int(ranges[inside].argmax())]
        if ranges[widest] > kind.widest[0]:
            kind.widest = (float(ranges[widest]), float(longest[widest]), int(times_ns[widest]))


def _learn(kind: _Kind) -> None:
    """The first rounds are the base from now on, unless they are slow by the one that was given."""
    learnt_ns, kind.base, kind.is_learnt = float(np.mean(kind.base)), [], True
    if kind.given_by and kind.base_ns and learnt_ns > (1 + THETA) * kind.base_ns:
        return
    kind.base_ns, kind.given_by, kind.ratios = learnt_ns, "", []


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
        communicator=communicator,
        op=OPS[kind.op],
        size_bytes=kind.size_bytes,
        ratio=kind.last.ratio,
        p=p,
        what=what,
        base=kind.given_by,
    )
