"""Hangs of one job: calls that do not end, or a job that does not go on, and the rank that did not come.

The evidence is progress: open calls with their age, and the time since each rank's counters last moved. A name needs
positive evidence: `culprit` is a rank whose process is stopped or gone; one that merely has not entered is
`suspected`, for it may be busy in a library that cannot be seen. Where all have entered, or wait in a cycle, nobody
is named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pacehound.events import (
    NEVER,
    Cause,
    Finding,
    HostSample,
    Instant,
    ProcessState,
    Progress,
    RankProgress,
    Topology,
    VerdictWord,
)
from pacehound.identity import event_id
from pacehound.settings import HangSettings
from streams.waits import WaitGraph, wait_graph

MIN_ITERATIONS = 10
"""A call is never suspected before this many iterations' time."""

SETUP_FACTOR = 4
"""In the first iterations (loading, compiling, lazy imports) everything may take this many times longer."""


@dataclass(slots=True)
class _Hang:
    finding: Finding
    ranks: frozenset[int]  # who waited when it was declared
    counters: dict[int, int]  # how far each of them was


class HangWatch:
    """Follows the progress of one job.

    Parameters
    ----------
    job, attempt
        Whose.
    settings
        When a stall is suspected, and when it wakes somebody.

    """

    def __init__(self, job: str, attempt: int, settings: HangSettings) -> None:
        self._job = job
        self._attempt = attempt
        self._settings = settings
        self._members: dict[str, tuple[int, ...]] = {}
        self._names: dict[str, str] = {}
        self._timeout_s: float | None = None
        self._progress: dict[str, dict[int, RankProgress]] = {}
        self._counters: dict[int, int] = {}
        self._advanced_ns: dict[int, int] = {}
        self._processes: dict[int, ProcessState] = {}
        self._hang: _Hang | None = None

    @property
    def is_hung(self) -> bool:
        """A hang is going on."""
        return self._hang is not None

    def ongoing(self, now_ns: int) -> dict[str, float]:
        """The hang that is going on: how long it has lasted in seconds, by the id of its finding."""
        if self._hang is None or self._hang.finding.onset is None:
            return {}
        return {self._hang.finding.id: max(0, now_ns - self._hang.finding.onset.time_ns) / 1e9}

    def on_topology(self, topology: Topology) -> None:
        """A communicator of the job."""
        self._members[topology.communicator] = topology.members
        self._names[topology.communicator] = topology.name
        if topology.timeout_s is not None:
            self._timeout_s = min(topology.timeout_s, self._timeout_s or topology.timeout_s)

    def on_host(self, sample: HostSample) -> None:
        """The processes of one host."""
        for process in sample.processes:
            self._processes[process.rank] = process

    def on_progress(self, progress: Progress, step: int | None) -> list[Finding]:
        """How far the ranks of one host are on one communicator; a hang ends when somebody who waited moves on."""
        known = self._progress.setdefault(progress.communicator, {})
        for theirs in progress.ranks:
            before = known.get(theirs.rank)
            known[theirs.rank] = theirs
            if before is None or _moved(before, theirs):
                self._counters[theirs.rank] = self._counters.get(theirs.rank, 0) + 1
                self._advanced_ns[theirs.rank] = progress.time_ns
        if progress.closed:
            for theirs in progress.ranks:
                known[theirs.rank] = replace(theirs, open=())
        hang = self._hang
        if hang is None:
            return []
        moved = [rank for rank in hang.ranks if self._counters.get(rank, 0) > hang.counters[rank]]
        if not moved or progress.closed:
            return []
        self._hang = None
        relief = Instant(step=step, time_ns=progress.time_ns)
        lasted_s = (progress.time_ns - hang.finding.onset.time_ns) / 1e9 if hang.finding.onset else 0.0
        sentence = f"ranks {_list(sorted(moved))} moved on after {lasted_s:.1f} s"
        finding = hang.finding
        return [replace(finding, relief=relief, version=finding.version + 1, evidence=(*finding.evidence, sentence))]

    def on_tick(
        self,
        now_ns: int,
        *,
        step: int | None,
        step_time_s: float,
        is_setup: bool,
        planned: bool,
        unseen: tuple[str, ...],
    ) -> list[Finding]:
        """Look at the open calls at a fixed multiple of event time.

        Parameters
        ----------
        now_ns
            Event time.
        step
            The last iteration that was finished; `None` before the first.
        step_time_s
            What an iteration takes; 0 when unknown.
        is_setup
            The job has yet to find its pace: limits are longer.
        planned
            A checkpoint or an evaluation is going on: limits are those of setup.
        unseen
            What could not be seen of the job so far.

        """
        limit_s = max(self._settings.suspect_after_s, MIN_ITERATIONS * step_time_s)
        if step is None or is_setup or planned:
            limit_s *= SETUP_FACTOR
        if self._hang is not None:
            return self._look_again(now_ns, unseen)
        before_ns = now_ns - round(limit_s * 1e9)
        graph = wait_graph(self._progress, self._members, before_ns)
        stuck = {rank for rank in graph.waiting if self._is_quiet(rank, before_ns)}
        # Whoever is waited for by somebody that goes on may be late, but does not hang.
        stuck = {rank for rank in stuck if all(self._is_quiet(other, before_ns) for other in graph.reached_from(rank))}
        quiet = bool(self._advanced_ns) and all(last_ns <= before_ns for last_ns in self._advanced_ns.values())
        is_leaving = any(process.state == "exited" for process in self._processes.values())
        if not stuck and (not quiet or is_leaving or step is None):
            return []
        # Without an open call it is a stall: nobody launches anything any more.
        ranks = frozenset(stuck or self._advanced_ns)
        finding = self._conclude(graph, now_ns, step, unseen)
        self._hang = _Hang(finding, ranks, {rank: self._counters.get(rank, 0) for rank in ranks})
        return [finding]

    def _is_quiet(self, rank: int, since_ns: int) -> bool:
        return self._advanced_ns.get(rank, 0) <= since_ns

    def _look_again(self, now_ns: int, unseen: tuple[str, ...]) -> list[Finding]:
        hang = self._hang
        assert hang is not None
        old = hang.finding
        graph = wait_graph(self._progress, self._members, now_ns - round(self._settings.suspect_after_s * 1e9))
        said_ns = old.detected.time_ns if old.detected else None
        new = self._conclude(graph, now_ns, old.onset.step if old.onset else None, unseen, said_ns=said_ns)
        better = _RANKING[new.verdict] > _RANKING[old.verdict]
        pages = old.pages or self._pages(old.onset.time_ns if old.onset else now_ns, now_ns)
        if better:
            hang.finding = replace(
                new, id=old.id, onset=old.onset, detected=old.detected, version=old.version + 1, pages=pages
            )
        elif pages != old.pages:
            hang.finding = replace(old, version=old.version + 1, pages=pages)
        else:
            return []
        return [hang.finding]

    def _conclude(
        self,
        graph: WaitGraph,
        now_ns: int,
        step: int | None,
        unseen: tuple[str, ...],
        *,
        said_ns: int | None = None,
    ) -> Finding:
        oldest = min(graph.waiting.values(), key=lambda w: (w.call.launch_ns, w.rank), default=None)
        if oldest is None:
            onset_ns, identity = max(self._advanced_ns.values(), default=now_ns), ("", -1)
            evidence: tuple[str, ...] = (f"no rank has launched a call for {(now_ns - onset_ns) / 1e9:.1f} s",)
        else:
            onset_ns, identity = oldest.call.launch_ns, (oldest.communicator, oldest.call.seq)
            name = self._names.get(oldest.communicator, oldest.communicator)
            waiting = sorted(rank for rank in graph.waiting)
            evidence = (
                f"ranks {_list(waiting)} wait, the longest since {(now_ns - onset_ns) / 1e9:.1f} s "
                f"in {oldest.call.op} {oldest.call.seq} of {name!r}",
            )
        named = self._name(graph, said_ns)
        return Finding(
            id=event_id("hang", self._job, self._attempt, *identity, step),
            job=self._job,
            attempt=self._attempt,
            kind="hang",
            verdict=named.verdict,
            cause=named.cause,
            culprits=named.culprits,
            candidates=named.candidates,
            victims=tuple(sorted(set(graph.waiting) - set(named.culprits))) if named.culprits else (),
            onset=Instant(step=step, time_ns=onset_ns),
            detected=Instant(step=step, time_ns=now_ns),
            lasting=True,
            pages=self._pages(onset_ns, now_ns),
            evidence=(*evidence, *named.evidence),
            unseen=(*named.unseen, *unseen),
        )

    def _name(self, graph: WaitGraph, said_ns: int | None) -> _Named:
        concerned = graph.roots | frozenset(graph.waiting) or frozenset(self._processes)
        halted = tuple(rank for rank in sorted(concerned) if self._is_halted(rank, said_ns))
        roots = tuple(sorted(graph.roots))
        if halted:
            cause: Cause = "H3" if set(halted) & set(graph.waiting) else "H1"
            sentences = tuple(_process_sentence(self._processes[rank]) for rank in halted)
            entered = tuple(f"rank {rank} has not entered" for rank in halted if rank in graph.roots)
            return _Named("culprit", cause, halted, (), (*entered, *sentences), ())
        if roots:
            running = [self._processes[rank].pid for rank in roots if rank in self._processes]
            reasons = [f"rank {rank} has not entered and waits in no call that can be seen" for rank in roots]
            unseen = ["what these ranks do instead: their stacks, and libraries other than torch.distributed"]
            if running:
                reasons.append(f"its process runs (pid {_list(running)})")
            else:
                unseen.append("the state of their processes: their host has not reported it")
            return _Named("suspected", "H1", roots, (), tuple(reasons), tuple(unseen))
        cycle = tuple(sorted(graph.in_cycle()))
        if cycle:
            mismatch = f"ranks {_list(cycle)} wait for each other: their calls are in a different order"
            return _Named("unknown", "H2", (), cycle, (mismatch,), ("which of them left the common order",))
        together = tuple(sorted(graph.together))
        if together:
            symmetric = "every member has launched the call and nobody has finished it"
            return _Named("unknown", "H3", (), together, (symmetric,), ("send and receive counts",))
        outside = "what the ranks do outside of calls (data loading, storage, a lock)"
        behind = self._behind()
        if len(behind) == 1:
            sentence = f"rank {behind[0]} has launched fewer calls than the other members of its communicators"
            return _Named("suspected", "H1", behind, (), (sentence,), (outside,))
        return _Named("unknown", None, (), behind or tuple(sorted(self._processes)), (), (outside,))

    def _is_halted(self, rank: int, said_ns: int | None) -> bool:
        """Stopped, or gone before the hang was said: whoever leaves a job that hangs already is not guilty of it."""
        process = self._processes.get(rank)
        if process is None or process.state not in _HALTED:
            return False
        return process.state == "stopped" or said_ns is None or process.since_ns <= said_ns

    def _behind(self) -> tuple[int, ...]:
        """Ranks that have launched less than a peer on some communicator.

        All that a source without ends can tell of a stall: the hosts of the others ran ahead and queued more. Where
        several are behind, some of them wait for another, and nothing says which.
        """
        behind: set[int] = set()
        for ranks in self._progress.values():
            furthest = max((theirs.last_launched for theirs in ranks.values()), default=NEVER)
            behind.update(rank for rank, theirs in ranks.items() if theirs.last_launched < furthest)
        return tuple(sorted(behind))

    def _pages(self, onset_ns: int, now_ns: int) -> bool:
        limit_s = self._settings.page_after_s
        if self._timeout_s is not None:
            limit_s = min(limit_s, self._timeout_s / 2)
        return (now_ns - onset_ns) / 1e9 >= limit_s


