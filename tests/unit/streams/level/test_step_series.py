"""Driving a watch over a whole log."""

from __future__ import annotations

import dataclasses

import numpy as np

from pacehound.model.events import Finding, Instant
from pacehound.model.step_log import StepLog
from streams.level.step_series import follow, rows_of


def a_log(times_s, **more):
    n = len(times_s)
    columns = {"step": np.arange(n), "n_steps": np.ones(n, np.int64), "time_ns": np.zeros(n, np.int64)}
    return StepLog(path="a", format="csv", step_time_s=np.array(times_s, float), **(columns | more))


class Scripted:
    """Says what it was told to say after each step."""

    def __init__(self, said, planned=()):
        self.rows, self.said, self.planned = [], said, planned

    def update(self, row):
        self.rows.append(row)
        return self.said.get(row.step, [])


def a_finding(name, step, **more):
    onset = Instant(step=step, time_ns=0)
    return Finding(id=name, job="j", attempt=0, kind="slow", verdict="unknown", cause=None, onset=onset, **more)


def test_the_last_version_of_each_finding_counts_in_order_of_onset():
    late, early = a_finding("late", 5), a_finding("early", 2)
    relieved = dataclasses.replace(late, relief=Instant(step=7, time_ns=0), version=1)
    planned = tuple(dataclasses.replace(a_finding(f"p{step}", step), kind="planned") for step in (4, 1))
    findings, learnt = follow(a_log([1.0] * 10), Scripted({6: [late], 7: [early], 8: [relieved]}, planned))
    assert findings == [early, relieved]
    assert [finding.id for finding in learnt] == ["p1", "p4"]


def test_a_watch_is_given_every_row_as_it_was_logged():
    work = {"global_batch_size": np.array([64.0, np.nan, 128.0])}
    log = a_log([1.0, -1.0, np.nan], n_steps=np.array([1, 50, 1]), work=work, planned={1: "evaluation"})
    first, second, third = rows_of(log)
    assert (first.work, second.work, third.work) == ({"global_batch_size": 64.0}, {}, {"global_batch_size": 128.0})
    assert (second.n_steps, second.step_time_s, second.planned, third.planned) == (50, -1.0, "evaluation", "")
    assert np.isnan(third.step_time_s)
    assert type(first.step) is int


def test_an_empty_log_has_no_findings():
    assert follow(a_log([]), Scripted({})) == ([], [])
