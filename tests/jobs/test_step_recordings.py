"""StepWatch on step times of real training runs, read as `pacehound analyze` reads them; the answers are known."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest

from collector.importers.step_logs.recognise import read_step_logs
from streams.level.earlier_runs import earlier_run
from streams.level.step_series import follow, rows_of
from streams.level.step_watch import StepWatch
from streams.level.thresholds import LASTING_STEPS
from tests.fakes.evidence_words import words_of
from tests.fakes.recorded import RECORDED, needs_recordings

RECORDINGS = RECORDED / "iter"

pytestmark = needs_recordings

EVERY = (
    "bigscience",
    "mlperf31_supermicro_maskrcnn_r0",
    "mlperf31_supermicro_maskrcnn_r3",
    "mlperf31_xfusion",
    "mlperf50_eosdfw",
    "mlperf50_tyche",
    "mlperf51_cisco_n16",
    "mlperf51_cisco_n8",
    "mlperf51_nvidia",
    "mng_bulk",
    "mng_quantfp4",
    "mng_scaleup1b",
    "mng_soap",
    "mng_xsa",
)
SLOW_PERIODS = {
    "mlperf31_supermicro_maskrcnn_r0": (
        (2800, 3500),
        (7700, 8200),
        (12450, 13300),
        (13500, 15150),
        (25200, 27550),
        (30700, 32000),
    ),
    "mlperf31_supermicro_maskrcnn_r3": ((28050, 28350), (29900, 30300)),
}
UNCLEAR = {"mlperf31_supermicro_maskrcnn_r3": ((0, 350), (2700, 3050))}


@cache
def recording(prefix):
    (path,) = RECORDINGS.glob(f"{prefix}*")
    (log,) = read_step_logs(path)
    return log


class Recorded:
    """A watch, and what it said after each row."""

    def __init__(self, prefix):
        self._watch = StepWatch(job=prefix)
        self.said = []

    @property
    def planned(self):
        return self._watch.planned

    def update(self, row):
        self.said.append(tuple(self._watch.update(row)))
        return self.said[-1]


@cache
def followed(prefix):
    """A recording is followed once for all tests: its answer, and what was said after each row."""
    watch = Recorded(prefix)
    return follow(recording(prefix), watch), tuple(watch.said)


def answer(prefix):
    return followed(prefix)[0]


def test_every_recording_is_asked_about():
    names = [path.name for path in RECORDINGS.iterdir()]
    assert all(any(name.startswith(prefix) for prefix in EVERY) for name in names)


@pytest.mark.parametrize(
    "prefix", ["mlperf50_tyche", "mlperf51_nvidia", "bigscience", "mng_scaleup1b", "mlperf51_cisco_n8"]
)
def test_a_clean_run_is_silent(prefix):
    findings, _ = answer(prefix)
    assert findings == []


@pytest.mark.parametrize("prefix", ["mlperf51_cisco_n16", "mng_quantfp4", "mlperf50_eosdfw", "mng_soap"])
def test_a_run_with_spikes_and_planned_bursts_has_nothing_lasting(prefix):
    findings, _ = answer(prefix)
    assert not any(finding.lasting or finding.pages for finding in findings)


def covered(steps, periods):
    return np.logical_or.reduce([(steps > first) & (steps <= last) for first, last in periods])


def test_the_slow_periods_are_found_begin_and_end():
    """Rows with an announced evaluation are planned, in a slow period as well."""
    n_slow = n_covered = n_true = n_near = n_outside = n_quiet = n_quiet_slow = 0
    for prefix, periods in SLOW_PERIODS.items():
        log = recording(prefix)
        steps = log.step
        findings, _ = answer(prefix)
        assert {finding.kind for finding in findings} == {"slow"}
        assert all(finding.relief is not None for finding in findings)
        spans = [(finding.onset.step, finding.relief.step) for finding in findings]
        unclear = UNCLEAR.get(prefix, ())
        is_planned = np.isin(np.arange(len(log)), list(log.planned))
        is_slow = covered(steps, periods) & ~is_planned
        is_called = covered(steps, spans)
        is_quiet = ~covered(steps, (*periods, *unclear))
        n_slow += is_slow.sum()
        n_covered += (is_slow & is_called).sum()
        n_quiet += is_quiet.sum()
        n_quiet_slow += (is_quiet & is_called).sum()
        n_true += len(periods)
        n_near += sum(any(abs(onset - first) <= 250 for onset, _ in spans) for first, _ in periods)
        n_outside += sum(
            not any(onset < last and relief > first for first, last in (*periods, *unclear)) for onset, relief in spans
        )
    assert n_covered >= 0.9 * n_slow
    assert n_near >= 0.85 * n_true
    assert n_outside <= 2
    assert n_quiet_slow < 0.05 * n_quiet


def test_spikes_on_a_quiet_base_are_intermittent_slowness():
    findings, _ = answer("mlperf50_eosdfw")
    assert [finding.kind for finding in findings] == ["intermittent"]
    assert findings[0].magnitude > 0.0


def test_every_tenth_step_is_planned():
    findings, planned = answer("mng_soap")
    assert findings == []
    assert any("one step in 10 takes 5.2" in words_of(note)[0] for note in planned)


def test_bursts_that_recur_are_planned():
    _, planned = answer("mng_scaleup1b")
    assert any("recur every 76" in words_of(note)[0] for note in planned)


def test_a_lasting_speedup_is_one_change_and_never_a_slowdown():
    (finding,), _ = answer("mlperf31_xfusion")
    assert (finding.kind, finding.pages, finding.relief) == ("change", False, None)
    assert -0.24 <= finding.magnitude <= -0.215
    assert 6200 <= finding.onset.step <= 6550


@pytest.mark.parametrize(("prefix", "stages"), [("mng_bulk", (396, 790, 1180)), ("mng_xsa", (485, 966))])
def test_stages_of_a_schedule_are_one_finding_each_at_most_and_none_where_an_earlier_run_had_them(prefix, stages):
    findings, _ = answer(prefix)
    assert 1 <= len(findings) <= len(stages)
    assert all(any(abs(finding.onset.step - stage) <= 20 for stage in stages) for finding in findings)
    run = earlier_run(recording(prefix))
    findings, planned = follow(recording(prefix), StepWatch(job=prefix, history=[run]))
    assert findings == []
    told = [note.onset.step for note in planned if note.onset is not None]
    assert all(any(abs(step - stage) <= 20 for step in told) for stage in stages)


@pytest.mark.parametrize("prefix", EVERY)
def test_what_was_relieved_within_30_steps_did_not_last(prefix):
    for finding in answer(prefix)[0]:
        if finding.kind == "slow" and finding.relief is not None:
            assert not finding.lasting or finding.relief.step - finding.onset.step >= LASTING_STEPS


@pytest.mark.parametrize("prefix", EVERY)
def test_a_watch_that_is_stopped_anywhere_has_said_what_it_says_in_the_whole(prefix):
    """Nothing is said of what is still to come, nothing before it happened, and versions go on by one."""
    rows = list(rows_of(recording(prefix)))
    _, in_the_whole = followed(prefix)
    moved = StepWatch(job=prefix)
    versions, opened = {}, {}
    for number, (row, said) in enumerate(zip(rows, in_the_whole, strict=True)):
        if number % max(len(rows) // 7, 1) == 3:
            moved = pickle.loads(pickle.dumps(moved))
        assert tuple(moved.update(row)) == said
        for finding in said:
            assert finding.version == versions.get(finding.id, -1) + 1
            versions[finding.id] = finding.version
            first = opened.setdefault(finding.id, finding)
            assert (finding.onset, finding.detected) == (first.onset, first.detected)
            assert finding.onset.step <= finding.detected.step <= row.step
            assert finding.relief is None or finding.onset.step <= finding.relief.step <= row.step
            assert finding.version or finding.detected.step == row.step