@dataclass(frozen=True, slots=True)
class _Named:
    verdict: VerdictWord
    cause: Cause | None
    culprits: tuple[int, ...]
    candidates: tuple[int, ...]
    evidence: tuple[str, ...]
    unseen: tuple[str, ...]


_RANKING = {"unknown": 0, "suspected": 1, "culprit": 2}
_HALTED = ("stopped", "exited")


def _moved(before: RankProgress, after: RankProgress) -> bool:
    return (
        before.last_launched != after.last_launched
        or before.last_completed != after.last_completed
        or {(c.seq, c.peer, c.direction) for c in before.open} != {(c.seq, c.peer, c.direction) for c in after.open}
    )


def _process_sentence(process: ProcessState) -> str:
    if process.state == "stopped":
        return f"the process of rank {process.rank} (pid {process.pid}) is stopped (SIGSTOP or a debugger)"
    how = "is gone"
    if process.signal is not None:
        how = f"was killed by signal {process.signal}"
    elif process.exit_code is not None:
        how = f"left with exit code {process.exit_code}"
    detail = f": {process.detail}" if process.detail else ""
    return f"the process of rank {process.rank} (pid {process.pid}) {how}{detail}"


def _list(numbers: list[int] | tuple[int, ...]) -> str:
    shown = ", ".join(str(number) for number in numbers[:8])
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"
