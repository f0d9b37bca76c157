"""Ranks that met in one round with different calls (H2): who differs, and from what."""

from __future__ import annotations

from pacehound.model.events import CallSignature
from pacehound.model.evidence import Evidence
from pacehound.model.evidence.piece import MOST_RANKS
from pacehound.model.evidence.waiting import Apart, CalledDifferently, OutOfStep, Side
from streams.hang.observations import HangObservations, RootCause
from streams.rounds.signatures import Disagreement, disagreement, signature_of


def mismatch(observed: HangObservations) -> RootCause | None:
    """Ranks that met in one round with different calls."""
    found = _first_disagreement(observed)
    if found is None:
        return None
    communicator, seq, sides = found
    name = observed.table.names.get(communicator, communicator)
    evidence: list[Evidence] = [CalledDifferently(communicator=name, seq=seq, sides=_sides(sides))]
    strange = None
    if observed.iterations is not None:
        signatures = {rank: signature for signature, ranks in sides.sides for rank in ranks}
        strange = observed.iterations.diverging(communicator, seq, signatures)
        # Whose calls have met with those of another iteration for a while calls what is usual, and the others do not.
        shifted = observed.iterations.out_of_step(communicator)
        if any(set(shifted) == set(ranks) for _, ranks in sides.sides):
            evidence += [OutOfStep(rank=rank, n_calls=n) for rank, n in list(shifted.items())[:MOST_RANKS]]
            return RootCause(verdict="culprit", cause="H2", culprits=tuple(shifted), evidence=tuple(evidence))
    minority = sides.minority
    if strange and (not minority or set(strange) == set(minority)):
        evidence.append(Apart(ranks=strange, by="own past"))
        return RootCause(verdict="culprit", cause="H2", culprits=strange, evidence=tuple(evidence))
    if minority and strange is None:
        evidence.append(Apart(ranks=minority, by="all others"))
        unseen = ("what these ranks called one iteration before",)
        return RootCause(verdict="suspected", cause="H2", culprits=minority, evidence=tuple(evidence), unseen=unseen)
    unseen = ("which side went astray: no side has a majority that its own earlier calls bear out",)
    return RootCause(verdict="unknown", cause="H2", candidates=sides.ranks, evidence=tuple(evidence), unseen=unseen)


def _sides(found: Disagreement) -> tuple[Side, ...]:
    return tuple(
        Side(ranks=ranks[:MOST_RANKS], n_ranks=len(ranks), call=str(signature)) for signature, ranks in found.sides
    )


def _first_disagreement(observed: HangObservations) -> tuple[str, int, Disagreement] | None:
    """The earliest round of which the calls differ: what comes after it is shifted."""
    met: dict[tuple[str, int], dict[int, CallSignature]] = {
        key: dict(signatures) for key, signatures in observed.mismatches.items()
    }
    since: dict[tuple[str, int], int] = dict.fromkeys(met, 0)
    # Where somebody has left a round with another call those that are in it may agree.
    indices = range(observed.graph.n_calls) if met else observed.graph.disagreeing()
    for index in indices:
        call = observed.graph.call(index)
        sequence = observed.table.sequences[call.sequence]
        key = (sequence.communicator, call.seq)
        if sequence.is_pair:
            continue
        for rank in sequence.ranks:
            open_call = observed.table.open_call(call.sequence, rank, call.seq)
            if open_call is not None:
                # What is known of a mismatch may have a size besides.
                met.setdefault(key, {}).setdefault(rank, signature_of(open_call))
        since.setdefault(key, call.since_ns)
    for key in sorted(met, key=lambda key: (since[key], key[1], key[0])):
        sides = disagreement(met[key])
        if sides is not None:
            return (*key, sides)
    return None
