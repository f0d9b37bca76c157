"""Events -> rows, without any store."""

from dataclasses import replace

import pytest

from pacehound.errors import InvalidEvent
from pacehound.model.events import (
    Changepoint,
    Finding,
    HostSample,
    HostVitals,
    Incident,
    Instant,
    IterationSample,
    Markers,
    Progress,
    Tick,
    Watermark,
)
from pacehound.model.evidence import read_json
from storage import schemas
from storage.rows import arrow_rows, calls_table, rows_of
from tests.fakes.events import START_NS, call_batch, finding, incident, one_of_each

NOT_STORED = (Progress, Tick, Watermark)
ALONE = [event for event in one_of_each() if not isinstance(event, (HostVitals, IterationSample, Markers))]
"""Those are columns at once (`test_vitals_rows.py`, `test_event_columns.py`)."""


@pytest.mark.parametrize("event", ALONE, ids=lambda e: type(e).__name__)
def test_every_stored_event_fills_every_column_of_its_table(event):
    rows = rows_of(event)
    assert bool(rows) != isinstance(event, NOT_STORED)
    for table, row in rows:
        assert set(row) == set(schemas.ROW_TABLES[table].names)
        assert arrow_rows(table, [row]).num_rows == 1


def test_the_exact_event_survives_in_its_row():
    for event, kind in ((incident(), Incident), (finding(), Finding)):
        [(_, row)] = rows_of(event)
        assert read_json(row["event"], kind) == event


def test_an_incident_row_gathers_kinds_and_culprits_of_its_findings():
    hang = finding(id="f1", kind="hang", culprits=(7, 2))
    [(table, row)] = rows_of(incident(findings=(finding(), hang)))
    assert (table, row["kinds"], row["culprits"]) == (schemas.INCIDENTS, ["hang", "slow"], [2, 7])


def test_a_closing_sample_without_processes_still_leaves_a_row():
    sample = HostSample(
        job="j", attempt=0, time_ns=START_NS, host="n", processes=(), closed=True, closed_why="job ended"
    )
    [(_, row)] = rows_of(sample)
    assert (row["rank"], row["closed"], row["closed_why"]) == (-1, True, "job ended")


def test_a_batch_leaves_what_it_dropped_and_what_its_source_sees():
    [(table, row)] = rows_of(call_batch(ordinal=3, dropped=17))
    assert table == schemas.BATCHES
    assert (row["dropped"], row["sees"], row["rows"]) == (17, ["launch", "end"], 20)
    assert (row["first_seq"], row["last_seq"]) == (30, 39)


def test_a_batch_leaves_how_far_its_times_may_be_off():
    [(_, row)] = rows_of(replace(call_batch(), within_ns=4_000))
    assert row["within_ns"] == 4_000


def test_an_empty_batch_counts_its_drops_too():
    [(_, row)] = rows_of(call_batch(n_calls=0, dropped=5))
    assert (row["rows"], row["dropped"], row["first_seq"]) == (0, 5, -1)


def test_batches_of_many_communicators_and_hosts_become_one_table():
    batches = [call_batch(ordinal=i, host=f"node{i % 3}", communicator=f"c{i}") for i in range(300)]
    table = calls_table(batches)
    assert table.schema.equals(schemas.CALL_TABLE)
    assert table.num_rows == 300 * 20
    assert len(set(table.column("communicator").to_pylist())) == 300
    assert table.column("host").to_pylist()[:60:20] == ["node0", "node1", "node2"]


def test_a_value_too_large_for_its_column_is_refused_by_name():
    [(table, row)] = rows_of(replace(incident(), opened_ns=1 << 70))
    with pytest.raises(InvalidEvent, match="opened_ns"):
        arrow_rows(table, [row])


def test_a_change_from_nothing_has_no_magnitude():
    change = Changepoint(
        job="j",
        attempt=0,
        series="s",
        at=Instant(step=1, time_ns=1),
        detected=Instant(step=2, time_ns=2),
        before_s=0.0,
        after_s=1.0,
        probability=1.0,
    )
    [(_, row)] = rows_of(change)
    assert row["magnitude"] != row["magnitude"]
