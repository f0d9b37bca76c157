"""Whether the machine, and not one of its ranks, may be what makes iterations longer: it holds an answer back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pacehound.model.evidence import merged
from pacehound.model.evidence.computing import OwnTimeGrew
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.verdict import Attribution
from streams.slow.thresholds import MIN_EXPLAINED, SHARED_GROWTH


def weighed_by_crowd(
    found: Attribution, ranks: Sequence[int], since_ns: int, magnitude: float, observed: Observations
) -> Attribution:
    """An answer, held back while those whom it is about wait for the processors of a crowded machine.

    Where no rank of a machine has the processor that it wants, also if that was so before, a slowdown comes and goes
    with the others' work, and on which rank it shows is chance: nobody is named. Nor is anybody woken, also where
    nobody had a name, until it has lasted; and without a name not before the machine's processors have been read.
    Who has a machine for itself may well be named for it. It takes less for that where the others compute for longer,
    too: processors that other work shares are slower for whoever has them, whether or not it waits for one.

    `ranks` are those of the whole job; `magnitude` is by what share iterations are longer since `since_ns`.
    """
    if found.kind != "slow" or magnitude <= 0.0:
        return found
    of = found.culprits or tuple(sorted({rank for link in found.links for rank in link}))
    hosts = {observed.hosts[rank] for rank in of if rank in observed.hosts}
    asked = tuple(rank for rank in ranks if observed.hosts.get(rank) in hosts) if of else tuple(ranks)
    if of and len(asked) <= len(of) and not found.links:
        return found
    min_share = MIN_EXPLAINED * magnitude / (1.0 + magnitude)
    crowd = observed.crowd(asked, since_ns, min_share, is_apart=bool(of) and _stands_apart(found))
    if crowd is None:
        return found if of else replace(found, may_be_the_machine=True)
    if not crowd:
        return found
    return replace(
        found,
        verdict="unknown",
        culprits=(),
        links=(),
        candidates=asked if of else found.candidates,
        evidence=merged(found.evidence, crowd),
        unseen=(*found.unseen, "who is slow by itself: no rank of the machine has the processors that it wants"),
        may_be_the_machine=True,
    )


def _stands_apart(found: Attribution) -> bool:
    """Nearly all of the growth is that of those who are named, as far as own times tell."""
    grew = [one for one in found.evidence if isinstance(one, OwnTimeGrew)]
    return all(one.peers_s < SHARED_GROWTH * one.own_s for one in grew)
