"""What files from other tools say about a job that is over, or that hangs: the same root cause, without a stream.

A directory of dumps is one moment of one job: nobody moves any more, so every incomplete call counts, however young.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pacehound.call_file import CallFile
from pacehound.calls import CallBatch
from pacehound.events import CallSignature, Finding, HostSample, HostVitals, Instant, Progress, Topology
from pacehound.identity import event_id
from pacehound.settings import Settings
from streams.rootcause import HangScene, root_cause
from streams.signatures import packed_signatures, unpacked
from streams.standings import Standings
from streams.waits import wait_graph
from streams.witnesses import Witnesses


@dataclass(slots=True)
class _Job:
    """What all files of a job say together."""

    standings: Standings = field(default_factory=Standings)
    witnesses: Witnesses = field(default_factory=Witnesses)
    called: dict[tuple[str, int], dict[int, CallSignature]] = field(default_factory=dict)
    heard: set[int] = field(default_factory=set)
    members: set[int] = field(default_factory=set)
    last_ns: int = 0
    is_waiting: bool = False


def findings_of(files: Sequence[CallFile], settings: Settings) -> list[Finding]:
    """What is wrong with the job that these files are about.

    Parameters
    ----------
    files
        Of one job and one kind of source, one per rank or for several ranks.
    settings
        As everywhere.

    Returns
    -------
    Findings, the hang first; none where every call that was seen has ended and none took too long.

    """
    job = _Job()
    for file in files:
        job.heard.update(file.ranks)
        for event in file.events:
            _take(job, event)
    missing = tuple(sorted(job.members - job.heard))
    found = _hang(job, files, missing) or _said_to_hang(files)
    return [] if found is None else [found]


def _said_to_hang(files: Sequence[CallFile]) -> Finding | None:
    """A hang that the source reports by itself: everybody it names may be the one, or wait for somebody else."""
    said = [file for file in files if file.says_hang]
    if not said:
        return None
    ranks = tuple(sorted({rank for file in said for rank in file.says_hang}))
    first = said[0].events[0] if said[0].events else None
    name, attempt = (first.job, first.attempt) if first is not None else ("", 0)
    return Finding(
        id=event_id("hang", name, attempt, "said", ranks[0], None),
        job=name,
        attempt=attempt,
        kind="hang",
        verdict="unknown",
        cause=None,
        candidates=ranks,
        lasting=True,
        pages=True,
        evidence=(f"{said[0].format} says of {len(ranks)} ranks that they hang",),
        unseen=tuple(dict.fromkeys(words for file in said for words in file.cannot_know)),
    )


def _take(job: _Job, event: object) -> None:
    match event:
        case Topology():
            job.standings.on_topology(event)
            job.members.update(event.members)
            for rank in event.host_ranks:
                job.witnesses.host_of[rank] = event.host
        case Progress():
            job.standings.on_progress(event)
            job.witnesses.dropped[event.host] = max(job.witnesses.dropped.get(event.host, 0), event.dropped_total)
            job.last_ns = max(job.last_ns, event.time_ns)
            job.is_waiting |= any(theirs.open for theirs in event.ranks)
        case CallBatch():
            _note_signatures(job, event)
        case HostSample():
            job.witnesses.on_sample(event)
        case HostVitals():
            job.witnesses.on_vitals(event)
        case _:
            pass


def _note_signatures(job: _Job, batch: CallBatch) -> None:
    """What ranks called in rounds that they have left: somebody may still be in one, with something else."""
    packed = packed_signatures(batch)
    is_collective = batch.codes("direction") == 0
    for seq, rank, value in zip(
        batch.integers("seq")[is_collective].tolist(),
        batch.integers("rank")[is_collective].tolist(),
        packed[is_collective].tolist(),
        strict=True,
    ):
        job.called.setdefault((batch.communicator, seq), {})[rank] = unpacked(value)


def _hang(job: _Job, files: Sequence[CallFile], missing: tuple[int, ...]) -> Finding | None:
    standings = job.standings
    graph = wait_graph(standings, 0)
    has_stopped = any(process.state in ("stopped", "exited") for process in job.witnesses.processes.values())
    uneven = standings.launch_only and (standings.column("launched").max(initial=-1) >= 0)
    if not graph.stands_in and not has_stopped and not uneven:
        return None
    stuck = {(standings.channels[call.channel].communicator, call.seq) for call in graph.calls}
    scene = HangScene(
        graph=graph,
        standings=standings,
        witnesses=job.witnesses,
        mismatches={key: called for key, called in job.called.items() if key in stuck},
    )
    found = root_cause(scene)
    if not graph.stands_in and not found.culprits:
        return None  # counters alone, and all of them agree
    unheard = tuple(rank for rank in missing if rank in found.culprits or rank in found.candidates)
    unseen = list(found.unseen)
    if missing:
        unseen.append(f"ranks {', '.join(map(str, missing[:16]))} have left no file: what they did is not known")
    oldest = min(graph.calls, key=lambda call: (call.since_ns, call.channel, call.seq), default=None)
    onset_ns = job.last_ns if oldest is None else oldest.since_ns
    where = "" if oldest is None else standings.channels[oldest.channel].communicator
    evidence = list(found.evidence)
    if oldest is not None:
        evidence.insert(
            0,
            f"{len(graph.stands_in)} ranks wait, the oldest call is {oldest.op} {oldest.seq} of "
            f"{standings.name_of(oldest.channel)!r}",
        )
    verdict = "suspected" if unheard and found.verdict == "culprit" else found.verdict
    culprits = set(found.culprits)
    first = files[0].events[0] if files and files[0].events else None
    name = first.job if first is not None else ""
    attempt = first.attempt if first is not None else 0
    return Finding(
        id=event_id("hang", name, attempt, where, oldest.seq if oldest else -1, None),
        job=name,
        attempt=attempt,
        kind="hang",
        verdict=verdict,
        cause=found.cause,
        culprits=found.culprits,
        candidates=found.candidates,
        victims=tuple(rank for rank in sorted(graph.stands_in) if rank not in culprits) if culprits else (),
        links=found.links,
        onset=Instant(step=None, time_ns=onset_ns),
        detected=Instant(step=None, time_ns=job.last_ns),
        lasting=True,
        pages=True,
        evidence=tuple(evidence),
        unseen=tuple(dict.fromkeys((*unseen, *(words for file in files for words in file.cannot_know)))),
    )
