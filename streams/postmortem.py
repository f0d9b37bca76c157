"""What files from other tools say about a job that is over, or that hangs: the same root cause, without a stream.

A directory of dumps is one moment of one job: nobody moves any more, so every incomplete call counts, however young.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pacehound.model.call_file import CallFile, FileEvent
from pacehound.model.calls import CallBatch
from pacehound.model.events import CallSignature, Finding, HostSample, HostVitals, Instant, Progress, Topology
from pacehound.model.evidence import Evidence
from pacehound.model.evidence.computing import OthersWait
from pacehound.model.evidence.leaving import Reported
from pacehound.model.evidence.waiting import Waiting
from pacehound.model.identity import event_id
from streams.hang.host_reports import HostReports
from streams.hang.observations import HangObservations
from streams.hang.rank_progress import ProgressTable
from streams.hang.root_cause import root_cause
from streams.hang.wait_graph import wait_graph
from streams.hang.wording import call_of, waits_of
from streams.rounds.call_rows import rows_of_batch
from streams.rounds.signatures import unpacked
from streams.slow.imbalance import uneven_ranks


@dataclass(slots=True)
class _Job:
    """What all files of a job say together."""

    table: ProgressTable = field(default_factory=ProgressTable)
    host_reports: HostReports = field(default_factory=HostReports)
    called: dict[tuple[str, int], dict[int, CallSignature]] = field(default_factory=dict)
    batches: list[CallBatch] = field(default_factory=list)
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    name: str = ""
    attempt: int = 0
    last_ns: int = 0

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that have left no file."""
        return tuple(sorted({rank for group in self.members.values() for rank in group} - self.seen))


FEW_MISSING = 0.25
"""A rank without a file may be the one that could not write it; where more than this share is missing it is not."""


def findings_of(files: Sequence[CallFile]) -> list[Finding]:
    """What is wrong with the job that these files are about.

    The files are of one job and one kind of source. The hang comes first; there is no finding where every call that was
    seen has ended and none took too long.
    """
    job = _Job()
    for file in files:
        job.seen.update(file.ranks)
        for event in file.events:
            _take(job, event)
    unseen = tuple(dict.fromkeys(words for file in files for words in file.cannot_know))
    if job.missing:
        shown = ", ".join(map(str, job.missing[:16])) + (" …" if len(job.missing) > 16 else "")
        unseen = (f"ranks {shown} have left no file: what they did is not known", *unseen)
    found = _hang(job) or _hang_by_source(job, files) or _failed_processes(job) or _slow(job)
    return [] if found is None else [replace(found, unseen=(*found.unseen, *unseen))]


def _slow(job: _Job) -> Finding | None:
    """Ranks for whom the others wait, where calls have times."""
    uneven = uneven_ranks(job.batches, job.members)
    if uneven is None:
        return None
    waits = OthersWait(
        ranks=uneven.ranks, n_rounds=uneven.n_rounds, waiting_share=uneven.waiting, own_share=uneven.theirs
    )
    everybody = {rank for group in job.members.values() for rank in group}
    return Finding(
        id=event_id("slow", job.name, job.attempt, "uneven", uneven.ranks),
        job=job.name,
        attempt=job.attempt,
        kind="slow",
        verdict="suspected",
        cause="S1",
        culprits=uneven.ranks,
        victims=tuple(sorted(everybody - set(uneven.ranks))),
        magnitude=uneven.waiting - uneven.theirs,
        lasting=True,
        evidence=(waits,),
        unseen=("whether it was always so: a few steps have no quiet past",),
    )


def _failed_processes(job: _Job) -> Finding | None:
    """Processes of which a source knows nothing good: they did not answer it, or a call of theirs has failed.

    Whether that is the cause, or comes of waiting for one, it has not seen: they are candidates and no more.
    """
    by_detail: dict[str, list[int]] = {}
    for rank, process in sorted(job.host_reports.processes.items()):
        if process.detail:
            by_detail.setdefault(process.detail, []).append(rank)
    if not by_detail:
        return None
    ranks = tuple(sorted(rank for of_detail in by_detail.values() for rank in of_detail))
    evidence = tuple(Reported(ranks=tuple(of), detail=detail) for detail, of in by_detail.items())
    return _reported_hang(job, "unwell", ranks, evidence)


