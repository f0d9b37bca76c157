"""Scoring: what counts as found, as false, as a repeat, whoever found it and in whatever order."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.events import Finding, Instant
from pacehound.model.truth.steps import StepTruth, TrueChange
from streams.scoring.evaluate import Score, final_versions, score
from tests.fakes.examples import examples

LAST = 9_999


def at(step):
    return None if step is None else Instant(step=step, time_ns=step * 10**9)


def finding(onset, relief=None, *, said=None, kind="slow", lasting=True, magnitude=0.2, version=0, name=None, **more):
    return Finding(
        id=name or f"{kind}-{onset}",
        job="job",
        attempt=0,
        kind=kind,
        verdict="culprit" if more.get("culprits") or more.get("links") else "unknown",
        cause=None,
        onset=at(onset),
        detected=at(onset if said is None else said),
        relief=at(relief),
        magnitude=magnitude,
        lasting=lasting,
        version=version,
        **more,
    )


def slow(onset, end=None, **more):
    return TrueChange(kind="slow", onset=onset, end=end, magnitude=0.2, **more)


def truth(*changes):
    return StepTruth(first_step=0, last_step=LAST, changes=changes)


@st.composite
def truths(draw):
    """Slow changes with at least 300 steps between them."""
    changes, step = [], 0
    for _ in range(draw(st.integers(0, 5))):
        onset = step + draw(st.integers(300, 800))
        step = onset + draw(st.integers(30, 900))
        changes.append(slow(onset, step, culprits=(draw(st.integers(0, 7)),)))
    return truth(*changes)


def perfect(answers):
    return [finding(c.onset, c.end, said=c.onset + 5, culprits=c.culprits) for c in answers.changes]


@given(truths())
def test_a_perfect_finder_scores_one(answers):
    scored = score(perfect(answers), answers)
    assert scored.found == scored.expected == len(answers.changes)
    assert (scored.false_alarms, scored.repeats, scored.quiet_called_slow) == (0, 0, 0)
    assert scored.slow_covered == scored.slow_steps
    assert scored.delays == (5,) * scored.expected
    if answers.changes:
        assert (scored.precision, scored.recall, scored.culprit_accuracy) == (1.0, 1.0, 1.0)


@given(truths())
def test_who_finds_nothing_has_no_recall_and_no_false_alarm(answers):
    scored = score([], answers)
    assert scored.found == scored.false_alarms == scored.slow_covered == 0
    assert scored.precision is None
    assert scored.recall == (0.0 if answers.changes else None)


spans = st.lists(
    st.tuples(st.integers(0, LAST), st.one_of(st.none(), st.integers(1, 3_000)), st.integers(0, 300)), max_size=8
)


@examples(30)
@given(truths(), spans, st.randoms())
def test_the_order_of_the_findings_does_not_matter(answers, stretches, shuffler: random.Random):
    findings = [
        finding(onset, None if length is None else onset + length, said=onset + delay, name=f"f{number}")
        for number, (onset, length, delay) in enumerate(stretches)
    ]
    shuffled = findings.copy()
    shuffler.shuffle(shuffled)
    assert score(findings, answers) == score(shuffled, answers)


@examples(30)
@given(truths(), spans)
def test_every_alarm_is_counted_once(answers, stretches):
    findings = [
        finding(onset, None if length is None else onset + length, said=onset + delay, name=f"f{number}")
        for number, (onset, length, delay) in enumerate(stretches)
    ]
    scored = score(findings, answers)
    assert scored.found + scored.false_alarms + scored.repeats + scored.excused == len(findings)
    assert scored.found <= scored.expected
    assert scored.quiet_called_slow <= scored.quiet_steps
    assert scored.slow_covered <= scored.slow_steps


@given(truths())
def test_one_more_alarm_in_quiet_time_lowers_precision_and_nothing_else(answers):
    more = [*perfect(answers), finding(50, 60, name="nothing")]
    scored, best = score(more, answers), score(perfect(answers), answers)
    assert scored.false_alarms == 1
    assert scored.quiet_called_slow == 10
    assert (scored.found, scored.delays, scored.slow_covered) == (best.found, best.delays, best.slow_covered)


def test_scores_of_several_series_add_up():
    one, other = score([finding(1_000, said=1_007)], truth(slow(1_000))), score([finding(5, 6)], truth())
    both = one + other
    assert both == Score.total([other, one])
    assert (both.series, both.expected, both.false_alarms, both.delays) == (2, 1, 1, (7,))
    assert both.false_alarms_per_1000 == pytest.approx(0.05)
    assert both.accuracy == 0.5
    assert Score.total([]) == Score()


def test_an_onset_too_far_before_the_fault_is_a_miss_and_a_false_alarm():
    scored = score([finding(800, said=1_010)], truth(slow(1_000, 1_500)))
    assert (scored.found, scored.false_alarms, scored.repeats) == (0, 1, 0)
    assert score([finding(950, said=1_010)], truth(slow(1_000, 1_500))).found == 1


def test_an_onset_too_late_in_the_fault_is_a_miss_and_no_false_alarm():
    scored = score([finding(1_300)], truth(slow(1_000, 1_500)))
    assert (scored.found, scored.false_alarms, scored.repeats) == (0, 0, 1)


def test_what_was_said_before_the_fault_has_not_found_it():
    scored = score([finding(950, said=960)], truth(slow(1_000, 1_500)))
    assert (scored.found, scored.false_alarms) == (0, 1)


def test_one_finding_finds_one_fault_and_one_fault_is_found_once():
    two = truth(slow(1_000, 1_050), slow(1_080, 1_500))
    assert score([finding(1_000, 1_500)], two).found == 1
    scored = score([finding(1_000, 1_020), finding(1_030, 1_040)], truth(slow(1_000, 1_500)))
    assert (scored.found, scored.repeats, scored.false_alarms) == (1, 1, 0)


def test_a_drift_may_be_dated_anywhere_between_its_begin_and_its_full_size():
    drift = truth(slow(1_000, settled=1_500))
    assert score([finding(1_450, said=1_700)], drift).onset_errors == (0,)
    assert score([finding(1_700)], drift).found == 0


def test_what_wakes_nobody_is_no_alarm():
    for kind in ("change", "planned", "intermittent"):
        assert score([finding(100, kind=kind, lasting=False)], truth()).false_alarms == 0
        assert score([finding(100, kind=kind, lasting=True)], truth()).false_alarms == 1
    assert score([finding(100, kind="change", magnitude=-0.2)], truth()).false_alarms == 0


def test_a_speedup_called_slow_is_a_false_alarm_and_called_a_change_is_noted():
    speedup = truth(TrueChange(kind="change", onset=500, magnitude=-0.2))
    assert score([finding(500)], speedup).false_alarms == 1
    assert score([finding(500, kind="change", magnitude=-0.2)], speedup).notes_recall == 1.0


def test_intermittent_slowness_are_noted_by_an_intermittent_finding_alone():
    spells = truth(TrueChange(kind="intermittent", onset=500, settled=1_500, end=1_501, magnitude=0.1))
    assert score([finding(700, kind="intermittent", lasting=False)], spells).notes_recall == 1.0
    assert score([finding(700, kind="change", lasting=False)], spells).notes_recall == 0.0
    assert score([finding(700, kind="change", lasting=False)], spells).false_alarms == 0


def test_an_unexplained_planned_change_excuses_one_alarm_and_an_explained_one_none():
    def planned(**more):
        return truth(TrueChange(kind="planned", onset=500, end=900, magnitude=0.3, **more))

    scored = score([finding(500), finding(700)], planned())
    assert (scored.excused, scored.false_alarms) == (1, 1)
    assert score([finding(500)], planned(is_explained=True)).false_alarms == 1
    assert score([finding(500, kind="change")], planned(is_explained=True)).false_alarms == 0


def test_a_weak_fault_is_neither_missed_nor_a_mistake():
    weak = truth(slow(500, 900, is_required=False))
    assert score([], weak).recall is None
    scored = score([finding(500, 900)], weak)
    assert (scored.excused, scored.false_alarms, scored.quiet_called_slow) == (1, 0, 0)


def test_the_last_version_of_a_finding_counts():
    first = finding(1_000, name="f", said=1_010)
    last = dataclasses.replace(first, relief=at(1_500), version=1)
    assert final_versions([last, first]) == [last]
    assert score([last, first], truth(slow(1_000, 1_500))).relief_errors == (0,)


def test_the_delay_of_a_relief_is_counted_where_the_caller_knows_when_it_was_said():
    found = finding(1_000, 1_500, name="f")
    answers = truth(slow(1_000, 1_500))
    assert score([found], answers, relief_said={"f": 1_512}).relief_delays == (12,)
    assert score([found], answers).relief_delays == ()


def test_culprits_are_right_when_they_are_exactly_the_ranks_and_links():
    by_rank = truth(slow(100, culprits=(2, 3)))
    assert score([finding(100, culprits=(3, 2))], by_rank).culprit_accuracy == 1.0
    assert score([finding(100, culprits=(2,))], by_rank).culprit_accuracy == 0.0
    by_link = truth(slow(100, links=((0, 1),)))
    assert score([finding(100, links=((1, 0),))], by_link).culprit_accuracy == 1.0
    assert score([finding(100)], truth(slow(100))).culprit_accuracy is None


def test_a_hang_is_found_by_a_hang_alone():
    hang = truth(TrueChange(kind="hang", onset=200, culprits=(1,)))
    assert score([finding(200, kind="hang", magnitude=None, culprits=(1,))], hang).recall == 1.0
    assert score([finding(200)], hang).recall == 0.0


def test_a_hang_may_be_said_at_the_last_step_that_was_finished():
    """Nobody finishes the step in which it hangs; the exit that it began with is the same fault told twice."""
    exited = truth(TrueChange(kind="exit", onset=200, culprits=(1,)))
    told = [finding(199, kind=kind, magnitude=None, culprits=(1,)) for kind in ("exit", "hang")]
    scored = score(told, exited)
    assert (scored.found, scored.repeats, scored.false_alarms, scored.delays) == (1, 1, 0, ())
    assert score([finding(198, kind="exit", magnitude=None)], exited).found == 0
