"""How much longer than their peers the culprits of a slowdown compute, from its evidence; pure.

What calls show is of the job's own work and comes first: by how much the own time of a culprit grew, over the iteration
before (OwnTimeGrew), or its own time over that of its peers (OwnTimeApart). Only where neither is known a validation's
ratio counts: it is of work that we chose. An iteration that also communicates makes the first one too small, so that
too few micro-batches are moved, never too many.
"""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.model.events import Finding
from pacehound.model.evidence.computing import OwnTimeApart, OwnTimeGrew
from pacehound.model.evidence.machines import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Times of the slow ranks, as multiples of the others'.

    Attributes
    ----------
    ratios
        By rank; above 1.
    source
        Where they come from, in words.

    """

    ratios: dict[int, float]
    source: str


def speeds_of(finding: Finding) -> Speeds | None:
    """What the evidence says of the culprits; `None` where it does not say how much slower they are.

    >>> from pacehound.model.events import Finding
    >>> grew = OwnTimeGrew(ranks=(2,), own_s=0.06, peers_s=0.0, iteration_s=0.05)
    >>> slow = Finding(id="f", job="j", attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(2,),
    ...     magnitude=0.5, evidence=(grew,))
    >>> speeds_of(slow).ratios
    {2: 1.6}
    """
    culprits = set(finding.culprits)
    for piece in finding.evidence:
        if isinstance(piece, OwnTimeGrew) and culprits & set(piece.ranks):
            if not finding.magnitude or finding.magnitude <= 0 or piece.iteration_s <= 0:
                continue
            before_s = piece.iteration_s / finding.magnitude
            grown_s = dict.fromkeys(piece.ranks, piece.own_s) | dict(piece.rank_s)
            return _speeds({r: 1 + grown_s[r] / before_s for r in culprits if r in grown_s}, "its own time grew")
        if isinstance(piece, OwnTimeApart) and culprits & set(piece.ranks) and piece.peers_s > 0:
            own_s = dict.fromkeys(piece.ranks, piece.own_s) | dict(piece.rank_s)
            return _speeds({r: own_s[r] / piece.peers_s for r in culprits if r in own_s}, "its own time, to its peers'")
    measured = {
        piece.ranks[0]: piece.ratio
        for piece in finding.evidence
        if isinstance(piece, Measured) and len(piece.ranks) == 1 and piece.verdict == "culprit" and piece.ratio
    }
    return _speeds({rank: ratio for rank, ratio in measured.items() if rank in culprits}, "measured while it was held")


def _speeds(ratios: dict[int, float], source: str) -> Speeds | None:
    slow = {rank: ratio for rank, ratio in sorted(ratios.items()) if ratio > 1}
    return Speeds(ratios=slow, source=source) if slow else None
