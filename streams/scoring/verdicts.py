"""Scores verdicts: was the cause named, with its class and exactly its ranks, and was nobody else blamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pacehound.model.events import Finding
from pacehound.model.truth.causes import CauseTruth
from streams.scoring.evaluate import final_versions

Outcome = Literal["named", "wrong class", "wrong word", "innocent", "suspected", "unknown", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictScore:
    """How many cases ended how, those that had to be named apart from those that had not; scores add up.

    `must` and `may` count outcomes: `named`: the right class, and exactly the right ranks and links, by a word that is
    right; `wrong class`, `wrong word`: exactly these, but not that; `innocent`: somebody else is called `culprit`;
    `suspected`: others are suspected; `unknown`: it was seen, and nobody was named; `nothing`: it was not seen.
    """

    must: Mapping[Outcome, int] = field(default_factory=dict)
    may: Mapping[Outcome, int] = field(default_factory=dict)

    def __add__(self, other: VerdictScore) -> VerdictScore:
        return VerdictScore(must=Counter(self.must) + Counter(other.must), may=Counter(self.may) + Counter(other.may))

    @property
    def cases(self) -> int:
        """All of them."""
        return self.must_name + sum(self.may.values())

    @property
    def must_name(self) -> int:
        """Cases that had to be named."""
        return sum(self.must.values())

    @property
    def named_share(self) -> float | None:
        """Named rightly over those that had to be; `None` where none had to."""
        return self.must.get("named", 0) / self.must_name if self.must_name else None

    def all_of(self, outcome: Outcome) -> int:
        """Cases of both kinds that ended so."""
        return self.must.get(outcome, 0) + self.may.get(outcome, 0)


def outcome_of(findings: Iterable[Finding], truth: CauseTruth) -> Outcome:
    """What the findings about one job are worth; all versions of one count as its last.

    Examples
    --------
    >>> truth = CauseTruth(cause="H1", culprits=(3,), must_name=True, words=frozenset({"culprit"}))
    >>> found = Finding(id="f", job="j", attempt=0, kind="hang", verdict="culprit", cause="H1", culprits=(3,))
    >>> outcome_of([found], truth), outcome_of([], truth)
    ('named', 'nothing')
    """
    final = [finding for finding in final_versions(findings) if finding.kind != "planned"]
    if any(finding.verdict == "culprit" and not _is_guilty(finding, truth) for finding in final):
        return "innocent"
    exact = [finding for finding in final if finding.verdict != "unknown" and _names_exactly(finding, truth)]
    of_class = [finding for finding in exact if finding.cause == truth.cause]
    if any(finding.verdict in truth.words or not truth.must_name for finding in of_class):
        return "named"
    if exact:
        return "wrong word" if of_class else "wrong class"
    if any(finding.verdict != "unknown" for finding in final):
        return "suspected"
    return "unknown" if final else "nothing"


def score_verdicts(findings: Iterable[Finding], truth: CauseTruth) -> VerdictScore:
    """The score of one job."""
    ended: Mapping[Outcome, int] = {outcome_of(findings, truth): 1}
    return VerdictScore(must=ended) if truth.must_name else VerdictScore(may=ended)


def _is_guilty(finding: Finding, truth: CauseTruth) -> bool:
    """Everybody, and every link, that a finding blames is to blame."""
    return set(finding.culprits) <= set(truth.culprits) and _undirected(finding.links) <= _undirected(truth.links)


def _names_exactly(finding: Finding, truth: CauseTruth) -> bool:
    """The same ranks and, in either direction, the same links.

    Where both a rank and its link are to blame, the rank is enough.
    """
    links = _undirected(finding.links)
    same_links = links == _undirected(truth.links) or (bool(truth.culprits) and not links)
    return bool(truth.culprits or truth.links) and set(finding.culprits) == set(truth.culprits) and same_links


def _undirected(links: tuple[tuple[int, int], ...]) -> set[frozenset[int]]:
    return {frozenset(link) for link in links}
