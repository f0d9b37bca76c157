"""Whether the host's processors are the reason: it weighs an answer, and finds none by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pacehound.model.evidence import merged
from pacehound.model.evidence.machines import More
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.verdict import Attribution, most_culprits
from streams.slow.thresholds import MIN_EXPLAINED, NEARLY

SHOWN = 3


AWAITED = "whether the machine is busy: its processors have not been read often enough since"


def _beside(culprits: Sequence[int], ranks: Sequence[int], observed: Observations) -> tuple[int, ...]:
    """The other ranks of the hosts on which these are."""
    hosts = {observed.hosts[rank] for rank in culprits if rank in observed.hosts}
    return tuple(rank for rank in ranks if rank not in culprits and observed.hosts.get(rank) in hosts)


def weighed_by_shortages(
    found: Attribution, ranks: Sequence[int], since_ns: int, magnitude: float, observed: Observations
) -> Attribution:
    """An answer, with the ranks that lack processors for at least half of what the iterations have grown by.

    Where many ranks compute for longer and all of them lack processors, that is what they share: they are named. Where
    a minority of the candidates does, and the others clearly do not, it is suspected. Nobody else is named for it.
    Where those who share the culprits' hosts lack them, too, the machine is busy and nobody is named: on which of its
    ranks that shows is chance. Until a host that reads its processors has done so, its ranks are suspected at most.

    `ranks` are those of the whole job; `magnitude` is by what share iterations are longer since `since_ns`.
    """
    if found.kind != "slow" or magnitude <= 0.0:
        return found
    if found.awaits_processors:
        unseen = tuple(words for words in found.unseen if words != AWAITED)
        found = replace(found, verdict="culprit", unseen=unseen, awaits_processors=False)
    if found.verdict == "culprit" and found.culprits and observed.awaits_processors(found.culprits, since_ns):
        return replace(found, verdict="suspected", unseen=(*found.unseen, AWAITED), awaits_processors=True)
    ends = tuple({rank for link in found.links for rank in link})
    asked = found.culprits or ends or found.candidates or ranks
    min_share = MIN_EXPLAINED * magnitude / (1.0 + magnitude)
    reasons = observed.shortages(asked, since_ns, min_share)
    if not reasons:
        return found
    short = tuple(sorted(reasons))
    lacks = merged((), (reasons[rank] for rank in short))
    if len(lacks) > SHOWN:
        lacks = (*lacks[:SHOWN], More(n=len(lacks) - SHOWN, are_alike=True))
    found = replace(found, short_of_processors=short, evidence=merged(found.evidence, lacks))
    if found.culprits:
        beside = _beside(found.culprits, ranks, observed)
        if beside and len(observed.shortages(beside, since_ns, NEARLY * min_share)) == len(beside):
            return replace(
                found,
                verdict="unknown",
                culprits=(),
                links=(),
                candidates=tuple(sorted((*found.culprits, *beside))),
                unseen=(*found.unseen, "who is slow by itself: all ranks of the host lack processors"),
            )
        return found
    if found.links:
        return found
    if not found.candidates:
        return replace(found, candidates=short)
    if short == tuple(sorted(found.candidates)):
        is_own_time = found.cause is None and len(short) < len(ranks)
        return replace(found, verdict="culprit", cause="S1", culprits=short, candidates=()) if is_own_time else found
    is_few = len(short) <= min(most_culprits(len(ranks)), len(found.candidates) // 2)
    if is_few and len(observed.shortages(asked, since_ns, NEARLY * min_share)) == len(short):
        others = tuple(rank for rank in found.candidates if rank not in reasons)
        return replace(found, verdict="suspected", cause=found.cause or "S1", culprits=short, candidates=others)
    return found
