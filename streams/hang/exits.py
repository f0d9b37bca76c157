"""Ranks that leave: the first one that does so in disorder is evidence, the ones after it are not.

When one rank dies, its peers' calls fail and the launcher ends the rest; so evidence freezes at the first exit.
A job that is killed as a whole has no first rank. The first to leave need not be guilty: where ranks had met with
different calls that is the cause (with gloo a larger all_reduce on one rank ends an innocent peer), and where nobody
had moved for a while the one who held them up is: the others' calls have timed out, in no order that means anything.
Who was first is asked on one clock (`one_clock.py`).
What torch's monitored_barrier says of those who did not come stands in for such a call, for it is not seen itself.
Who fails because a connection to a peer was closed has lost that peer: where a host fell silent just then, with its
agent, its ranks are what was lost. And of ranks that fail with the same error of their own the first is only the first:
a loss that is no number is one on all of them.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pacehound.model.events import Finding, HostSample, Instant, ProcessState, VerdictWord
from pacehound.model.evidence import Evidence, merged
from pacehound.model.evidence.leaving import EndedFromOutside, Left, Reported, StoodBefore
from pacehound.model.evidence.machines import HostSilent, More
from pacehound.model.evidence.phrases import shown_ranks
from pacehound.model.evidence.waiting import LaunchedFewer
from pacehound.model.identity import event_id
from pacehound.model.job_end import JOB_FAILED, JOB_INTERRUPTED
from streams.hang.hang_watch import HangWatch
from streams.hang.last_words import CRASHES, OWN_FAULT, has_lost_a_peer, says_a_peer_is_gone
from streams.hang.observations import RootCause
from streams.hang.one_clock import on_one_clock
from streams.hang.thresholds import MOST_TOLD, REPORT_AFTER_NS, SETTLE_NS, TOGETHER_ELSEWHERE_NS, TOGETHER_NS
from streams.spread import value_of_most
from streams.watching.moment import Moment
from streams.watching.watch import Heard, Said, Watch

_POLITE = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Somebody ended the job, or the launcher its remaining ranks: nobody's fault."""

_DID_NOT_COME = re.compile(r"\bRanks? (\d+(?:, \d+)*) failed to pass monitoredBarrier\b")
"""The words of torch (ProcessGroupGloo.cpp) in the error of rank 0, which collects the others."""

_HAS_PARAMETERS = re.compile(r"expects same model across all ranks, but Rank \d+ has (\d+) params\b")
"""The words of torch's DistributedDataParallel (reducer.cpp) in the error of each rank, of that rank."""

_WHO_SENT_IT = "who sent the signal, and why: the launcher, a scheduler, or the kernel for want of memory"
_MEANT = "whether what its peers last sent to it or awaited from it was meant to come"
_WHERE_IT_CRASHED = "where in the program: PYTHONFAULTHANDLER=1 makes a process print its stack when it crashes"


