"""A number that JSON cannot carry is refused where it is made, by name."""

from __future__ import annotations

import dataclasses
import math

import pytest
from event_strategies import event_of
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model import codec
from pacehound.model.events import Changepoint, Cost, Finding, Incident, Instant, Tick, Topology
from pacehound.model.finite import unfit_field

FINDING = Finding(id="f", job="j", attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(2,))
INCIDENT = Incident(id="i", version=0, job="j", attempt=0, time_ns=1, state="open", opened_ns=1, findings=(FINDING,))
CHANGE = Changepoint(
    job="j",
    attempt=0,
    series="s",
    at=Instant(step=1, time_ns=1),
    detected=Instant(step=2, time_ns=2),
    before_s=1.0,
    after_s=1.5,
    probability=1.0,
)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda bad: dataclasses.replace(CHANGE, after_s=bad), "Changepoint of job 'j': after_s"),
        (lambda bad: dataclasses.replace(FINDING, magnitude=bad), "Finding of job 'j': magnitude"),
        (lambda bad: dataclasses.replace(INCIDENT, cost=Cost(gpu_hours=bad)), "Incident of job 'j': cost.gpu_hours"),
        (
            lambda bad: dataclasses.replace(INCIDENT, findings=(FINDING, dataclasses.replace(FINDING, magnitude=bad))),
            r"Incident of job 'j': findings\[1\].magnitude",
        ),
    ],
)
def test_the_event_and_the_field_are_named(build, named, bad):
    with pytest.raises(ValueError, match=f"{named} is no finite number"):
        codec.encode(build(bad))


@given(event=st.one_of(*(event_of(kind) for kind in (Changepoint, Finding, Incident, Topology, Tick))))
def test_what_is_finite_passes(event):
    assert unfit_field(event) == ""


def test_a_change_from_a_level_of_zero_has_no_magnitude():
    assert CHANGE.magnitude == pytest.approx(0.5)
    change = dataclasses.replace(CHANGE, before_s=0.0)
    assert math.isnan(change.magnitude)
    assert codec.decode(codec.encode(change)) == [change]
