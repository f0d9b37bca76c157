"""The slow stretch that is going on, and what is said of it when it goes on otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pacehound.model.events import Finding
from pacehound.model.evidence import merged
from streams.slow.attribution.verdict import Attribution
from streams.slow.pace import Pace


@dataclass(slots=True)
class SlowEpisode:
    """The slow stretch that is going on: its finding, and what it is measured by."""

    finding: Finding
    onset_step: int
    before_s: float
    next_look: int
    found: Attribution  # whose delay it is, as calls and counts tell
    told: Attribution  # the same, held back while it may be the machine
    began: Finding  # what was said of it first
    before: Pace | None  # the pace before it; nothing where too little is known of it
    level_back: int | None = None  # the step since which most iterations take what they took, while others do not


def continued(episode: SlowEpisode, again: Finding) -> Finding:
    """What is said of the level of a slow stretch that has never ended: it is the finding of its beginning."""
    return replace(
        again,
        id=episode.finding.id,
        onset=episode.finding.onset,
        detected=episode.finding.detected,
        lasting=episode.finding.lasting or again.lasting,
        evidence=merged(episode.began.evidence, again.evidence),
    )


def joined(before: Attribution, worse: Attribution) -> Attribution:
    """What is to be said when a slow stretch has become slower still: the second fault may have another reason.

    Of the same class both are named; where the first look named nobody, the second one counts.
    """
    if not (worse.culprits or worse.links):
        return before
    if not (before.culprits or before.links):
        return worse
    if before.cause != worse.cause:
        return before
    return replace(
        before,
        verdict="culprit" if before.verdict == worse.verdict == "culprit" else "suspected",
        culprits=tuple(sorted({*before.culprits, *worse.culprits})),
        links=tuple(sorted({*before.links, *worse.links})),
        evidence=merged(before.evidence, worse.evidence),
        unseen=tuple(dict.fromkeys((*before.unseen, *worse.unseen))),
    )