class ExitWatch(Watch):
    """Follows the processes of one job until the first of them leaves in disorder.

    `hang` knows what held the job up when they left: who leaves while it is hung leaves because of that.
    """

    def __init__(self, job: str, attempt: int, hang: HangWatch) -> None:
        self._job = job
        self._attempt = attempt
        self._hang = hang
        self._processes: dict[int, ProcessState] = {}
        self._hosts: dict[int, str] = {}  # by rank
        self._finding: Finding | None = None  # while somebody's mistake may still explain it
        self._is_decided = False
        self._closed_why: dict[str, str] = {}  # by host on which the job has ended
        self._has_one_left = False  # in disorder, or nobody knows how: thousands need not be asked each second

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest."""
        return {name: value for name, value in self.__dict__.items() if name != "_has_one_left"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Whether one has left is asked of all again."""
        self.__dict__.update(state)
        self._has_one_left = any(_has_or_may_have_failed(process) for process in self._processes.values())

    def hear(self, event: Heard, step: int | None) -> list[Finding]:
        """The processes of one host."""
        if isinstance(event, HostSample):
            for process in event.processes:
                self._processes[process.rank] = process
                self._hosts[process.rank] = event.host
                self._has_one_left = self._has_one_left or _has_or_may_have_failed(process)
            if event.closed:
                self._closed_why[event.host] = event.closed_why
        return []

    @property
    def _interrupted(self) -> frozenset[str]:
        """Hosts on which somebody asked for the end of the job."""
        return frozenset(host for host, why in self._closed_why.items() if why == JOB_INTERRUPTED)

    def on_tick(self, moment: Moment) -> list[Said]:
        """A finding when the first disorderly exit has settled, and once more when its cause comes to light later."""
        return list(self._look(moment, is_end=False))

    def on_end(self, moment: Moment) -> list[Finding]:
        """What has not settled never will."""
        return self._look(moment, is_end=True)

    def _look(self, moment: Moment, *, is_end: bool) -> list[Finding]:
        if self._finding is not None:
            return self._look_again(self._finding, moment)
        if self._is_decided or not self._has_one_left:
            return []
        # A rank that catches an interrupt leaves with an exit code as it would after a mistake.
        interrupted = self._interrupted
        known, until_ns = on_one_clock(self._processes, moment)
        processes = list(known.values())
        uninterrupted = [p for p in processes if self._hosts[p.rank] not in interrupted]
        disorderly = [process for process in uninterrupted if _is_disorderly(process)]
        left = disorderly or self._gone_before_the_rest(uninterrupted)
        if not left or self._was_over(left) or (interrupted and not is_end):
            return []  # whether the others were interrupted, too, they say with their last word
        first_ns = min(process.since_ns for process in left)
        if until_ns < first_ns + SETTLE_NS and not is_end:
            return []
        if disorderly:
            # Nobody can tell how these ended: long before in good order, just before it may be what others fail for.
            left += [p for p in uninterrupted if _is_wordless(p) and p.since_ns >= first_ns - SETTLE_NS]
        # Connections are closed before their process is gone: who has lost a peer may leave before that peer does.
        left = [process for process in left if not has_lost_a_peer(process)] or left
        first_ns = min(process.since_ns for process in left)
        self._is_decided = True
        if self._hang.is_hung:
            return []
        first_host = self._hosts[min(left, key=lambda p: p.since_ns).rank]
        first = sorted(
            (
                p
                for p in left
                if p.since_ns - first_ns
                <= (TOGETHER_NS if self._hosts[p.rank] == first_host else TOGETHER_ELSEWHERE_NS)
            ),
            key=lambda p: p.rank,
        )
        if asked := self._asked_to_end(processes, left, first_ns):
            first_asked = asked[0]
            before_s = max(first_ns - first_asked.since_ns, 0) / 1e9
            lost = EndedFromOutside(
                first_rank=first_asked.rank, before_s=before_s, signal=first_asked.signal or 0, n_ranks=len(left)
            )
            return [self._nobody(asked, first_asked.since_ns, lost, moment)]
        if interrupted:
            return []  # of what fails besides where somebody has ended a part of the job nothing is known
        if from_outside := self._ended_from_outside(processes, left, first_ns):
            return [self._nobody(left, first_ns, from_outside, moment)]
        alike = self._alike(first)
        is_same = len(set(map(_own_error, alike))) == 1
        ranks = tuple(process.rank for process in alike or first)
        own_fault = tuple(process.rank for process in first if process.signal in OWN_FAULT)
        verdict: VerdictWord = "unknown"
        culprits: tuple[int, ...] = ()
        if own_fault:
            verdict, culprits = "culprit", own_fault
        elif alike:
            if self._are_all_who_have_it(alike):
                verdict, culprits = "suspected", ranks
        elif len(first) == 1 and not has_lost_a_peer(first[0]):
            verdict, culprits = "suspected", ranks
        finding = Finding(
            id=event_id("exit", self._job, self._attempt, ranks),
            job=self._job,
            attempt=self._attempt,
            kind="exit",
            verdict=verdict,
            cause=None,
            culprits=culprits,
            candidates=() if culprits else tuple(sorted({*ranks, *(process.rank for process in first)})),
            onset=Instant(step=moment.step, time_ns=first_ns),
            detected=moment.at,
            lasting=True,
            pages=True,
            evidence=(
                *([Reported(ranks=ranks, detail=f"left with the same error: {alike[0].detail}")] if is_same else ()),
                *(_first(process, len(first)) for process in first),
            ),
            unseen=() if own_fault else _unseen(first),
        )
        if own_fault:
            return [finding]
        held_up = self._hang.standstill()
        if held_up is not None:
            finding = _explained(finding, _stood_before(held_up))
        elif deserters := self._deserters(processes, first_ns):
            return [_deserted(finding, deserters, first)]
        elif all(map(has_lost_a_peer, left)) and (
            deserters := self._deserters(processes, first_ns, in_collectives=False)
        ):
            return [_deserted(finding, deserters, first, verdict="suspected", unseen=(_MEANT,))]
        elif said := self._missed_in_a_barrier() or self._has_another_model():
            finding = _explained(finding, said)
        self._finding = finding
        return [replace(found, version=0) for found in self._look_again(finding, moment)] or [finding]

    def _gone_with_their_host(self, finding: Finding, moment: Moment) -> Finding | None:
        """The finding where a host fell silent just when the first ones failed, who may all have failed for that."""
        assert finding.onset is not None
        if finding.verdict == "culprit" or any(isinstance(piece, HostSilent) for piece in finding.evidence):
            return None
        onset_ns = finding.onset.time_ns
        hosts = [
            host
            for host, since_ns in moment.silent_since_ns.items()
            if abs(since_ns - onset_ns) <= REPORT_AFTER_NS and moment.now_ns - since_ns >= REPORT_AFTER_NS
        ]
        gone = {rank for host in hosts for rank in moment.ranks_of.get(host, ())}
        gone = {rank for rank in gone if rank not in self._processes or self._processes[rank].state != "exited"}
        left = [self._processes.get(rank) for rank in finding.culprits or finding.candidates]
        if not gone or not all(process is not None and _may_have_lost_a_peer(process) for process in left):
            return None
        return finding.next_version(
            verdict="suspected",
            cause=None,
            culprits=tuple(sorted(gone)),
            candidates=(),
            evidence=(HostSilent(hosts=tuple(sorted(hosts))), *finding.evidence),
            unseen=("how these ranks ended: their agent went silent with them",),
        )

    def _alike(self, first: list[ProcessState]) -> list[ProcessState]:
        """Those that fail with an error of their own that one of the first has, too; nobody where only one has it.

        Some are ended by the launcher when they have said it.
        """
        errors = {error for process in first if (error := _own_error(process))}
        alike = [process for process in self._processes.values() if _own_error(process) in errors]
        return sorted(alike, key=lambda process: process.rank) if len(alike) > 1 else []

    def _are_all_who_have_it(self, alike: list[ProcessState]) -> bool:
        """They are few, and nobody was ended who might have failed with the same error a moment later."""
        ranks = {process.rank for process in alike}
        others = [process for process in self._processes.values() if process.rank not in ranks]
        return len(ranks) < len(others) and not any(p.signal in _POLITE and not p.detail for p in others)

    def _gone_before_the_rest(self, processes: list[ProcessState]) -> list[ProcessState]:
        """Who left first, nobody knows how, where the others were ended for it and the job's command has failed.

        A signal struck it, most likely, and the launcher had waited for it before anybody looked.
        """
        if JOB_FAILED not in self._closed_why.values():
            return []
        ended_ns = [p.since_ns for p in processes if p.state == "exited" and p.signal in _POLITE]
        gone = [process for process in processes if _is_wordless(process) and not process.has_left]
        first_ns = min((process.since_ns for process in gone), default=0)
        first = [process for process in gone if process.since_ns == first_ns]
        is_first = first_ns <= min(ended_ns, default=first_ns)
        return first if is_first and len(first) < len(processes) else []

    def _was_over(self, left: list[ProcessState]) -> bool:
        """Every rank had left the job by itself, and none had calls to make that others have made.

        Who ends its process then need not have failed: Ray's workers are killed, and a script may end with any number.
        """
        ended_otherwise = any(p.detail or p.signal not in (None, signal.SIGKILL) for p in left)
        if ended_otherwise or not all(p.has_left or _has_succeeded(p) for p in self._processes.values()):
            return False
        return not self._hang.left_behind(sorted(self._processes))

    def _deserters(
        self, processes: Sequence[ProcessState], first_ns: int, *, in_collectives: bool = True
    ) -> list[ProcessState]:
        """Who had left as if all were done, while most others still called: their calls fail for that."""
        done = {p.rank: p for p in processes if _has_succeeded(p) and p.since_ns <= first_ns}
        ranks = self._hang.left_behind(sorted(done), in_collectives=in_collectives)
        return [done[rank] for rank in ranks] if 2 * len(ranks) < len(processes) else []

    def _missed_in_a_barrier(self) -> RootCause | None:
        """Who did not come to a monitored barrier, by the error of the rank that collects them.

        It need not have left first, nor by itself: the launcher may have ended it for another one that failed.
        """
        errors = " ".join(process.detail for process in self._processes.values())
        said = {int(rank) for ranks in _DID_NOT_COME.findall(errors) for rank in ranks.split(", ")}
        ranks = tuple(sorted(said & self._processes.keys()))
        if not ranks or len(ranks) < len(said):
            return None
        return RootCause(
            verdict="suspected",
            cause="H1",
            culprits=ranks,
            evidence=(Reported(ranks=ranks, detail="did not come to torch's monitored_barrier, by its error"),),
            unseen=("what these ranks did instead",),
        )

    def _has_another_model(self) -> RootCause | None:
        """Who wraps a model of another number of parameters than most do, by the errors of all that fail for it."""
        found = {process.rank: _HAS_PARAMETERS.search(process.detail) for process in self._processes.values()}
        n_parameters = {rank: int(match[1]) for rank, match in found.items() if match is not None}
        usual = value_of_most(n_parameters.values(), len(self._processes))
        ranks = tuple(sorted(rank for rank, n in n_parameters.items() if n != usual))
        if usual is None or not ranks:
            return None
        return RootCause(
            verdict="culprit",
            cause=None,
            culprits=ranks,
            evidence=(
                Reported(ranks=ranks, detail=f"not the {usual} parameters of most others, by the errors of all"),
            ),
        )

    def _look_again(self, finding: Finding, moment: Moment) -> list[Finding]:
        """The finding anew where calls that did not match made the ranks leave; their rows come in late."""
        assert finding.onset is not None
        if finding.cause is not None and finding.verdict != "unknown":
            return []
        # Ranks that stood before the first one left may have stood for peers whose host was gone by then.
        is_open = finding.cause is None
        found = self._hang.disagreement(moment.last_iterations(), finding.onset.time_ns) if is_open else None
        if found is None:
            gone = self._gone_with_their_host(finding, moment) if moment.silent_since_ns else None
            if gone is None:
                return []
            self._finding = gone
            return [gone]
        self._finding = finding.next_version(
            verdict=found.verdict,
            cause=found.cause,
            culprits=found.culprits,
            candidates=found.candidates,
            evidence=merged(found.evidence, finding.evidence),
            unseen=found.unseen,
        )
        return [self._finding]

    def _ended_from_outside(
        self, processes: Sequence[ProcessState], left: list[ProcessState], first_ns: int
    ) -> EndedFromOutside | None:
        """Why who was killed is not to blame, where that is so.

        Ranks whose host has fallen silent are not asked.
        """
        unheard = self._hang.host_reports.unheard()
        everybody = [process for process in processes if process.rank not in unheard]
        # The only one that is heard of, besides silent hosts, may be the last one and not the first.
        is_last = len(everybody) == 1 and bool(unheard) and everybody[0].signal == signal.SIGKILL
        if (len(everybody) > 1 or is_last) and all(
            p.state == "exited" and p.signal in OWN_FAULT and p.since_ns - first_ns <= SETTLE_NS for p in everybody
        ):
            crash = everybody[0].signal if all(p.signal in CRASHES for p in everybody) else None
            return EndedFromOutside(n_ranks=len(everybody), within_s=SETTLE_NS / 1e9, signal=crash or 0)
        asked = [
            p
            for p in everybody
            if p.state == "exited" and p.signal in _POLITE and p.since_ns < first_ns - TOGETHER_ELSEWHERE_NS
        ]
        if asked and all(process.signal == signal.SIGKILL or _is_wordless(process) for process in left):
            first = min(asked, key=lambda p: (p.since_ns, p.rank))
            before_s = (first_ns - first.since_ns) / 1e9
            return EndedFromOutside(first_rank=first.rank, before_s=before_s, signal=first.signal or 0)
        return None

    def _asked_to_end(
        self, processes: Sequence[ProcessState], left: list[ProcessState], first_ns: int
    ) -> list[ProcessState]:
        """Whom somebody asked to end, by a signal, where all who fail have lost a peer: the first of them first.

        A launcher asks the others of its host when one has failed: these come after it. Where all of a host was asked
        to end it does not matter how its ranks took it.
        """
        if not all(map(has_lost_a_peer, left)):
            return []
        failed_ns: dict[str, int] = {}
        for process in left:
            host = self._hosts[process.rank]
            failed_ns[host] = min(process.since_ns, failed_ns.get(host, process.since_ns))
        latest_ns = first_ns + TOGETHER_ELSEWHERE_NS
        asked = [
            p
            for p in processes
            if p.state == "exited"
            and ((p.signal in _POLITE and not p.detail) or self._hosts[p.rank] in self._interrupted)
            and p.since_ns < min(latest_ns, failed_ns.get(self._hosts[p.rank], latest_ns))
        ]
        return sorted(asked, key=lambda process: (process.since_ns, process.rank))

    def _nobody(self, left: list[ProcessState], first_ns: int, why: EndedFromOutside, moment: Moment) -> Finding:
        """Killed, and nobody to name for it: what is known."""
        killed = sorted(left, key=lambda process: (process.since_ns, process.rank))
        shown: list[Evidence] = [_later(process, first_ns) for process in killed[:MOST_TOLD]]
        if len(killed) > MOST_TOLD:
            shown.append(More(n=len(killed) - MOST_TOLD))
        ranks = tuple(sorted(process.rank for process in killed))
        finding = Finding(
            id=event_id("exit", self._job, self._attempt, ranks),
            job=self._job,
            attempt=self._attempt,
            kind="exit",
            verdict="unknown",
            cause=None,
            candidates=ranks,
            onset=Instant(step=moment.step, time_ns=first_ns),
            detected=moment.at,
            lasting=True,
            pages=True,
            evidence=(why, *shown),
            unseen=(_WHERE_IT_CRASHED if why.signal in CRASHES else _WHO_SENT_IT,),
        )
        held_up = self._hang.standstill()
        return finding if held_up is None else _explained(finding, _stood_before(held_up), have_failed=False)


