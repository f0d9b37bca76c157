"""A single step that took very long: no change of level and no burst, and a good part of the time was lost in it."""

from __future__ import annotations

import numpy as np
import pytest

from pacehound.model.step_log import StepLog
from pacehound.settings import IncidentSettings
from streams.level.pauses import long_pause
from tests.fakes.evidence_words import words_of

N = 1000


def a_log(pauses, *, n=N, usual_s=0.1, planned=None):
    times_s = usual_s * np.random.default_rng(3).lognormal(0, 0.02, n)
    for step, seconds in pauses.items():
        times_s[step] = seconds
    ones = np.ones(n, np.int64)
    return StepLog(
        path="a.csv",
        format="csv",
        step=np.arange(n),
        n_steps=ones,
        time_ns=np.cumsum(np.nan_to_num(times_s, posinf=0) * 1e9).astype(np.int64),
        step_time_s=times_s,
        planned=planned or {},
    )


def test_one_step_of_a_minute_among_short_ones_is_told_and_wakes_nobody():
    found = long_pause(a_log({500: 60.0}), IncidentSettings())
    assert (found.kind, found.onset.step, found.relief.step) == ("intermittent", 500, 500)
    assert "step 500: 60 s" in words_of(found)[0]
    assert "37 % of the log's time" in words_of(found)[0]
    assert not found.pages
    assert not found.lasting


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (a_log({}), "no step is long"),
        (a_log({0: 60.0, 1: 20.0}), "the first steps compile"),
        (a_log({500: 60.0}, planned={500: "checkpoint"}), "it was announced"),
        (a_log({500: 2.0}), "two seconds are no incident"),
        (a_log({500: 5.0}, n=10_000), "half a percent of the time is none"),
        (a_log({500: 60.0}, usual_s=10.0), "six steps long: what a checkpoint takes"),
        (a_log({200: 30.0, 500: 30.0, 800: 30.0}), "it recurs at one distance"),
        (a_log({100: 9.0, 200: 9.0, 350: 9.0, 600: 9.0, 700: 9.0}), "five are bursts"),
        (a_log({}, n=0), "nothing is logged"),
        (a_log({500: float("inf"), 501: float("nan")}), "what is no number is no time"),
    ],
)
def test_what_is_no_pause_worth_a_word_is_not_told(log, why):
    assert long_pause(log, IncidentSettings()) is None, why
