"""What a validation has measured, and what becomes of a slowdown by it: a suspect is proven, or cleared.

A validation measures while the slowdown lasts and the ranks do nothing else (actuators/validation): a rank that takes
longer than its peers for the same work is slow itself, and one that does not only waits, or has other work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pacehound.model.events import SURENESS, Finding, JudgedRanks
from pacehound.model.evidence import merged
from pacehound.model.evidence.machines import Measured, NobodySlow
from streams.watching.waking import slowness_wakes

WEIGHED = ("slow", "intermittent")
MOST_KEPT = 64
"""Slowdowns of one job that last at the same time: far more than there are watches."""


class Measurements:
    """The slowdowns of one job that last, and what was measured while they did.

    Parameters
    ----------
    min_change
        `slow.min_change`, for whether a name wakes somebody.

    """

    def __init__(self, min_change: float) -> None:
        self._min_change = min_change
        self._lasting: dict[str, Finding] = {}  # as their watch said them last
        self._judged: dict[str, tuple[JudgedRanks, ...]] = {}
        self._more: dict[str, int] = {}  # versions that were said besides those of the watch

    def weighed(self, finding: Finding) -> Finding:
        """What is to be told of a finding that a watch says."""
        if finding.kind not in WEIGHED:
            return finding
        told = self._told(finding)
        if finding.relief is None:
            self._lasting[finding.id] = finding
            for oldest in list(self._lasting)[:-MOST_KEPT]:
                self._forget(oldest)
        else:
            self._forget(finding.id)
        return told

    def on_judged(self, judged: tuple[JudgedRanks, ...], time_ns: int) -> list[Finding]:
        """Each slowdown that began before the measurement, told anew."""
        told: list[Finding] = []
        if not judged:
            return told
        for finding in self._lasting.values():
            if finding.onset is not None and finding.onset.time_ns < time_ns:
                self._judged[finding.id] = judged
                self._more[finding.id] = self._more.get(finding.id, 0) + 1
                told.append(self._told(finding))
        return told

    def _told(self, finding: Finding) -> Finding:
        told = replace(finding, version=finding.version + self._more.get(finding.id, 0))
        judged = self._judged.get(finding.id)
        return told if judged is None else weighed_by_measurement(told, judged, self._min_change)

    def _forget(self, finding: str) -> None:
        for known in (self._lasting, self._judged, self._more):
            known.pop(finding, None)


def weighed_by_measurement(finding: Finding, judged: Sequence[JudgedRanks], min_change: float) -> Finding:
    """The finding, with what was measured of its ranks.

    Who was proven slow is the culprit, if the finding suspects it or nobody; where it names somebody else as a culprit
    both are told, and its verdict stays. A suspect that was measured and is as fast as its peers is one no more.

    Examples
    --------
    >>> suspicion = Finding(id="a", job="j", attempt=0, kind="slow", verdict="suspected", cause="S1", culprits=(1,))
    >>> slow = JudgedRanks(ranks=(1,), hosts=("h",), verdict="culprit", measured="memory", ratio=2.0, reason="")
    >>> weighed_by_measurement(suspicion, [slow], 0.1).verdict
    'culprit'

    """
    proven = [one for one in judged if one.verdict == "culprit"]
    if not proven:
        return _cleared(finding, judged)
    evidence = merged(finding.evidence, map(_measured, proven))
    ranks = tuple(sorted({one.ranks[0] for one in proven if len(one.ranks) == 1}))
    links = tuple(sorted({(one.ranks[0], one.ranks[1]) for one in proven if len(one.ranks) > 1}))
    if not _fits(finding, ranks, links):
        return replace(finding, evidence=evidence)
    is_named = slowness_wakes(finding.magnitude, is_lasting=finding.lasting, is_named=True, min_change=min_change)
    everybody = {*finding.victims, *finding.candidates, *finding.culprits}
    return replace(
        finding,
        verdict="culprit",
        cause=finding.cause or ("S1" if ranks else "S2"),
        culprits=ranks,
        links=links,
        candidates=(),
        victims=tuple(sorted(everybody - set(ranks))),
        pages=finding.pages or (finding.kind == "slow" and is_named),
        evidence=evidence,
    )


def _fits(finding: Finding, ranks: tuple[int, ...], links: tuple[tuple[int, int], ...]) -> bool:
    """Whether what was proven is what the finding suspects, or among what it leaves open."""
    ends = {rank for link in links for rank in link}
    if SURENESS[finding.verdict] == SURENESS["culprit"]:
        named = {*finding.culprits, *(rank for link in finding.links for rank in link)}
        return named == {*ranks, *ends}
    suspected = {*finding.culprits, *finding.candidates, *(rank for link in finding.links for rank in link)}
    return not suspected or {*ranks, *ends} <= suspected


def _cleared(finding: Finding, judged: Sequence[JudgedRanks]) -> Finding:
    cleared = {one.ranks: one for one in judged if one.verdict == "cleared"}
    suspects = [*((rank,) for rank in finding.culprits), *finding.links]
    if finding.verdict == "suspected" and all(suspect in cleared for suspect in suspects):
        evidence = merged(finding.evidence, (_measured(cleared[suspect]) for suspect in suspects))
        whom = tuple(sorted({*finding.candidates, *(rank for suspect in suspects for rank in suspect)}))
        return replace(
            finding, verdict="unknown", culprits=(), links=(), victims=(), candidates=whom, evidence=evidence
        )
    well = sum(len(ranks) == 1 for ranks in cleared)
    return replace(finding, evidence=merged(finding.evidence, (NobodySlow(n_measured=len(judged), n_cleared=well),)))


def _measured(one: JudgedRanks) -> Measured:
    return Measured(ranks=one.ranks, verdict=one.verdict, measured=one.measured, ratio=one.ratio)