def _hang_by_source(job: _Job, files: Sequence[CallFile]) -> Finding | None:
    """A hang that the source reports by itself: everybody it names may be the one, or wait for somebody else."""
    hanging = [file for file in files if file.says_hang]
    if not hanging:
        return None
    ranks = tuple(sorted({rank for file in hanging for rank in file.says_hang}))
    return _reported_hang(job, "said", ranks, (Reported(ranks=ranks, format=hanging[0].format),))


def _reported_hang(job: _Job, how: str, ranks: tuple[int, ...], evidence: tuple[Evidence, ...]) -> Finding:
    """A hang of which nothing is known but what the source reports."""
    return Finding(
        id=event_id("hang", job.name, job.attempt, how, ranks[0], None),
        job=job.name,
        attempt=job.attempt,
        kind="hang",
        verdict="unknown",
        cause=None,
        candidates=ranks,
        lasting=True,
        pages=True,
        evidence=evidence,
    )


def _take(job: _Job, event: FileEvent) -> None:
    job.name, job.attempt = event.job, event.attempt
    match event:
        case Topology():
            job.table.on_topology(event)
            job.members[event.communicator] = event.members
            for rank in event.host_ranks:
                job.host_reports.host_of[rank] = event.host
        case Progress():
            job.table.on_progress(event)
            job.host_reports.dropped[event.host] = max(job.host_reports.dropped.get(event.host, 0), event.dropped_total)
            job.last_ns = max(job.last_ns, event.time_ns)
        case CallBatch():
            job.batches.append(event)
            _note_signatures(job, event)
        case HostSample():
            job.host_reports.on_sample(event)
        case HostVitals():
            job.host_reports.on_vitals(event)
        case _:
            pass


def _note_signatures(job: _Job, batch: CallBatch) -> None:
    """What ranks called in rounds that they have left: somebody may still be in one, with something else."""
    packed = rows_of_batch(batch).signature
    is_collective = batch.codes("direction") == 0
    for seq, rank, value in zip(
        batch.integers("seq")[is_collective].tolist(),
        batch.integers("rank")[is_collective].tolist(),
        packed[is_collective].tolist(),
        strict=True,
    ):
        job.called.setdefault((batch.communicator, seq), {})[rank] = unpacked(value)


def _hang(job: _Job) -> Finding | None:
    table = job.table
    world_size = len({rank for group in job.members.values() for rank in group})
    is_partial = len(job.missing) > FEW_MISSING * world_size
    graph = wait_graph(table, 0, unheard=frozenset(job.missing) if is_partial else frozenset())
    has_stopped = any(process.state in ("stopped", "exited") for process in job.host_reports.processes.values())
    if not graph and not has_stopped and not table.launch_only:
        return None
    stuck = graph.keys()
    found = root_cause(
        HangObservations(
            graph=graph,
            table=table,
            host_reports=job.host_reports,
            mismatches={key: called for key, called in job.called.items() if key in stuck},
        )
    )
    if not graph and not found.culprits:
        return None  # counters alone, and all of them agree
    oldest = graph.oldest()
    where = "" if oldest is None else table.sequences[oldest.sequence].communicator
    evidence = found.evidence
    if oldest is not None:
        call, waits = call_of(oldest, table), waits_of(graph, table)
        evidence = (Waiting(ranks=graph.standing, call=call, longest_s=None, waits=waits), *evidence)
    culprits = set(found.culprits)
    is_missing = bool(culprits & set(job.missing))
    return Finding(
        id=event_id("hang", job.name, job.attempt, where, oldest.seq if oldest else -1, None),
        job=job.name,
        attempt=job.attempt,
        kind="hang",
        verdict="suspected" if is_missing and found.verdict == "culprit" else found.verdict,
        cause=found.cause,
        culprits=found.culprits,
        candidates=found.candidates,
        victims=tuple(rank for rank in graph.standing if rank not in culprits) if culprits else (),
        links=found.links,
        onset=Instant(step=None, time_ns=job.last_ns if oldest is None else oldest.since_ns),
        detected=Instant(step=None, time_ns=job.last_ns),
        lasting=True,
        pages=True,
        evidence=evidence,
        unseen=found.unseen,
    )