def _stood_before(held_up: RootCause) -> RootCause:
    return replace(held_up, evidence=(StoodBefore(), *held_up.evidence))


def _explained(finding: Finding, held_up: RootCause, *, have_failed: bool = True) -> Finding:
    """The finding where somebody held up those who left, which `have_failed` by themselves."""
    if have_failed and held_up.culprits and set(held_up.culprits) <= set(finding.culprits or finding.candidates):
        verdict: VerdictWord = "culprit"  # its peers waited for it, and it failed
    else:
        verdict = held_up.verdict
    return replace(
        finding,
        verdict=verdict,
        cause=held_up.cause,
        culprits=held_up.culprits,
        candidates=held_up.candidates or (() if held_up.culprits else finding.candidates or finding.culprits),
        links=held_up.links,
        evidence=merged(held_up.evidence, finding.evidence),
        unseen=held_up.unseen,
    )


def _deserted(
    finding: Finding,
    deserters: list[ProcessState],
    failed: list[ProcessState],
    *,
    verdict: VerdictWord = "culprit",
    unseen: tuple[str, ...] = (),
) -> Finding:
    """The finding where some had left as if all were done before the first one failed."""
    began_ns = min(process.since_ns for process in deserters)
    ranks = tuple(process.rank for process in deserters)
    assert finding.onset is not None
    return replace(
        finding,
        verdict=verdict,
        cause="H2",  # it has come to the end of its calls, and its peers have not
        culprits=ranks,
        candidates=(),
        onset=replace(finding.onset, time_ns=began_ns),
        evidence=(
            *(_first(process, len(deserters)) for process in deserters[:MOST_TOLD]),
            *(LaunchedFewer(rank=rank) for rank in ranks[:MOST_TOLD]),
            *(_later(process, began_ns) for process in failed[:MOST_TOLD]),
        ),
        unseen=unseen,
    )


