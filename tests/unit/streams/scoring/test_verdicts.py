"""Verdict scores: exactly the guilty, by the right class and word, and an innocent is the worst of all."""

import pytest

from pacehound.model.events import Finding
from pacehound.model.truth.causes import CauseTruth
from streams.scoring.verdicts import VerdictScore, outcome_of, score_verdicts

RANK = CauseTruth(cause="S1", culprits=(3,), must_name=True, words=frozenset({"culprit", "suspected"}))
LINK = CauseTruth(cause="S2", links=((3, 4),), must_name=True, words=frozenset({"culprit", "suspected"}))
BOTH = CauseTruth(cause="S3", culprits=(3,), links=((3, 4),), must_name=True, words=frozenset({"culprit"}))
NOBODY = CauseTruth(cause="H3")


def found(verdict="culprit", cause="S1", culprits=(3,), links=(), **given):
    return Finding(
        **{"id": "f", "job": "j", "attempt": 0, "kind": "slow", **given},
        verdict=verdict,
        cause=cause,
        culprits=culprits,
        links=links,
    )


@pytest.mark.parametrize(
    ("findings", "truth", "outcome"),
    [
        ([found()], RANK, "named"),
        ([found("suspected")], RANK, "named"),
        ([found(cause="S3")], RANK, "wrong class"),
        ([found(culprits=(3, 4))], RANK, "innocent"),
        ([found(), found(culprits=(4,), id="g")], RANK, "innocent"),
        ([found("suspected", culprits=(4,))], RANK, "suspected"),
        ([found("unknown", None, ())], RANK, "unknown"),
        ([found(), found("unknown", None, (), version=1)], RANK, "unknown"),
        ([], RANK, "nothing"),
        ([found("suspected", "S2", (), ((4, 3),))], LINK, "named"),
        ([found("culprit", "S2", (), ((4, 5),))], LINK, "innocent"),
        ([found("culprit", "S1", (3,))], LINK, "innocent"),
        ([found("culprit", "S3", (3,), ((3, 4),))], BOTH, "named"),
        ([found("culprit", "S3", (3,))], BOTH, "named"),
        ([found("suspected", "S3", (3,))], BOTH, "wrong word"),
        ([found("culprit", "S1", (3,))], BOTH, "wrong class"),
        ([found("suspected", "H3", (3,))], NOBODY, "suspected"),
        ([found("culprit", "H3", (3,))], NOBODY, "innocent"),
        ([found("unknown", "H3", (), kind="planned")], NOBODY, "nothing"),
    ],
)
def test_outcomes(findings, truth, outcome):
    assert outcome_of(findings, truth) == outcome


def test_scores_add_up_and_keep_what_must_be_named_apart():
    total = VerdictScore()
    for findings, truth in (([found()], RANK), ([], RANK), ([found("culprit", "H3", (3,))], NOBODY)):
        total += score_verdicts(findings, truth)
    assert (total.cases, total.must_name, total.named_share, total.all_of("innocent")) == (3, 2, 0.5, 1)
    assert VerdictScore().named_share is None


def test_what_must_be_named_has_a_name():
    with pytest.raises(ValueError, match="somebody"):
        CauseTruth(cause="H3", must_name=True)
