"""StepWatch: what a change of level means, by the log's own fields, by earlier runs, and by how long it lasts."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.step_log import StepLog
from simulator.suites.step_noise import Noise
from simulator.suites.step_times import POPULATIONS
from streams.level.earlier_runs import earlier_run
from streams.level.step_series import rows_of
from streams.level.step_watch import StepTime, StepWatch
from streams.level.thresholds import LASTING_STEPS
from tests.fakes.evidence_words import words_of
from tests.fakes.examples import examples, tries


def jittered(n, seed=1, sd=0.01):
    return 0.1 * np.exp(Noise(sd=sd, correlation=0.3).sample(np.random.default_rng(seed), n))


def rows(times_s, work=None, planned=(), n_steps=1):
    for number, step_time_s in enumerate(times_s):
        yield StepTime(
            step=(number + 1) * n_steps - 1,
            n_steps=n_steps,
            time_ns=number,
            step_time_s=float(step_time_s),
            work={name: float(column[number]) for name, column in (work or {}).items()},
            planned="evaluation" if number in planned else "",
        )


def findings_of(times_s, watch=None, **more):
    watch = watch or StepWatch(job="j", source="a.log")
    return [finding for row in rows(times_s, **more) for finding in watch.update(row)]


def latest(said):
    return list({finding.id: finding for finding in said}.values())


def test_a_slowdown_is_said_at_once_lasts_after_30_steps_and_is_relieved_in_versions_of_one_finding():
    times_s = jittered(900)
    times_s[400:600] *= 1.2
    first, lasting, relieved = findings_of(times_s)
    assert [finding.version for finding in (first, lasting, relieved)] == [0, 1, 2]
    assert len({(f.id, f.onset, f.detected, f.job, f.source) for f in (first, lasting, relieved)}) == 1
    assert (first.kind, first.verdict, first.cause, first.source) == ("slow", "unknown", None, "a.log")
    assert (first.lasting, first.pages) == (False, False)
    assert (lasting.lasting, lasting.pages, lasting.relief) == (True, True, None)
    assert abs(first.onset.step - 400) <= 3
    assert first.magnitude == pytest.approx(0.2, abs=0.02)
    assert abs(relieved.relief.step - 600) <= 3


@pytest.mark.parametrize("seed", range(5))
def test_what_is_left_of_a_slowdown_goes_on_under_its_finding(seed):
    times_s = jittered(2000, seed)
    times_s[400:900] *= 1.5
    times_s[900:1500] *= 1.07
    (finding,) = latest(findings_of(times_s))
    assert abs(finding.onset.step - 400) <= 3
    assert abs(finding.relief.step - 1500) <= 80
    assert any(words.startswith("it is not over: steps take") for words in words_of(finding))


@pytest.mark.parametrize("seed", range(5))
def test_also_where_it_is_just_above_the_bar_of_a_relief(seed):
    times_s = jittered(2000, seed, sd=0.024)
    times_s[400:900] *= 1.6
    times_s[900:] *= 1.108
    said = [finding for finding in latest(findings_of(times_s)) if finding.kind == "slow"]
    assert len(said) == 1
    assert said[0].relief is None


def test_an_abrupt_slowdown_that_comes_later_is_another_one():
    times_s = jittered(2000)
    times_s[400:900] *= 1.5
    times_s[940:] *= 1.3
    before, after = latest(findings_of(times_s))
    assert before.relief is not None
    assert abs(after.onset.step - 940) <= 3


def test_a_small_slowdown_that_comes_later_is_another_one():
    times_s = jittered(2000)
    times_s[400:900] *= 1.5
    times_s[1200:] *= 1.07
    before, after = latest(findings_of(times_s))
    assert abs(before.relief.step - 900) <= 3
    assert abs(after.onset.step - 1200) <= 30
    assert len(words_of(after)) == 2


def test_who_asks_anew_who_is_slow_has_what_is_left_apart():
    times_s = jittered(2000)
    times_s[400:900] *= 1.5
    times_s[900:] *= 1.07
    watch = StepWatch(job="j", joins_remainders=False)
    before, after = latest(findings_of(times_s, watch))
    assert before.relief is not None
    assert abs(after.onset.step - 900) <= 96


def test_what_cannot_be_seen_is_said():
    times_s = jittered(500)
    times_s[400:] *= 1.2
    whose, work, history = findings_of(times_s)[-1].unseen
    assert "only step times are known" in whose
    assert "whether the work has changed" in work
    assert "--history" in history


def test_where_the_batch_is_known_and_constant_nothing_is_said_of_unknown_work():
    times_s = jittered(500)
    times_s[400:] *= 1.2
    finding = findings_of(times_s, work={"global_batch_size": np.full(500, 256)})[-1]
    assert (finding.kind, finding.verdict, finding.pages) == ("slow", "unknown", True)
    assert not any("work" in sentence for sentence in finding.unseen)


@pytest.mark.parametrize("lasts", [12, 16, 20, 24])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_over_within_30_steps_does_not_last(lasts, seed):
    times_s = jittered(800, seed)
    times_s[400 : 400 + lasts] *= 1.25
    said = findings_of(times_s)
    assert not any(finding.lasting or finding.pages for finding in said)
    assert said[-1].relief is not None


def test_what_falls_back_to_a_level_that_it_came_from_does_not_last():
    """5 % above the healthy level before and after: relief, though still beyond half of the slowdown."""
    times_s = jittered(800, sd=0.004)
    times_s[380:] *= 1.04
    times_s[400:418] *= 1.08
    assert not any(finding.lasting for finding in findings_of(times_s) if finding.onset.step < 420)


def test_a_slow_level_that_gets_worse_is_one_finding():
    times_s = jittered(1000)
    times_s[400:] *= 1.2
    times_s[600:] *= 1.3
    said = findings_of(times_s)
    assert len({finding.id for finding in said}) == 1
    assert said[-1].magnitude == pytest.approx(1.2 * 1.3 - 1.0, abs=0.03)
    assert any("slower still" in sentence for sentence in words_of(said[-1]))


def test_a_small_shift_lasts_and_does_not_page():
    times_s = jittered(3000, sd=0.005)
    times_s[2000:] *= 1.06
    (finding,) = latest(findings_of(times_s))
    assert (finding.kind, finding.lasting, finding.pages) == ("slow", True, False)
    assert abs(finding.onset.step - 2000) <= 100
    assert latest(findings_of(times_s, StepWatch(job="j", small_changes=False))) == []


def test_the_bar_is_a_parameter():
    times_s = jittered(800)
    times_s[400:] *= 1.2
    assert findings_of(times_s, StepWatch(job="j", min_change=0.3, small_changes=False)) == []


def test_a_speedup_is_a_change_that_wakes_nobody():
    times_s = jittered(800)
    times_s[400:] *= 0.7
    (finding,) = findings_of(times_s)
    assert (finding.kind, finding.pages, finding.relief) == ("change", False, None)
    assert finding.magnitude == pytest.approx(-0.3, abs=0.02)


def test_a_doubled_batch_explains_a_doubled_step_and_is_the_new_baseline():
    batch = np.repeat([256.0, 512.0], [400, 600])
    times_s = jittered(1000) * batch / 256
    times_s[700:800] *= 1.3
    watch = StepWatch(job="j")
    change, slow = latest(findings_of(times_s, watch, work={"global_batch_size": batch}))
    assert (change.kind, change.pages, change.verdict) == ("change", False, "unknown")
    assert abs(change.onset.step - 400) <= 3
    assert any("global_batch_size is 512, it was 256" in sentence for sentence in words_of(change))
    assert watch.baseline_s == pytest.approx(0.2, rel=0.02)
    assert (slow.kind, slow.pages) == ("slow", True)
    assert slow.magnitude == pytest.approx(0.3, abs=0.03)
    assert abs(slow.relief.step - 800) <= 3


@pytest.mark.parametrize(("batch_ratio", "time_ratio", "kind"), [(1.1, 1.5, "slow"), (1.5, 1.5, "change"),
                                                                (2.0, 2.6, "change"), (0.5, 1.5, "slow")])  # fmt: skip
def test_the_work_is_the_reason_when_it_makes_up_half_of_the_change(batch_ratio, time_ratio, kind):
    times_s = jittered(600)
    times_s[400:] *= time_ratio
    batch = np.where(np.arange(600) < 400, 256.0, 256.0 * batch_ratio)
    (finding,) = latest(findings_of(times_s, work={"global_batch_size": batch}))
    assert finding.kind == kind


def test_a_smaller_batch_explains_shorter_steps():
    batch = np.repeat([256.0, 128.0], [400, 400])
    (finding,) = findings_of(jittered(800) * batch / 256, work={"global_batch_size": batch})
    assert (finding.kind, finding.pages) == ("change", False)
    assert any("global_batch_size is 128, it was 256" in sentence for sentence in words_of(finding))


def test_a_ramp_of_the_batch_in_stages_is_one_finding():
    stage = np.clip((np.arange(2500) - 500) // 300 + 1, 0, 5)
    batch = 256.0 * (1 + stage)
    (finding,) = latest(findings_of(jittered(2500) * (1 + stage), work={"global_batch_size": batch}))
    assert (finding.kind, finding.version, finding.pages) == ("change", 4, False)
    assert finding.magnitude == pytest.approx(5.0, rel=0.03)
    assert abs(finding.onset.step - 500) <= 3


def test_a_field_that_the_log_does_not_always_have_is_compared_where_it_has():
    batch = np.where(np.arange(800) < 400, 256.0, 512.0)
    batch[::3] = math.nan
    (finding,) = findings_of(jittered(800) * np.where(np.arange(800) < 400, 1, 2), work={"global_batch_size": batch})
    assert finding.kind == "change"


def a_log(times_s):
    n = len(times_s)
    ones = np.ones(n, np.int64)
    return StepLog(path="earlier", format="csv", step=np.arange(n), n_steps=ones, time_ns=ones, step_time_s=times_s)


def test_what_an_earlier_run_did_too_is_planned_and_the_new_baseline():
    factor = np.repeat([1.0, 1.5], [400, 600])
    history = (earlier_run(a_log(jittered(1000, seed=9) * factor)),)
    watch = StepWatch(job="j", history=history)
    times_s = jittered(1000) * factor
    times_s[700:] *= 1.25
    (finding,) = latest(findings_of(times_s, watch))
    assert (finding.kind, abs(finding.onset.step - 700) <= 3) == ("slow", True)
    assert finding.magnitude == pytest.approx(0.25, abs=0.03)
    (note,) = watch.planned
    assert (note.kind, abs(note.onset.step - 400) <= 3) == ("planned", True)
    assert "so did earlier" in words_of(note)[0]


def test_announced_pauses_are_no_rows():
    times_s = jittered(900)
    at = range(99, 900, 100)
    times_s[list(at)] *= 30.0
    watch = StepWatch(job="j")
    assert findings_of(times_s, watch, planned=at) == []
    assert watch.planned == ()


def test_patterns_and_bursts_that_recur_are_listed_as_planned():
    times_s = jittered(2000)
    times_s[9::10] *= 3.0
    times_s[150::250] *= 4.0
    watch = StepWatch(job="j")
    assert findings_of(times_s, watch) == []
    assert any("one step in 10 takes" in words_of(note)[0] for note in watch.planned)
    assert len({note.id for note in watch.planned}) == len(watch.planned)


def test_rows_of_50_steps_are_a_level_after_few_rows():
    times_s = jittered(400, sd=0.008)
    times_s[200:260] *= 1.2
    (finding,) = latest(findings_of(times_s, n_steps=50))
    assert abs(finding.onset.step - 200 * 50) <= 50
    assert abs(finding.relief.step - 260 * 50) <= 50
    assert (finding.lasting, finding.pages) == (True, True)


@pytest.mark.parametrize("name", ["four_node", "delay_20", "batch_ramp", "schedule", "intermittent", "drift"])
def test_a_watch_says_the_same_when_it_is_moved_and_nothing_too_soon(name):
    for series in POPULATIONS[name].series(3, len(tries(1, deep=2))):
        whole, moved = StepWatch(job="j"), StepWatch(job="j")
        versions = {}
        for number, row in enumerate(itertools.islice(rows_of(series.log), 4000)):
            if number % 611 == 0:
                moved = pickle.loads(pickle.dumps(moved))
            said = whole.update(row)
            assert moved.update(row) == said
            for finding in said:
                assert finding.version == versions.get(finding.id, -1) + 1
                versions[finding.id] = finding.version
                assert finding.onset.step <= finding.detected.step <= row.step
                assert finding.relief is None or finding.onset.step < finding.relief.step <= row.step


@examples(5, deep=600)
@given(st.integers(0, 10**6))
def test_any_series_is_survived_and_findings_open_and_close_in_order(seed):
    """Levels, spikes, rubbish, gaps, announcements and changes of work at random."""
    rng = np.random.default_rng(seed)
    n = 1200
    times_s = jittered(n, seed, rng.uniform(0.0, 0.1))
    for _ in range(rng.integers(0, 6)):
        times_s[rng.integers(0, n) : rng.integers(0, n)] *= rng.uniform(0.3, 4.0)
    times_s[rng.random(n) < rng.uniform(0.0, 0.05)] *= rng.uniform(1.0, 50.0)
    times_s[rng.random(n) < 0.01] = rng.choice([math.nan, 0.0, -1.0, math.inf])
    batch = np.repeat(rng.choice([128.0, 256.0, math.nan], 4), n // 4)
    planned = set(rng.integers(0, n, rng.integers(0, 9)).tolist())
    watch = StepWatch(job="j")
    versions, is_open = {}, {}
    for row in rows(times_s, {"global_batch_size": batch}, planned, int(rng.choice([1, 1, 5, 50]))):
        for finding in watch.update(row):
            assert finding.version == versions.get(finding.id, -1) + 1
            versions[finding.id] = finding.version
            assert finding.relief is None or finding.relief.step >= finding.onset.step
            assert finding.onset.step <= finding.detected.step <= row.step
            assert finding.magnitude is not None
            assert math.isfinite(finding.magnitude)
            assert finding.lasting or not finding.pages
            if finding.kind == "slow":
                is_open[finding.id] = finding.relief is None
                if finding.relief is not None and finding.lasting:
                    assert row.step - finding.onset.step + 1 >= LASTING_STEPS
        assert sum(is_open.values()) == int(watch.state == "slow")