def _own_error(process: ProcessState) -> str:
    """What it says of why it fails, numbers left out; nothing where that is a peer."""
    return "" if says_a_peer_is_gone(process) else re.sub(r"\d+", "#", process.detail)


def _may_have_lost_a_peer(process: ProcessState) -> bool:
    """It says so, or says nothing of why it fails."""
    return has_lost_a_peer(process) or not (process.detail or process.signal in OWN_FAULT)


def _has_succeeded(process: ProcessState) -> bool:
    return process.state == "exited" and process.signal is None and process.exit_code == 0


def _is_disorderly(process: ProcessState) -> bool:
    if process.state != "exited":
        return False
    if process.signal is not None:
        return process.signal not in _POLITE
    return bool(process.exit_code)


def _has_or_may_have_failed(process: ProcessState) -> bool:
    return _is_disorderly(process) or _is_wordless(process)


def _is_wordless(process: ProcessState) -> bool:
    """It has left, and nobody can tell how: it was reaped before anybody looked, and has written nothing about it."""
    return process.state == "exited" and process.signal is None and process.exit_code is None


def _unseen(first: list[ProcessState]) -> tuple[str, ...]:
    """What is not known of those that left first."""
    wordless = [process.rank for process in first if _is_wordless(process)]
    how = (f"how {shown_ranks(wordless)} ended: by a signal, most likely",) if wordless else ()
    return (*how, "whether a peer's mistake made it fail")


def _first(process: ProcessState, n_first: int) -> Left:
    return Left(
        n_first=n_first,
        rank=process.rank,
        pid=process.pid,
        exit_code=process.exit_code,
        signal=process.signal,
        detail=process.detail,
    )


def _later(process: ProcessState, first_ns: int) -> Left:
    """Without what it says of itself: it has not begun it."""
    after_s = max(process.since_ns - first_ns, 0) / 1e9
    return Left(rank=process.rank, pid=process.pid, exit_code=process.exit_code, signal=process.signal, after_s=after_s)
