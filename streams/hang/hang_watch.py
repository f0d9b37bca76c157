"""Hangs of one job: calls that do not end, or a job that does not go on; when it is said, and for how long it lasts.

The evidence is progress: open calls with their age, and the time since each rank's counters last moved. Whose fault it
is is decided in `root_cause`, again and again while the hang lasts, for evidence comes in late: a stack, an exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.events import (
    CHECKPOINT_END,
    SURENESS,
    CallSignature,
    Finding,
    HostEvidence,
    HostSample,
    HostVitals,
    Instant,
    Markers,
    Progress,
    SignatureMismatch,
    Topology,
)
from pacehound.model.evidence import Evidence, merged
from pacehound.model.evidence.waiting import MovedOn, NoCalls, Waiting
from pacehound.model.identity import event_id
from pacehound.settings import HangSettings
from streams.hang.finding_notes import case_notes, drain_proposal
from streams.hang.host_reports import HostReports
from streams.hang.mismatch import mismatch
from streams.hang.observations import HangObservations, RootCause
from streams.hang.rank_moves import RankMoves
from streams.hang.rank_progress import ProgressTable
from streams.hang.root_cause import root_cause
from streams.hang.thresholds import (
    CURRENT_NS,
    MIN_ITERATIONS,
    MISMATCH_MATTERS_NS,
    SETTLE_NS,
    SETUP_FACTOR,
    STANDSTILL_S,
    SURVIVED_FACTOR,
)
from streams.hang.wait_graph import WaitGraph, open_for, wait_graph
from streams.hang.wording import call_of, waits_of
from streams.rounds.divergence import LastIterations
from streams.rounds.round_table import RoundTable
from streams.rounds.signatures import usually_equal_op_of
from streams.watching.moment import Moment
from streams.watching.waking import hang_wakes
from streams.watching.watch import Heard, Said, Watch

Int64Array = npt.NDArray[np.int64]
_AskIterations = Callable[[], LastIterations | None]

MAX_MISMATCHES = 16
"""Kept per communicator: what matters is the first one."""


@dataclass(slots=True)
class _Hang:
    finding: Finding
    found: RootCause
    ranks: tuple[int, ...]  # who waited when it was declared
    counters: Int64Array  # how far each of them was


@dataclass(frozen=True, slots=True)
class _Standstill:
    """What a hang would be that has not lasted long enough to be called one.

    `over_ns`: when all its ranks were first seen to have gone on.
    """

    found: RootCause
    ranks: list[int]
    counters: Int64Array
    over_ns: int | None = None


class HangWatch(Watch):
    """Follows the progress of one job."""

    def __init__(self, job: str, attempt: int, settings: HangSettings) -> None:
        self._job = job
        self._attempt = attempt
        self._settings = settings
        self._timeout_s: float | None = None
        self._table = ProgressTable()
        self._moves = RankMoves()
        self._mismatches: dict[str, dict[int, SignatureMismatch]] = {}
        self._survived_s = 0.0
        self._world = ""
        self._has_closed = False  # a rank has left the world communicator: the job comes to its end
        self._hang: _Hang | None = None
        self._standstill: _Standstill | None = None
        self.host_reports = HostReports()
        self._checkpoint_ns: int | None = None  # when the last one ended

    def __getstate__(self) -> dict[str, Any]:
        """With the columns of the moves instead of them."""
        state = {name: value for name, value in self.__dict__.items() if name != "_moves"}
        return state | {"_counters": self._moves.counters, "_advanced_ns": self._moves.advanced_ns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Columns of moves that do not fit together are refused (`ValueError`)."""
        columns = ("_counters", "_advanced_ns")
        self.__dict__.update({name: value for name, value in state.items() if name not in columns})
        self._moves = RankMoves(*(state[name] for name in columns))

    @property
    def is_hung(self) -> bool:
        """A hang is going on."""
        return self._hang is not None

    def ongoing(self, now_ns: int) -> dict[str, float]:
        """The hang that is going on: how long it has lasted in seconds, by the id of its finding."""
        if self._hang is None or self._hang.finding.onset is None:
            return {}
        return {self._hang.finding.id: max(0, now_ns - self._hang.finding.onset.time_ns) / 1e9}

    def excess_s(self, finding: Finding, now_ns: int) -> float:
        """How long it has held everybody up."""
        if finding.onset is None:
            return 0.0
        return ((now_ns if finding.relief is None else finding.relief.time_ns) - finding.onset.time_ns) / 1e9

    def replaying_ranks(self) -> frozenset[int]:
        """Ranks that share a communicator whose calls went into a CUDA graph."""
        if not self._table.blind:
            return frozenset()
        sequences = (c for c in self._table.sequences if c.communicator in self._table.blind)
        return frozenset(rank for sequence in sequences if len(sequence.ranks) > 1 for rank in sequence.ranks)

    def on_rounds(self, arrived: RoundTable) -> None:
        """Whose calls have ended has moved: how far ranks are that go on is said now and then."""
        if not arrived.blocks and not arrived.pairs:
            return
        of_blocks = np.fromiter(chain.from_iterable(block.ranks for block in arrived.blocks), np.int64)
        ranks = np.concatenate([of_blocks, *(pairs.ranks.reshape(-1) for pairs in arrived.pairs)])
        ends_ns = [block.end_ns.max(axis=0) for block in arrived.blocks]
        ends_ns += [pairs.end_ns.reshape(-1) for pairs in arrived.pairs]
        self.host_reports.forget_stacks(self._moves.have_moved_by(ranks, np.concatenate(ends_ns)))

    def hear(self, event: Heard, step: int | None) -> list[Finding]:
        """How far ranks are, what their hosts say of them, and where they have met with different calls."""
        match event:
            case Progress():
                return self._on_progress(event, step)
            case Topology():
                self._on_topology(event)
            case HostSample():
                self.host_reports.on_sample(event)
            case HostVitals():
                self.host_reports.on_vitals(event)
            case HostEvidence():
                time_ns = event.time_ns
                self.host_reports.on_evidence(event, lambda rank: self._moves.is_later(rank, time_ns))
            case SignatureMismatch():
                self._on_mismatch(event)
            case Markers():
                for name, time_ns in zip(event.names, event.times_ns, strict=True):
                    if name == CHECKPOINT_END:
                        self._checkpoint_ns = max(self._checkpoint_ns or 0, time_ns)
            case _:
                pass
        return []

    def _on_topology(self, topology: Topology) -> None:
        self._table.on_topology(topology)
        if topology.is_world:
            self._world, self._has_closed = topology.communicator, False
        for rank in topology.host_ranks:
            self.host_reports.host_of[rank] = topology.host
        if topology.timeout_s is not None:
            self._timeout_s = min(topology.timeout_s, self._timeout_s or topology.timeout_s)

    def _on_mismatch(self, met: SignatureMismatch) -> None:
        known = self._mismatches.setdefault(met.communicator, {})
        if any(met.time_ns - before.time_ns > MISMATCH_MATTERS_NS for before in known.values()):
            known.clear()  # they did no harm
        if met.seq in known or len(known) < MAX_MISMATCHES:
            known[met.seq] = met

    def mismatches(self, since_ns: int | None = None) -> Mapping[tuple[str, int], Mapping[int, CallSignature]]:
        """The first mismatches of each communicator: those since a time, or all that may hold somebody up.

        An all_gather of sizes that differ does not when all have completed it.
        """
        return {
            (communicator, seq): dict(found.called)
            for communicator, rounds in self._mismatches.items()
            for seq, found in rounds.items()
            if (self._may_hold_up(found) if since_ns is None else since_ns <= found.time_ns)
        }

    def _may_hold_up(self, met: SignatureMismatch) -> bool:
        called = dict(met.called)
        is_of_sizes = bool(usually_equal_op_of(called.values()))
        return not (is_of_sizes and self._table.have_completed(met.communicator, called, met.seq))

    def _on_progress(self, progress: Progress, step: int | None) -> list[Finding]:
        """How far the ranks of one host are on one communicator; a hang ends when somebody who waited moves on."""
        self.host_reports.on_dropped(progress.host, progress.dropped_total)
        if progress.closed and progress.communicator == self._world:
            self._has_closed = True
        moved = self._table.on_progress(progress)
        if not moved:
            return []
        self._moves.have_moved(moved, progress.time_ns)
        self.host_reports.forget_stacks(moved)
        hang = self._hang
        if hang is None or progress.closed:
            return []
        went_on = tuple(self._moves.moved_since(hang.ranks, hang.counters))
        if not went_on:
            return []
        self._hang = None
        self.host_reports.forget_all_stacks()
        relief = Instant(step=step, time_ns=progress.time_ns)
        lasted_s = (progress.time_ns - hang.finding.onset.time_ns) / 1e9 if hang.finding.onset else 0.0
        if hang.finding.verdict == "unknown":
            self._survived_s = max(self._survived_s, lasted_s)
        return [hang.finding.next_version(MovedOn(ranks=went_on, after_s=lasted_s), relief=relief)]

    def on_tick(self, moment: Moment) -> list[Said]:
        """Look at the open calls.

        Limits are longer until the first step has finished, while the job has yet to find its pace, and while a pause
        is planned.
        """
        self.host_reports.silent = frozenset(moment.silent_since_ns)
        now_ns, step, finished_ns = moment.now_ns, moment.step, moment.finished_ns
        iterations = moment.last_iterations  # of thousands of ranks they take time, and are seldom asked for
        pace_s = moment.step_time_s or moment.recurring_s
        limit_s = max(self._settings.suspect_after_s, MIN_ITERATIONS * pace_s)
        has_no_pace = not moment.recurring_s and (step is None or moment.n_iterations < MIN_ITERATIONS)
        if has_no_pace or moment.is_paused:
            limit_s *= SETUP_FACTOR
        limit_s = max(limit_s, min(SURVIVED_FACTOR * self._survived_s, self._settings.page_after_s))
        if self._hang is not None:
            return list(self._look_again(now_ns, moment.unseen(), iterations))
        standstill_s = min(limit_s, max(STANDSTILL_S, MIN_ITERATIONS * pace_s))
        since_ns = max(finished_ns, now_ns - CURRENT_NS)
        self._note_standstill(now_ns, standstill_s, since_ns, iterations)
        open_for_ns = round(limit_s * 1e9)
        before_ns = now_ns - open_for_ns
        stuck = self._stuck(open_for_ns, before_ns, since_ns)
        n_exited = len(self.host_reports.exited(None))
        if 2 * n_exited > len(self.host_reports.processes) or moment.is_host_late:
            return []  # a job that is being ended has nobody left to wait for
        has_moved = self._moves.advanced_ns > 0
        quiet = bool(has_moved.any()) and max(int(self._moves.advanced_ns.max()), finished_ns) <= before_ns
        # Somebody has to have said of late that it stands, and not only once before that it still moved.
        quiet &= int(self._table.column("reported_ns").max(initial=0)) >= max(now_ns - CURRENT_NS, before_ns)
        is_leaving = n_exited > 0 or self._has_closed
        if not stuck and (not quiet or is_leaving or step is None):
            return []
        # Without an open call it is a stall: nobody launches anything any more.
        ranks = stuck or tuple(np.flatnonzero(has_moved).tolist())
        graph = self._graph()
        found = self._before_calls_were_given_up(graph) or self._root_cause(graph, iterations(), frozen_ns=None)
        finding = self._finding(found, graph, now_ns, step, moment.unseen())
        self._hang = _Hang(finding, found, ranks, self._moves.counters[list(ranks)])
        return [finding]

    def standstill(self) -> RootCause | None:
        """What held the job up when the first rank left, if it had not moved for a little while by then.

        A timeout may end a job long before its hang is said. Then the first rank to leave is merely the first
        whose call timed out, and its calls are given up when it leaves: what they were must be known already.
        """
        known = self._standstill
        if known is None:
            return None
        moved = self._moves.moved_since(known.ranks, known.counters)
        # Whose call has timed out gives it up: that is no progress.
        return known.found if set(moved) <= set(self.host_reports.exited(None)) else None

    def left_behind(self, ranks: Iterable[int], *, in_collectives: bool = True) -> tuple[int, ...]:
        """Those of some ranks that have launched fewer calls than a peer, and none of whose calls were lost.

        A receive may be posted that nobody means to answer: only collectives count, unless it is said otherwise.
        """
        behind = set(self._table.behind(in_collectives=in_collectives))
        return tuple(rank for rank in ranks if rank in behind and not self.host_reports.has_lost_calls(rank))

    def disagreement(self, iterations: LastIterations | None, until_ns: int) -> RootCause | None:
        """What follows from calls that did not match shortly before a time, if there were any."""
        recent = self.mismatches(until_ns - MISMATCH_MATTERS_NS)
        if not recent:
            return None
        return mismatch(
            HangObservations(
                graph=self._graph(),
                table=self._table,
                host_reports=self.host_reports,
                mismatches=recent,
                iterations=iterations,
            )
        )

    def _stuck(self, open_for_ns: int, before_ns: int, since_ns: int) -> tuple[int, ...]:
        """Ranks in calls that are open for so long, have not moved since a time and wait for nobody who has.

        Whoever is waited for by somebody that goes on may be late, but does not hang. Nor does who has ended an
        iteration since its host last spoke of its calls: hosts speak each few seconds, and many iterations fit in. Or
        it does not speak of them at all, as long as iterations end. Nor does who is in a call that a peer has ended,
        where that peer goes on: when a pause is over some end it before others.
        """
        if not open_for(self._table, open_for_ns).any():
            return ()  # as nearly always
        graph = self._graph(open_for_ns)
        if not graph:
            return ()
        standing = np.array(graph.standing)
        ranks = self._table.column("rank")
        self._moves.reserve(int(ranks.max()))
        reported_ns = np.zeros(len(self._moves.counters), np.int64)
        np.maximum.at(reported_ns, ranks, self._table.column("reported_ns"))
        has_moved = self._moves.advanced_ns > before_ns
        goes_on = has_moved.copy()
        for index, behind in graph.behind.items():
            goes_on[list(behind)] |= has_moved[list(graph.call(index).done)].any()
        goes_on = graph.leads_to(goes_on)[standing]
        return tuple(standing[~goes_on & (reported_ns[standing] >= since_ns)].tolist())

    def _note_standstill(self, now_ns: int, for_s: float, since_ns: int, iterations: _AskIterations) -> None:
        if self.host_reports.exited(None):
            return  # evidence freezes at the first exit
        known = self._standstill
        if known is not None:
            moved = self._moves.moved_since(known.ranks, known.counters)
            if 0 < len(moved) < len(known.ranks):
                return  # who left a call in which its peers still stand has given it up, and is about to leave
            if moved:
                # Or all have given it up at once; that they leave is heard with what their host says next.
                over_ns = now_ns if known.over_ns is None else known.over_ns
                if now_ns - over_ns < SETTLE_NS:
                    self._standstill = replace(known, over_ns=over_ns)
                    return
        open_for_ns = round(for_s * 1e9)
        stuck = self._stuck(open_for_ns, now_ns - open_for_ns, since_ns)
        self._standstill = None
        if stuck:
            found = self._root_cause(self._graph(), iterations(), frozen_ns=None)
            self._standstill = _Standstill(found, list(stuck), self._moves.counters[list(stuck)])

    def _before_calls_were_given_up(self, graph: WaitGraph) -> RootCause | None:
        """What was known while all stood, where calls of some have timed out by now: these seem not to have entered.

        Nothing where they have gone on, or who was waited for then is not waited for now.
        """
        known = self._standstill
        if known is None or not known.found.culprits or not set(known.found.culprits) <= set(graph.absent):
            return None
        have_moved = self._moves.moved_since(known.ranks, known.counters)
        have_given_up = 0 < len(have_moved) < len(known.ranks) and not set(have_moved) & set(graph.standing)
        return known.found if have_given_up else None

    def _graph(self, open_for_ns: int = 0) -> WaitGraph:
        return wait_graph(self._table, open_for_ns, unheard=self.host_reports.unfollowed())

    def _look_again(self, now_ns: int, unseen: tuple[str, ...], iterations: _AskIterations) -> list[Finding]:
        hang = self._hang
        assert hang is not None
        old = hang.finding
        graph = self._graph()
        frozen_ns = old.detected.time_ns if old.detected else None
        found = self._root_cause(graph, iterations(), frozen_ns=frozen_ns)
        pages = old.pages or self._pages(old.onset.time_ns if old.onset else now_ns, now_ns)
        # Calls that time out, or whose ranks are ended, are given up: who is in none then says less than in which of
        # them all stood. Only what is proven, or calls that come to light then, tell more.
        have_given_up = isinstance(old.evidence[0], Waiting) and not set(hang.ranks) <= set(graph.standing)
        tells = found.verdict != old.verdict and (found.verdict == "culprit" or found.cause == "H2")
        if _says_more(found, hang.found) and (tells or not have_given_up):
            new = self._finding(found, graph, now_ns, old.onset.step if old.onset else None, unseen)
            hang.found = found
            hang.finding = replace(
                new, id=old.id, onset=old.onset, detected=old.detected, version=old.version + 1, pages=pages
            )
        elif pages != old.pages:
            hang.finding = old.next_version(pages=pages)
        else:
            return []
        return [hang.finding]

    def _root_cause(self, graph: WaitGraph, iterations: LastIterations | None, *, frozen_ns: int | None) -> RootCause:
        return root_cause(
            HangObservations(
                graph=graph,
                table=self._table,
                host_reports=self.host_reports,
                mismatches=self.mismatches(),
                iterations=iterations,
                frozen_ns=frozen_ns,
            )
        )

    def _finding(
        self, found: RootCause, graph: WaitGraph, now_ns: int, step: int | None, unseen: tuple[str, ...]
    ) -> Finding:
        oldest = graph.oldest()
        if oldest is None:
            onset_ns, identity = int(self._moves.advanced_ns.max(initial=0)) or now_ns, ("", -1)
            why: Evidence = NoCalls(for_s=(now_ns - onset_ns) / 1e9)
        else:
            onset_ns = oldest.since_ns
            identity = (self._table.sequences[oldest.sequence].communicator, oldest.seq)
            why = Waiting(
                ranks=graph.standing,
                call=call_of(oldest, self._table),
                longest_s=(now_ns - onset_ns) / 1e9,
                waits=waits_of(graph, self._table),
            )
        culprits = set(found.culprits)
        waiting = [rank for rank in graph.standing if rank not in culprits]
        finding = Finding(
            id=event_id("hang", self._job, self._attempt, *identity, step),
            job=self._job,
            attempt=self._attempt,
            kind="hang",
            verdict=found.verdict,
            cause=found.cause,
            culprits=found.culprits,
            candidates=found.candidates,
            victims=tuple(waiting) if culprits else (),
            links=found.links,
            onset=Instant(step=step, time_ns=onset_ns),
            detected=Instant(step=step, time_ns=now_ns),
            lasting=True,
            pages=self._pages(onset_ns, now_ns),
            evidence=(why, *found.evidence),
            unseen=(*found.unseen, *unseen),
        )
        return self.with_notes(finding, now_ns)

    def with_notes(self, finding: Finding, now_ns: int) -> Finding:
        """The finding with what its hosts say of the ranks it names, and what to drain."""
        named = finding.culprits or tuple(dict.fromkeys(rank for link in finding.links for rank in link))
        age_s = None if self._checkpoint_ns is None else max(0, now_ns - self._checkpoint_ns) / 1e9
        notes = case_notes(self.host_reports, named, finding.victims, checkpoint_age_s=age_s)
        # Calls that do not match are the program's fault: no other host would help.
        is_of_a_host = finding.verdict == "culprit" and finding.cause != "H2"
        proposal = drain_proposal(self.host_reports, finding.culprits) if is_of_a_host else ()
        return replace(finding, evidence=merged(finding.evidence, (*notes, *proposal)))

    def _pages(self, onset_ns: int, now_ns: int) -> bool:
        waited_s = (now_ns - onset_ns) / 1e9
        return hang_wakes(waited_s, page_after_s=self._settings.page_after_s, timeout_s=self._timeout_s)


def _says_more(new: RootCause, old: RootCause) -> bool:
    """A surer verdict, or more evidence for the same one; another name as sure as the first would only confuse."""
    if SURENESS[new.verdict] != SURENESS[old.verdict]:
        return SURENESS[new.verdict] > SURENESS[old.verdict]
    if (new.cause, new.links) != (old.cause, old.links):
        return False
    if new.culprits == old.culprits:
        return new != old and new.candidates == old.candidates
    # One host's stacks come in later than another's: candidates become culprits beside those that are.
    return set(old.culprits) < set(new.culprits) <= {*old.culprits, *old.candidates}
