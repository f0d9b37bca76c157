"""Iterations and marks as columns: a row for each, whole, and nothing that does not fit."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.errors import InvalidEvent
from pacehound.model.codec import encode
from pacehound.model.events import IterationSample, Markers
from pacehound.model.events.calls_of_hosts import MARKER_NAMES
from storage import schemas
from storage.event_columns import iterations_table, markers_table
from storage.gather import gather
from tests.fakes.examples import examples

RANKS = st.lists(st.integers(0, 2**31 - 1), max_size=4)
TIMES_NS = st.integers(-(2**63), 2**63 - 1)
SAMPLE = IterationSample(
    job="j", attempt=0, time_ns=9, communicator="c", step=4, ranks=(0,), ends_ns=(9,), step_time_s=0.5,
    boundary="period",
)  # fmt: skip


@st.composite
def samples(draw: st.DrawFn) -> IterationSample:
    ranks = draw(RANKS)
    return replace(
        SAMPLE,
        job=draw(st.text(max_size=3)),
        step=draw(st.integers(0, 2**40)),
        ranks=tuple(ranks),
        ends_ns=tuple(draw(TIMES_NS) for _ in ranks),
        step_time_s=draw(st.floats(0.0, 1e9)),
        planned=draw(st.sampled_from(["", "checkpoint"])),
    )


@st.composite
def marks(draw: st.DrawFn) -> Markers:
    ranks = draw(RANKS)
    return Markers(
        job="j", attempt=0, host=draw(st.text(max_size=3)), communicator=draw(st.text(max_size=3)), ranks=tuple(ranks),
        names=tuple(draw(st.sampled_from(MARKER_NAMES)) for _ in ranks),
        steps=tuple(draw(st.integers(0, 2**40)) for _ in ranks),
        times_ns=tuple(draw(TIMES_NS) for _ in ranks),
    )  # fmt: skip


@examples(50)
@given(st.lists(samples(), max_size=5))
def test_each_iteration_is_a_row_with_all_that_it_says(said: list[IterationSample]) -> None:
    expected = [{**asdict(one), "ranks": list(one.ranks), "ends_ns": list(one.ends_ns)} for one in said]
    table = iterations_table(said)
    assert table.schema.equals(schemas.ROW_TABLES[schemas.ITERATIONS])
    assert table.to_pylist() == [{name: row[name] for name in table.schema.names} for row in expected]


@examples(50)
@given(st.lists(marks(), max_size=5))
def test_each_mark_is_a_row_of_its_rank_and_host(said: list[Markers]) -> None:
    expected = [
        {"job": one.job, "attempt": one.attempt, "host": one.host, "communicator": one.communicator,
         "rank": rank, "name": name, "step": step, "time_ns": time_ns}
        for one in said
        for rank, name, step, time_ns in zip(one.ranks, one.names, one.steps, one.times_ns, strict=True)
    ]  # fmt: skip
    table = markers_table(said)
    assert table.schema.equals(schemas.ROW_TABLES[schemas.MARKERS])
    assert table.to_pylist() == expected


def test_what_does_not_fit_its_column_is_refused_by_name_and_set_aside_alone() -> None:
    """A rank of more than 32 bits: no host has one, but anybody may say so."""
    bad = replace(SAMPLE, step=5, ranks=(2**40,))
    with pytest.raises(InvalidEvent, match=r"stored_iterations\.ranks"):
        iterations_table([SAMPLE, bad])
    value = encode(SAMPLE) + encode(bad) + encode(replace(SAMPLE, step=6))
    found = gather([Message(topic="iterations", key="j", partition=0, offset=0, value=value)], ManualClock(7))
    assert found.rows == {schemas.ITERATIONS: 2}
    assert [one.error for one in found.dead_letters] == ["InvalidEvent"]
