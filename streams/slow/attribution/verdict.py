"""What is said of slow iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pacehound.model.events import Cause, Finding
from pacehound.model.evidence import Evidence
from streams.slow.thresholds import MAX_CULPRIT_SHARE, MAX_CULPRITS


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who made the iterations longer, as far as it can be said.

    `short_of_processors`: ranks that get less of their host's processors than before, among those it is about.
    `awaits_processors`: it is no more than a suspicion until the processors have been read, which could clear them.
    `may_be_the_machine`: its processors are crowded, or are yet to be read, so that nobody is called for now.
    """

    kind: Literal["slow", "change"]
    verdict: Literal["culprit", "suspected", "unknown"]
    cause: Cause | None
    culprits: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    unseen: tuple[str, ...] = ()
    short_of_processors: tuple[int, ...] = ()
    awaits_processors: bool = False
    may_be_the_machine: bool = False


def with_names(finding: Finding, found: Attribution, ranks: Sequence[int]) -> Finding:
    """The finding with this answer to whose delay it is; `ranks` are those of the job."""
    return replace(
        finding,
        verdict=found.verdict,
        cause=found.cause,
        culprits=found.culprits,
        candidates=found.candidates,
        victims=tuple(rank for rank in ranks if rank not in found.culprits) if found.culprits else (),
        links=found.links,
    )


def most_culprits(n_ranks: int) -> int:
    """How many ranks may be named at once: more of them share something, or their work.

    >>> most_culprits(2), most_culprits(64)
    (3, 16)
    """
    return max(MAX_CULPRITS, int(MAX_CULPRIT_SHARE * n_ranks))
