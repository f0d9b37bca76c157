"""The whole watch on synthetic jobs: no false alarm, no miss, soon, and nothing that sticks."""

from __future__ import annotations

import pytest

from simulator.suites.step_times import POPULATIONS
from streams.level.step_series import earlier_runs, rows_of
from streams.level.step_watch import StepWatch
from streams.scoring.evaluate import Score, score

SHORT = {
    "four_node": 6,
    "clean": 5,
    "drift": 4,
    "delay_12": 15,
    "delay_20": 15,
    "speedup": 4,
    "batch_ramp": 4,
    "schedule": 3,
    "intermittent": 4,
}


def scored(series):
    """One series' score, and how each of its findings ended."""
    watch = StepWatch(job=series.name, history=earlier_runs(series.earlier, min_change=0.10))
    said, relief_said = [], {}
    for row in rows_of(series.log):
        for finding in watch.update(row):
            said.append(finding)
            if finding.relief is not None:
                relief_said.setdefault(finding.id, row.step)
    return score(said, series.truth, relief_said=relief_said)


def total(name, seeds=(0,), count=None):
    return Score.total(scored(series) for seed in seeds for series in POPULATIONS[name].series(seed, count))


def check_faults(of, longest=24):
    """`longest` steps of delay at most, of the onset and of the relief."""
    assert of.false_alarms == 0
    assert of.found == of.expected > 0
    assert of.delay(0.5) <= 12
    assert of.delay(1.0) <= longest
    assert of.relief_delay(0.5) <= 12
    assert of.relief_delay(1.0) <= 64


@pytest.mark.parametrize("name", ["delay_12", "delay_20"])
def test_a_plain_slowdown_is_found_within_24_steps_and_in_the_median_within_12(name):
    of = total(name, count=SHORT[name])
    check_faults(of)
    assert of.repeats == 0
    assert max(of.onset_errors) <= 12


def test_faults_of_every_shape_are_found_and_end():
    of = total("four_node", count=SHORT["four_node"])
    check_faults(of)
    assert of.slow_share_covered > 0.98
    assert of.quiet_share_called_slow < 0.001


def test_clean_jobs_with_planned_patterns_are_silent():
    of = total("clean", count=SHORT["clean"])
    assert (of.false_alarms, of.series_wrong, of.quiet_called_slow) == (0, 0, 0)


def test_drifts_of_5_percent_are_found():
    of = total("drift", count=SHORT["drift"])
    assert of.false_alarms == 0
    assert of.found >= 0.95 * of.expected


@pytest.mark.parametrize("name", ["speedup", "intermittent"])
def test_what_is_no_slow_level_is_noted_as_what_it_is(name):
    of = total(name, count=SHORT[name])
    assert of.false_alarms == 0
    assert of.notes_found == of.notes_expected > 0


def test_a_batch_that_grows_explains_the_longer_steps():
    of = total("batch_ramp", count=SHORT["batch_ramp"])
    assert (of.false_alarms, of.excused, of.repeats) == (0, 0, 0)


def test_a_schedule_that_an_earlier_run_had_is_planned():
    of = total("schedule", count=SHORT["schedule"])
    assert of.false_alarms == 0
    assert of.excused <= 0.1 * SHORT["schedule"]


def test_a_slowdown_in_a_young_job_is_found_though_it_has_just_warmed_up():
    """What is left is mostly a fault that comes before the warm-up has ended: nothing is known of healthy then."""
    of = total("young", count=60)
    assert (of.false_alarms, of.repeats) == (0, 0)
    assert of.found >= 0.9 * of.expected
    assert of.delay(0.5) <= 16


@pytest.mark.prove
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", POPULATIONS)
def test_populations_of_three_seeds(name):
    of = total(name, seeds=(0, 1, 2))
    print(
        f"{name}: {of.found}/{of.expected} found, {of.false_alarms} false in {of.iterations:,} steps, "
        f"{of.notes_found}/{of.notes_expected} noted, delay {of.delay(0.5)} (max {of.delay(1.0)}), "
        f"relief {of.relief_delay(0.5)} (max {of.relief_delay(1.0)}), {of.excused} excused, {of.repeats} repeats"
    )
    assert of.false_alarms_per_1000 <= 0.002
    assert of.clean_series_with_false_alarm <= 0.01 * of.series
    if of.expected:
        assert of.found >= (0.92 if name == "young" else 0.98) * of.expected
        assert of.delay(0.5) <= {"young": 16, "drift": 600}.get(name, 12)
    if of.relief_delays:
        assert of.relief_delay(0.5) <= 12
    if of.notes_expected:
        assert of.notes_found >= 0.95 * of.notes_expected
