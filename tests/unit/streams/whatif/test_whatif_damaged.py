"""Damaged traces: every kind of damage is named and counted, and repaired by its rule or refused with a clear error."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pacehound.errors import InvalidInput
from simulator.operations.job import OpFaults, OpJob
from simulator.operations.trace import generate
from streams.whatif.analysis import analyse, build
from streams.whatif.reader import read_trace, table_of

JOB = OpJob(n_dp=4, n_steps=10, faults=OpFaults(slow_workers={(1, 2): 1.4}))


@cache
def whole():
    return generate(JOB)[0]


@cache
def healthy_answer():
    return analysed(whole())


def analysed(table):
    return analyse(build(table_of(table, "damaged"), Path("trace-damaged.parquet")))


def columns(table):
    return {name: table[name].to_numpy(zero_copy_only=False).copy() for name in table.column_names}


def changed(**new):
    return pa.table({**{name: whole()[name] for name in whole().column_names}, **new})


def rows_where(table, **values):
    is_row = np.ones(table.num_rows, dtype=bool)
    for name, value in values.items():
        is_row &= columns(table)[name] == value
    return np.flatnonzero(is_row)


def without(rows, table=None):
    table = table or whole()
    return table.take(np.setdiff1d(np.arange(table.num_rows), rows))


def numbered_anew(table):
    """`seq_id` in the order of starts again, as a profiler that lost operations numbers them."""
    data = columns(table)
    keys = [data["start_ts"], data["optype"].astype(str), data["stage"], data["dp_rank"], data["step"]]
    order = np.lexsort(keys)
    numbers, last, count = np.empty(table.num_rows, np.int64), None, 0
    for row in order:
        key = tuple(one[row] for one in keys[1:])
        count = count + 1 if key == last else 0
        numbers[row], last = count, key
    return table.set_column(table.column_names.index("seq_id"), "seq_id", pa.array(numbers))


def the(found, kind):
    (defect,) = (one for one in found.defects if one.kind == kind)
    return defect


def test_a_whole_trace_has_no_defect():
    assert healthy_answer().defects == ()


def test_the_order_of_rows_does_not_matter():
    shuffled = whole().take(np.random.default_rng(0).permutation(whole().num_rows))
    found = analysed(shuffled)
    assert found.defects == ()
    assert found.slowdown == pytest.approx(healthy_answer().slowdown, rel=1e-12)


def test_unknown_types_are_left_out_and_counted_by_name():
    extra = whole().slice(0, 3).set_column(4, "optype", pa.array(["data-load", "tp-allreduce", "data-load"]))
    plain = whole().set_column(4, "optype", whole()["optype"].cast(pa.string()))
    found = analysed(pa.concat_tables([plain, extra]))
    assert the(found, "unknown optype").count == 3
    assert "data-load x 2" in the(found, "unknown optype").where
    assert found.slowdown == healthy_answer().slowdown


@pytest.mark.parametrize("value", [-0.5, np.nan, np.inf])
def test_impossible_durations_count_as_missing(value):
    durations = columns(whole())["duration"]
    rows = rows_where(whole(), optype="forward-compute", seq_id=3, step=20)
    durations[rows[:2]] = value
    found = analysed(changed(duration=durations))
    assert the(found, "negative duration").count == 2
    assert "forward-compute" in the(found, "negative duration").where
    assert the(found, "missing operation").count == 2
    assert len(found.steps) == JOB.n_steps
    assert found.slowdown == pytest.approx(healthy_answer().slowdown, rel=5e-3)


@pytest.mark.parametrize(("column", "value"), [("stage", -1), ("dp_rank", -3), ("seq_id", -1)])
def test_rows_that_cannot_be_count_as_missing(column, value):
    values = columns(whole())[column]
    values[rows_where(whole(), optype="optimizer", step=30, dp_rank=1, stage=1)] = value
    found = analysed(changed(**{column: values}))
    assert the(found, "impossible row").count == 1
    assert the(found, "missing operation").count == 1


def test_the_first_of_an_operation_recorded_twice_counts():
    row = rows_where(whole(), optype="backward-compute", step=20, dp_rank=1, stage=1, seq_id=0)
    again = whole().take(row)
    late = again.set_column(5, "start_ts", pc.add(again["start_ts"], 5.0))
    found = analysed(pa.concat_tables([late, whole()]))
    assert the(found, "operation twice").count == 1
    assert found.slowdown == healthy_answer().slowdown


@pytest.mark.parametrize("optype", ["forward-compute", "backward-recv", "grads-reduce-scatter", "optimizer"])
def test_single_missing_operations_are_filled(optype):
    rows = rows_where(whole(), optype=optype, step=40, dp_rank=2)[:1]
    found = analysed(without(rows))
    assert the(found, "missing operation").count == 1
    assert optype in the(found, "missing operation").where
    assert len(found.steps) == JOB.n_steps
    assert found.slowdown == pytest.approx(healthy_answer().slowdown, rel=5e-3)
    assert found.discrepancy < 0.01


@pytest.mark.parametrize("optype", ["forward-recv", "backward-send"])
def test_steps_whose_peers_were_numbered_anew_after_a_loss_are_left_out(optype):
    rows = rows_where(whole(), optype=optype, step=40, dp_rank=2, stage=1, seq_id=3)
    found = analysed(numbered_anew(without(rows)))
    assert the(found, "unmatched peers").count > 0
    assert "steps 40" in the(found, "unmatched peers").where
    assert 40 not in found.steps
    assert len(found.steps) == JOB.n_steps - 1
    assert found.slowdown == pytest.approx(healthy_answer().slowdown, rel=5e-3)


def test_steps_whose_computes_were_numbered_anew_after_a_loss_are_left_out():
    rows = rows_where(whole(), optype="forward-compute", step=40, dp_rank=2, stage=1, mb_id=3)
    found = analysed(numbered_anew(without(rows)))
    assert the(found, "step of another shape").where == "steps 40"
    assert 40 not in found.steps


def test_steps_of_a_batch_ramp_are_left_out():
    """Fewer micro-batches in the first two steps."""
    is_ramp = (columns(whole())["step"] < 20) & (columns(whole())["mb_id"] >= 4)
    found = analysed(without(np.flatnonzero(is_ramp)))
    assert the(found, "step of another shape").count == 2
    assert found.steps.tolist() == list(range(20, 100, 10))


def test_a_clock_that_is_off_is_found_and_moved_back():
    starts = columns(whole())["start_ts"]
    starts[rows_where(whole(), dp_rank=3, stage=1)] += 0.2
    found = analysed(changed(start_ts=starts))
    skew = the(found, "clock skew")
    assert skew.count == 1
    assert "dp 3 stage 1 by +0.200 s" in skew.where
    assert found.slowdown == pytest.approx(healthy_answer().slowdown, rel=1e-3)


def test_a_host_of_two_workers_with_a_wrong_clock_is_moved_back_whole():
    starts = columns(whole())["start_ts"]
    for stage in (2, 3):
        starts[rows_where(whole(), dp_rank=0, stage=stage)] -= 1.5
    found = analysed(changed(start_ts=starts))
    assert the(found, "clock skew").count == 2
    assert found.slowdown == pytest.approx(healthy_answer().slowdown, rel=1e-3)


def test_a_slow_worker_is_no_clock():
    assert analysed(generate(OpJob(n_dp=4, faults=OpFaults(slow_workers={(1, 2): 3.0})))[0]).defects == ()


def test_transfers_that_end_before_their_peer_starts_count_as_nothing():
    data = columns(whole())
    row = rows_where(whole(), optype="forward-send", step=40, dp_rank=2, stage=1, seq_id=5)
    data["start_ts"][row] -= 0.3
    data["duration"][row] = 0.001
    found = analysed(changed(start_ts=data["start_ts"], duration=data["duration"]))
    assert the(found, "negative transfer").count == 1


def refused(table, *words):
    with pytest.raises(InvalidInput) as caught:
        analysed(table)
    for word in words:
        assert word in str(caught.value)


def test_a_worker_of_which_nothing_was_recorded_is_refused():
    refused(without(rows_where(whole(), dp_rank=2, stage=1)), "dp 2, stage 1", "nothing was recorded")


def test_sends_that_are_missing_in_every_step_are_refused():
    refused(without(rows_where(whole(), optype="forward-send", stage=1, seq_id=7)), "stage 1", "forward-send")


def test_a_stage_without_forward_computes_is_refused():
    refused(without(rows_where(whole(), optype="forward-compute", stage=2)), "forward-compute", "stage 2")


def test_too_few_good_steps_are_refused():
    is_bad = (columns(whole())["step"] < 60) & (columns(whole())["optype"] == "backward-compute")
    is_bad &= (columns(whole())["dp_rank"] == 0) & (columns(whole())["stage"] > 0)
    refused(without(np.flatnonzero(is_bad)), "only 4 of 10 steps")


def test_operations_that_take_no_time_are_refused():
    nothing = np.zeros(whole().num_rows)
    refused(changed(duration=nothing, start_ts=nothing), "no time")


def test_a_trace_of_one_step_that_misses_something_is_refused_for_want_of_an_order():
    table = whole().filter(pc.and_(pc.equal(whole()["step"], 0), pc.less(whole()["dp_rank"], 3)))
    rows = [rows_where(table, optype="forward-compute", dp_rank=dp, stage=dp, seq_id=dp)[0] for dp in range(3)]
    refused(without(rows, table), "misses some operation")


def test_a_number_that_is_no_number_of_its_kind_is_refused():
    values = columns(whole())["dp_rank"]
    values[0] = 2**40
    refused(changed(dp_rank=values), "dp_rank", str(2**40))


def test_columns_that_are_missing_or_of_another_type_are_refused():
    refused(whole().drop_columns(["gmc"]), "gmc")
    refused(changed(stage=pa.array(["a"] * whole().num_rows)), "stage", "whole numbers")
    refused(changed(duration=pa.array(["a"] * whole().num_rows)), "duration", "seconds")
    refused(changed(optype=pa.array(np.arange(whole().num_rows))), "optype", "names")
    refused(whole().slice(0, 0), "no operation")


def test_files_that_are_no_traces_are_refused(tmp_path):
    file = tmp_path / "trace-x.parquet"
    for content in (b"", b"PAR1 not really PAR1", b"{}"):
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match="trace-x"):
            read_trace(file)
    with pytest.raises(InvalidInput, match="nowhere"):
        read_trace(tmp_path / "nowhere.parquet")
    pq.write_table(whole().drop_columns(["seq_id"]), file)
    with pytest.raises(InvalidInput, match="seq_id"):
        read_trace(file)


def test_any_loss_of_rows_is_repaired_or_refused_but_never_a_crash():
    rng = np.random.default_rng(7)
    for share in (0.001, 0.004, 0.01, 0.1, 0.5, 0.95):
        table = without(np.flatnonzero(rng.random(whole().num_rows) < share))
        try:
            found = analysed(table)
        except InvalidInput:
            continue
        assert np.isfinite(found.slowdown)
        assert {"missing operation", "step of another shape"} & {one.kind for one in found.defects}
        assert found.slowdown == pytest.approx(healthy_answer().slowdown, rel=0.02), share
