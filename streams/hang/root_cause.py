"""The root cause of a hang: its class and, where the evidence allows, a name (CCL-D 4.2.2, DESIGN section 6).

H1: a rank has not entered. H2: ranks have called different things, or in different orders. H3: everybody has entered
and something in the machine does not move. A name needs positive evidence: `culprit` takes a process that is gone or
stopped, hardware that has failed, a stack outside of any call, a device that does not finish what its peers have
finished, or calls that depart from those of the iteration before. Without, the likeliest are `suspected`; where the
evidence fits several, nobody is named and they are candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pacehound.model.evidence import Evidence
from pacehound.model.evidence.machines import HostSilent
from pacehound.model.evidence.piece import MOST_RANKS
from pacehound.model.evidence.waiting import (
    Apart,
    LaunchedFewer,
    NotEntered,
    NotFinished,
    OutOfOrder,
    StandIn,
)
from streams.hang.host_reports import shown_stack
from streams.hang.mismatch import mismatch
from streams.hang.observations import HangObservations, RootCause
from streams.hang.rank_progress import CallSequence
from streams.hang.stuck_links import stuck_link
from streams.hang.thresholds import MIN_LACK
from streams.hang.wait_graph import StuckCall, launch_graph, wait_graph
from streams.hang.wording import SHOWN, call_of
from streams.rounds.divergence import SequenceKey

Int64Array = npt.NDArray[np.int64]


_ONE_SIDED = frozenset({"broadcast", "reduce", "gather", "scatter", "send", "recv"})
"""Operations that may end on some ranks although others never receive: their end there proves nothing."""


def root_cause(observed: HangObservations) -> RootCause:
    """Name the cause of a hang, the strongest evidence first."""
    for look in (_halted, mismatch, _behind, _absent, _cycle, _joint, _launched_less):
        found = look(observed)
        if found is not None:
            return found
    return _stall(observed)


def _halted(observed: HangObservations) -> RootCause | None:
    """Processes that are stopped or gone, and GPUs that have failed, where anybody waits for them."""
    host_reports, graph = observed.host_reports, observed.graph
    # Whoever has left and is waited for by nobody may have ended; whoever is stopped, or has lost its GPU, has not.
    idle = _idle(observed)
    left = host_reports.exited(observed.frozen_ns) & {*graph.absent, *idle, *graph.standing} - _gave_up(observed)
    halted = host_reports.stopped(observed.frozen_ns) | left
    failed = host_reports.failed_hardware()
    culprits = tuple(sorted({*halted, *failed}))
    if not culprits:
        return None
    is_inside = bool(failed) or any(rank in graph.standing for rank in culprits)
    evidence: list[Evidence] = [NotEntered(ranks=(rank,)) for rank in culprits if rank in (*graph.absent, *idle)]
    evidence += [host_reports.process(rank) for rank in sorted(halted)]
    evidence += failed.values()
    return RootCause(verdict="culprit", cause="H3" if is_inside else "H1", culprits=culprits, evidence=tuple(evidence))


def _idle(observed: HangObservations) -> tuple[int, ...]:
    """Ranks that stand nowhere, without those that are done: who has left in good order, and whom nobody waits for."""
    return tuple(rank for rank in observed.graph.idle if not observed.host_reports.is_done(rank))


def _gave_up(observed: HangObservations) -> frozenset[int]:
    """Ranks that have left because those whom they waited for did not come, where somebody else is missing, too."""
    missing = {*observed.graph.absent, *_idle(observed)}
    gave_up = observed.host_reports.have_left_for_others()
    return gave_up if missing - gave_up else frozenset()


def _behind(observed: HangObservations) -> RootCause | None:
    """Ranks in a call that everybody else has completed.

    A collective ends on one rank only when it has that rank's data, so that a peer which has completed a *later* call
    of the same communicator proves that this rank's device had done this one: what does not end is its own.
    """
    table, host_reports = observed.table, observed.host_reports
    proven: list[int] = []
    likely: list[int] = []
    evidence: list[Evidence] = []
    for index, ranks in sorted(observed.graph.behind.items()):
        call = observed.graph.call(index)
        if call.op in _ONE_SIDED:
            continue
        is_proof = bool(call.later_done) and not any(host_reports.has_lost_calls(rank) for rank in ranks)
        (proven if is_proof else likely).extend(ranks)
        evidence.append(
            NotFinished(
                ranks=ranks,
                call=call_of(call, table),
                done=call.done[:MOST_RANKS],
                n_done=len(call.done),
                later_done=call.later_done[:MOST_RANKS],
                n_later_done=len(call.later_done),
            )
        )
    if not proven and not likely:
        return None
    culprits = tuple(sorted(set(proven or likely)))
    others = tuple(sorted({*likely, *observed.graph.absent} - set(culprits)))
    unseen = () if proven else ("whether a link into these ranks or their own devices do not move",)
    return RootCause(
        verdict="culprit" if proven else "suspected",
        cause="H3",
        culprits=culprits,
        candidates=others,
        evidence=tuple(evidence),
        unseen=unseen,
    )


def _absent(observed: HangObservations) -> RootCause | None:
    """Ranks that somebody waits for and that stand in no call, and those that stand nowhere beside them."""
    host_reports = observed.host_reports
    if not observed.graph.absent:
        return None
    absent = tuple(sorted({*observed.graph.absent, *_idle(observed)} - _gave_up(observed)))
    outside = {rank: stack for rank in absent if (stack := host_reports.outside_of_calls(rank)) is not None}
    if outside and 2 * len(outside) <= len(absent) + len(observed.graph.waiting):
        others = tuple(rank for rank in absent if rank not in outside)
        evidence = (NotEntered(ranks=tuple(outside)), *outside.values())
        return RootCause(verdict="culprit", cause="H1", culprits=tuple(outside), candidates=others, evidence=evidence)
    hidden = tuple(rank for rank in absent if _may_call_unseen(observed, rank))
    named = tuple(rank for rank in absent if rank not in hidden)
    if hidden:
        return _hidden(observed, absent, hidden)
    if 2 * len(named) > len(absent) + len(observed.graph.waiting):
        reason = NotEntered(ranks=named, but="most")
        return RootCause(verdict="unknown", cause="H1", candidates=absent, evidence=(reason,), unseen=_dark(observed))
    reasons: list[Evidence] = [NotEntered(ranks=named, but="in no call")]
    silent = tuple(rank for rank in named if host_reports.is_silent(rank))
    if silent:
        reasons.append(HostSilent(hosts=tuple(sorted({host_reports.host_of[rank] for rank in silent}))))
    running = [host_reports.process(rank) for rank in named if rank not in silent and rank in host_reports.processes]
    reasons += running[:SHOWN]
    unseen = [f"what these ranks do instead: {_missing_stack(observed, named)}"]
    if len(running) + len(silent) < len(named):
        unseen.append("the state of their processes: their host has not reported it")
    if any(host_reports.has_lost_calls(rank) for rank in named):
        unseen.append("calls of their hosts were lost: they may have entered")
    return RootCause(verdict="suspected", cause="H1", culprits=named, evidence=tuple(reasons), unseen=tuple(unseen))


def _hidden(observed: HangObservations, absent: tuple[int, ...], hidden: tuple[int, ...]) -> RootCause:
    """Ranks that somebody waits for stand in a call that is not seen: nobody is named.

    Where most ranks stand in it (a `new_group`, say), those that wait for them may be who should have come to it.
    """
    host_reports, waiting = observed.host_reports, observed.graph.waiting
    evidence: list[Evidence] = [NotEntered(ranks=hidden, but="in unseen calls")]
    looked_at = [rank for rank in hidden if host_reports.is_in_unseen_call(rank)]
    evidence += [shown_stack(host_reports.stacks[rank], "named") for rank in looked_at[:1]]
    candidates = absent
    if looked_at and hidden == absent and len(hidden) > len(waiting):
        candidates = tuple(sorted({*absent, *waiting}))
    return RootCause(
        verdict="unknown", cause=None, candidates=candidates, evidence=tuple(evidence), unseen=_dark(observed)
    )


def _cycle(observed: HangObservations) -> RootCause | None:
    """Ranks that wait for each other: their calls are in different orders."""
    cycle = observed.graph.cycle
    if not cycle:
        return None
    evidence: list[Evidence] = [Apart(ranks=cycle, by="order")]
    for index in sorted({observed.graph.stands_in(rank) for rank in cycle})[:SHOWN]:
        call = observed.graph.call(index)
        there = tuple(rank for rank in call.standing if rank in cycle)
        evidence.append(StandIn(ranks=there, call=call_of(call, observed.table), is_entered_by_all=False))
    diverged: dict[int, OutOfOrder] = {}
    if observed.iterations is not None:
        diverged = observed.iterations.out_of_order(_launched(observed, cycle), observed.table.names)
    if diverged and len(diverged) < len(cycle):
        evidence += diverged.values()
        return RootCause(verdict="culprit", cause="H2", culprits=tuple(diverged), evidence=tuple(evidence))
    if not diverged and (released := _without_sends(observed)) is not None:
        return released
    minority = _cycle_minority(observed)
    if minority and not diverged:
        evidence.append(Apart(ranks=minority, by="order of most"))
        unseen = ("what these ranks did one iteration before",)
        return RootCause(verdict="suspected", cause="H2", culprits=minority, evidence=tuple(evidence), unseen=unseen)
    if observed.iterations is not None and not diverged and (found := _unlike_before(observed, cycle)) is not None:
        return replace(found, evidence=(*evidence, *found.evidence))
    unseen = ("which of them left the common order",)
    return RootCause(verdict="unknown", cause="H2", candidates=cycle, evidence=tuple(evidence), unseen=unseen)


def _unlike_before(observed: HangObservations, cycle: Sequence[int]) -> RootCause | None:
    """Of ranks that wait for each other, those who do not call what they called one iteration before.

    They have launched their calls in another order, or stand in one that nobody made then.
    """
    assert observed.iterations is not None
    turned = observed.iterations.launched_the_other_way_round(_open(observed, cycle), observed.table.names)
    if turned and len(turned) < len(cycle):
        unseen = ("whether their devices have these calls in the order in which their hosts have launched them",)
        evidence = tuple(turned.values())
        return RootCause(verdict="suspected", cause="H2", culprits=tuple(turned), evidence=evidence, unseen=unseen)
    strange = observed.iterations.newly_called(_standing(observed, cycle))
    if strange and len(strange) < len(cycle):
        unseen = ("whether that call is one that comes seldom, and the others are late for it",)
        own_past = (Apart(ranks=strange, by="own past"),)
        return RootCause(verdict="suspected", cause="H2", culprits=strange, evidence=own_past, unseen=unseen)
    return None


def _without_sends(observed: HangObservations) -> RootCause | None:
    """The same question for ranks that do not wait for what they have sent.

    A pipeline posts its sends and goes on. A rank that has stopped behind such a send seems to wait for the receiver,
    which waits for that rank elsewhere. Where somebody is missing once sends hold nobody, that one is suspected.
    """
    graph = wait_graph(observed.table, 0, unheard=observed.host_reports.unfollowed(), skipping=frozenset({"send"}))
    if graph.cycle or not graph:
        return None
    released = replace(observed, graph=graph)
    found = _behind(released) or _absent(released)
    if found is None or not found.culprits:
        return None
    return replace(
        found,
        verdict="culprit" if found.verdict == "culprit" else "suspected",
        evidence=(*found.evidence, Apart(ranks=found.culprits, by="open sends")),
    )


def _cycle_minority(observed: HangObservations) -> tuple[int, ...]:
    """Of ranks that wait for each other, those whom more of their peers contradict than follow.

    Such a rank has entered one call before another; of those who wait for it in the other one, more than are missing
    there have not entered the first: they have the two the other way round.
    """
    graph, cycle = observed.graph, set(observed.graph.cycle)
    minority = []
    for index in sorted({graph.stands_in(rank) for rank in cycle}):
        missing = graph.waited_for_in(index)
        standing = set(graph.call(index).standing)
        if len(missing) >= len(standing):
            continue
        for rank in missing:
            if rank in cycle and len(standing.intersection(graph.waits_for(rank))) > max(len(missing), 1):
                minority.append(rank)
    return tuple(sorted(set(minority)))


def _joint(observed: HangObservations) -> RootCause | None:
    """Calls in which everybody stands: nobody is missing, and they do not move."""
    one_sided = (index for index in observed.graph.behind if observed.graph.call(index).op in _ONE_SIDED)
    calls = [observed.graph.call(index) for index in (*observed.graph.joint, *one_sided)]
    if not calls:
        return None
    collectives = [call for call in calls if not observed.table.sequences[call.sequence].is_pair]
    calls = collectives or calls  # a send or receive may be posted long before its turn comes
    calls.sort(key=lambda call: (call.since_ns, call.sequence))
    evidence: list[Evidence] = [
        StandIn(ranks=call.standing, call=call_of(call, observed.table), is_entered_by_all=True)
        for call in calls[:SHOWN]
    ]
    idle_devices = _not_begun(observed, calls)
    if idle_devices:
        evidence.append(Apart(ranks=idle_devices, by="device not begun"))
        unseen: tuple[str, ...] = ("what occupies these devices",)
        name = _communicator_of(observed, idle_devices)
        if name is None:
            return RootCause(
                verdict="suspected", cause="H1", culprits=idle_devices, evidence=tuple(evidence), unseen=unseen
            )
        unseen = (*unseen, f"whether they, ranks of {name!r}, wait for each other in calls that are not seen")
        return RootCause(
            verdict="unknown", cause=None, candidates=idle_devices, evidence=tuple(evidence), unseen=unseen
        )
    links: list[tuple[int, int]] = []
    for call in calls:
        link, why = stuck_link(observed.table, call, observed.host_reports.host_of)
        if link is not None:
            links.append(link)
        if why is not None:
            evidence.append(why)
    everybody = tuple(sorted({rank for call in calls for rank in call.standing}))
    unique = tuple(sorted(set(links)))
    if len(unique) > 1 and all(_is_within_a_host(link, observed) for link in unique):
        unseen = ("what they wait for in calls that are not seen: links within a host do not fail together",)
        return RootCause(verdict="unknown", cause=None, candidates=everybody, evidence=tuple(evidence), unseen=unseen)
    if links and len(links) == len(calls):
        tags = () if collectives else ("tags: a send and a receive of different tags do not meet",)
        return RootCause(
            verdict="suspected",
            cause="H3",
            candidates=everybody,
            links=unique,
            evidence=tuple(evidence),
            unseen=("whether the link itself or one of its two ends does not move", *tags),
        )
    common = set(calls[0].standing).intersection(*(call.standing for call in calls))
    if len(calls) > 1 and len(common) == 1:
        culprits = tuple(common)
        evidence.append(Apart(ranks=culprits, by="every call"))
        unseen = ("which of its links does not move",)
        return RootCause(verdict="suspected", cause="H3", culprits=culprits, evidence=tuple(evidence), unseen=unseen)
    return RootCause(
        verdict="unknown",
        cause="H3",
        candidates=everybody,
        evidence=tuple(evidence),
        unseen=("send and receive counts that single out a link",),
    )


def _is_within_a_host(link: tuple[int, int], observed: HangObservations) -> bool:
    host = observed.host_reports.host_of.get(link[0])
    return host is not None and observed.host_reports.host_of.get(link[1]) == host


def _communicator_of(observed: HangObservations, ranks: tuple[int, ...]) -> str | None:
    """The name of a communicator that has these ranks and no others; of three and more, and others, but not all."""
    n_all, asked = len(set(observed.table.column("rank").tolist())), set(ranks)
    of_them = [
        (len(one.ranks), one.communicator)
        for one in observed.table.sequences
        if not one.is_pair and asked <= set(one.ranks)
    ]
    n_ranks, communicator = min(of_them, default=(n_all, ""))
    if len(ranks) < 2 or (n_ranks > len(ranks) and (len(ranks) < 3 or n_ranks == n_all)):
        return None
    return observed.table.names.get(communicator, communicator)


def _not_begun(observed: HangObservations, calls: Sequence[StuckCall]) -> tuple[int, ...]:
    """Ranks that have launched a call and whose device is still busy with something else, where most have begun it.

    Only where the source tells for everybody: a kernel that has begun waits for those that have not.
    """
    late: set[int] = set()
    for call in calls:
        open_calls = {rank: observed.table.open_call(call.sequence, rank, call.seq) for rank in call.standing}
        begun = {rank: one.has_started for rank, one in open_calls.items() if one is not None}
        if None in begun.values() or len(begun) < len(open_calls):
            continue
        mine = {rank for rank, has_begun in begun.items() if not has_begun}
        if 2 * len(mine) < len(begun) or (len(begun) == 2 and len(mine) == 1):
            late |= mine
    return tuple(sorted(late))


def _launched_less(observed: HangObservations) -> RootCause | None:
    """All that launches alone can tell: the host that stopped first has launched the fewest calls."""
    lacks = launch_graph(observed.table)
    if not lacks:
        return None
    most = max(lacks.values())
    named = tuple(rank for rank in sorted(lacks) if lacks[rank] > MIN_LACK * most)
    others = tuple(rank for rank in sorted(lacks) if rank not in named)
    host_reports = observed.host_reports
    evidence: list[Evidence] = [LaunchedFewer(rank=rank, n_calls=lacks[rank]) for rank in named[:SHOWN]]
    stacks = {rank: stack for rank in named if (stack := host_reports.outside_of_calls(rank)) is not None}
    if outside := tuple(stacks):
        evidence += stacks.values()
        return RootCause(
            verdict="culprit",
            cause="H1",
            culprits=outside,
            candidates=tuple(rank for rank in named if rank not in outside),
            evidence=tuple(evidence),
        )
    unseen = ("when calls end: only their launches are seen", f"what it does: {_missing_stack(observed, named)}")
    if any(_may_call_unseen(observed, rank) for rank in named):
        return RootCause(verdict="unknown", cause=None, candidates=named, evidence=tuple(evidence), unseen=unseen)
    return RootCause(
        verdict="suspected", cause="H1", culprits=named, candidates=others, evidence=tuple(evidence), unseen=unseen
    )


def _stall(observed: HangObservations) -> RootCause:
    """Nobody waits in a call that can be seen."""
    host_reports, table = observed.host_reports, observed.table
    outside = "what the ranks do outside of calls (data loading, storage, a lock)"
    behind = table.behind()
    if len(behind) == 1 and not host_reports.is_unseen(behind[0]):
        return RootCause(
            verdict="suspected",
            cause="H1",
            culprits=behind,
            evidence=(LaunchedFewer(rank=behind[0]),),
            unseen=(outside, *_dark(observed)),
        )
    if (by_stacks := _outside_of_unseen_calls(observed)) is not None:
        return by_stacks
    stacks = (host_reports.outside_of_calls(rank) for rank in sorted(host_reports.stacks))
    seen = tuple(stack for stack in stacks if stack is not None)
    everybody = tuple(sorted(host_reports.processes))
    return RootCause(
        verdict="unknown", cause=None, candidates=everybody, evidence=seen[:SHOWN], unseen=(outside, *_dark(observed))
    )


def _outside_of_unseen_calls(observed: HangObservations) -> RootCause | None:
    """Ranks that stand in no call by their stacks, where most others do: in a `new_group` that not all make, say."""
    host_reports = observed.host_reports
    running = {rank for rank, process in host_reports.processes.items() if process.state == "running"}
    looked_at = running & host_reports.stacks.keys()
    apart = tuple(sorted(rank for rank in looked_at if not host_reports.is_in_unseen_call(rank)))
    if not apart or 2 * len(apart) >= len(looked_at):
        return None
    outside = [stack for rank in apart if (stack := host_reports.outside_of_calls(rank)) is not None]
    is_sure = len(outside) == len(apart) and looked_at == running
    return RootCause(
        verdict="culprit" if is_sure else "suspected",
        cause="H1",
        culprits=apart,
        candidates=tuple(sorted(running - looked_at)),
        evidence=(Apart(ranks=apart, by="stacks"), *outside[:SHOWN]),
        unseen=() if is_sure else (f"what these ranks do instead: {_missing_stack(observed, apart)}",),
    )


def _may_call_unseen(observed: HangObservations, rank: int) -> bool:
    """It may stand in a call of which nothing is known."""
    reports = observed.host_reports
    return reports.is_in_unseen_call(rank) or reports.is_unseen(rank) or _may_replay(observed, rank)


def _may_replay(observed: HangObservations, rank: int) -> bool:
    """It is in a communicator whose calls were captured into a graph, and no stack shows that it waits elsewhere."""
    blind = observed.table.blind
    stack = observed.host_reports.stacks.get(rank)
    if not blind or (stack is not None and stack.doing not in ("in_call", "unknown")):
        return False
    return any(
        sequence.communicator in blind and len(sequence.ranks) > 1 and rank in sequence.ranks
        for sequence in observed.table.sequences
    )


def _dark(observed: HangObservations) -> tuple[str, ...]:
    """What kinds of calls are not seen in this job."""
    sentences = []
    if observed.table.blind:
        names = sorted(observed.table.names.get(c, c) for c in observed.table.blind)
        sentences.append(f"replays of the calls captured on {', '.join(map(repr, names[:SHOWN]))}")
    libraries = sorted({name for stack in observed.host_reports.stacks.values() for name in stack.libraries})
    if libraries:
        sentences.append(f"calls of {', '.join(libraries)}")
    return tuple(sentences)


def _missing_stack(observed: HangObservations, ranks: Sequence[int]) -> str:
    libraries = sorted({name for rank in ranks for name in observed.host_reports.unseen_libraries(rank)})
    if libraries:
        return f"they have {', '.join(libraries)} loaded, whose calls are not seen"
    stacks = observed.host_reports.stacks
    if all(rank in stacks and stacks[rank].doing == "lock" for rank in ranks):
        return "they wait for a lock, and who holds it is not seen"
    if any(rank in stacks for rank in ranks):
        return "their stacks do not tell"
    return "their stacks, and calls of libraries that are not seen"


def _open(observed: HangObservations, ranks: Sequence[int]) -> dict[int, dict[tuple[SequenceKey, int], int]]:
    """By rank, when each call that it has open was launched."""
    table = observed.table
    open_ns: dict[int, dict[tuple[SequenceKey, int], int]] = {rank: {} for rank in ranks}
    for slot, rank, key in _slots_of(observed, ranks):
        open_ns[rank] |= {(key, call.seq): call.launch_ns for call in table.open_calls(slot)}
    return open_ns


def _launched(observed: HangObservations, ranks: Sequence[int]) -> dict[int, dict[SequenceKey, int]]:
    """By rank, the last call that it has launched on each sequence."""
    launched: dict[int, dict[SequenceKey, int]] = {rank: {} for rank in ranks}
    for slot, rank, key in _slots_of(observed, ranks):
        launched[rank][key] = int(observed.table.column("launched")[slot])
    return launched


def _standing(observed: HangObservations, ranks: Sequence[int]) -> dict[int, SequenceKey]:
    """By rank, the sequence of the call in which it stands."""
    at = {rank: observed.graph.stands_in(rank) for rank in ranks}
    keys = {index: _key(observed.table.sequences[observed.graph.call(index).sequence]) for index in set(at.values())}
    return {rank: keys[index] for rank, index in at.items()}


def _key(sequence: CallSequence) -> SequenceKey:
    return sequence.communicator, (sequence.ranks[0], sequence.ranks[1]) if sequence.is_pair else None


def _slots_of(observed: HangObservations, ranks: Sequence[int]) -> Iterator[tuple[int, int, SequenceKey]]:
    """The slots of some ranks, with the rank and the sequence of each."""
    table = observed.table
    slot_ranks, sequences = table.column("rank"), table.column("sequence")
    for slot in np.flatnonzero(np.isin(slot_ranks, ranks)).tolist():
        yield slot, int(slot_ranks[slot]), _key(table.sequences[int(sequences[slot])])
