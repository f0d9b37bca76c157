"""Generated operation traces: the order of schedules, their times, and that faults change nothing else."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest

from simulator.operations.job import OpFaults, OpJob
from simulator.operations.schedule import order_of
from simulator.operations.trace import generate


def words(*args):
    return " ".join(f"{'F' if c.is_forward else 'B'}{c.micro_batch}.{c.chunk}" for c in order_of(*args))


def test_1f1b_runs_ahead_by_the_stages_behind():
    assert words("1f1b", 0, 3, 1, 4) == "F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 B2.0 B3.0"
    assert words("1f1b", 2, 3, 1, 4) == "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 F3.0 B3.0"


def test_gpipe_runs_all_forwards_first():
    assert words("gpipe", 1, 3, 1, 2) == "F0.0 F1.0 B0.0 B1.0"


def test_interleaving_goes_through_the_chunks_in_groups_of_as_many_micro_batches_as_stages():
    assert words("interleaved", 1, 2, 2, 4) == (
        "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0"
    )


@pytest.mark.parametrize("args", [("interleaved", 0, 3, 2, 4), ("1f1b", 0, 2, 2, 4)])
def test_orders_that_cannot_be_are_refused(args):
    with pytest.raises(ValueError, match=r"micro-batches|model chunk"):
        order_of(*args)


@pytest.mark.parametrize(("schedule", "n_chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2)])
def test_everything_is_recorded_once_and_numbered_in_its_order(schedule, n_chunks):
    table, _ = generate(OpJob(schedule=schedule, n_chunks=n_chunks, n_steps=2))
    names = ["step", "dp_rank", "stage", "optype", "seq_id"]
    plain = table.set_column(4, "optype", pc.cast(table["optype"], "string"))
    assert len(plain.select(names).group_by(names).aggregate([])) == table.num_rows
    by_worker = plain.sort_by([(name, "ascending") for name in names])
    starts = by_worker["start_ts"].to_numpy()
    follows = by_worker["seq_id"].to_numpy()[1:] > 0
    assert (np.diff(starts)[follows] >= 0).all()
    assert pc.min(table["duration"]).as_py() >= 0


def test_a_fault_changes_only_what_it_hits():
    healthy, _ = generate(OpJob(n_dp=3))
    slow, truth = generate(OpJob(n_dp=3, faults=OpFaults(slow_workers={(1, 2): 2.0})))
    is_compute = pc.equal(pc.cast(healthy["optype"], "string"), "forward-compute")
    ratio = np.array(slow.filter(is_compute)["duration"]) / np.array(healthy.filter(is_compute)["duration"])
    hit = (np.array(healthy.filter(is_compute)["dp_rank"]) == 1) & (np.array(healthy.filter(is_compute)["stage"]) == 2)
    assert np.allclose(ratio[hit], 2)
    assert np.allclose(ratio[~hit], 1)
    assert (truth.step_s > 1.2 * truth.healthy_step_s).all()


def test_the_same_seed_gives_the_same_trace_and_another_one_another():
    one, again, other = (generate(OpJob(seed=seed))[0] for seed in (3, 3, 4))
    assert one.equals(again)
    assert not one.equals(other)
