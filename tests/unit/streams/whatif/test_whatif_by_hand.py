"""Small pipelines whose times can be worked out on paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from simulator.operations.job import OpJob
from simulator.operations.trace import generate
from streams.whatif.analysis import analyse, build
from streams.whatif.reader import table_of

F, B = 1.0, 2.0


def trace(workers, *, n_steps=1, mc=0, n_stages=None):
    """A table from {(dp, stage): [(optype, start, duration, micro-batch), …]}; operations of a type in their order."""
    columns = {name: [] for name in ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration")}
    columns |= {name: [] for name in ("seq_id", "mc", "gmc", "mb_id")}
    for step in range(n_steps):
        for (dp, stage), ops in workers.items():
            counts = {}
            for optype, start, duration, micro_batch in ops:
                number = counts.setdefault(optype, 0)
                counts[optype] += 1
                is_compute = optype.endswith("compute")
                numbers = (mc if is_compute else -1, stage if is_compute else -1, micro_batch)
                row = (dp, stage, 10 * dp + stage, step, optype, float(start), float(duration), number, *numbers)
                for name, value in zip(columns, row, strict=True):
                    columns[name].append(value)
    return pa.table(columns)


def two_stages(last=1.0):
    """1F1B of two stages and two micro-batches without transfers; the last stage takes `last` times as long.

    Stage 0: F0 F1 . B0 B1; stage 1: F0 B0 F1 B1.
    """
    f, b = F * last, B * last
    first_b = F + f + b  # B0 comes back to stage 0
    second_f = max(F + f + b, 2 * F)
    second_b = second_f + f + b
    sent = max(2 * F, F + f)  # the second activation, when both sides are there
    return {
        (0, 0): [
            ("forward-compute", 0, F, 0), ("forward-send", F, 0, -1),
            ("forward-compute", F, F, 1), ("forward-send", 2 * F, sent - 2 * F, -1),
            ("backward-recv", 2 * F, first_b - 2 * F, -1), ("backward-compute", first_b, B, 0),
            ("backward-recv", first_b + B, max(second_b - first_b - B, 0), -1),
            ("backward-compute", max(second_b, first_b + B), B, 1),
            ("optimizer", max(second_b, first_b + B) + B, 0.5, -1),
        ],
        (0, 1): [
            ("forward-recv", 0, F, -1), ("forward-compute", F, f, 0), ("backward-compute", F + f, b, 0),
            ("backward-send", first_b, 0, -1), ("forward-recv", F + f, sent - F - f, -1),
            ("forward-compute", second_f, f, 1), ("backward-compute", second_f + f, b, 1),
            ("backward-send", second_b, 0, -1), ("optimizer", second_b, 0.5, -1),
        ],
    }  # fmt: skip


def analysed(table, name="by-hand"):
    return analyse(build(table_of(table, name), Path(f"trace-{name}.parquet")))


def test_1f1b_of_two_stages_takes_the_bubble_and_all_micro_batches():
    """(M + P - 1)(F + B) = 9, and the optimizer."""
    found = analysed(trace(two_stages()))
    assert found.original_s == pytest.approx([9.5])
    assert found.slowdown == pytest.approx(1.0)


def test_a_last_stage_of_twice_the_work_is_blamed_for_it():
    """Its own four computes follow each other: F + 2(2F + 2B) + B = 15; with the mean of all, 1.5 times nine: 13.5."""
    found = analysed(trace(two_stages(last=2.0)))
    assert found.original_s == pytest.approx([15.5])
    assert found.ideal_s == pytest.approx([14.0])
    assert found.slowdown == pytest.approx(15.5 / 14)
    # Only the last stage keeps its own: 1.5 F + 2(2F + 2B) + 1.5 B; only the first: F + 3(1.5 F + 1.5 B) …
    assert found.by_stage.slowdown[1] == pytest.approx((1.5 * F + 2 * (2 * F + 2 * B) + 1.5 * B + 0.5) / 14)


def test_waiting_for_a_peer_is_no_transfer():
    found = build(table_of(trace(two_stages(last=2.0)), "t"), Path("t"))
    assert found.job.own_s[(found.job.ops.optype >= 2) & (found.job.ops.optype <= 5)].max() == 0


@pytest.mark.parametrize(
    ("schedule", "n_chunks", "computing_s"),
    [
        ("gpipe", 1, (4 + 2 - 1) * (F + B)),
        ("1f1b", 1, (4 + 2 - 1) * (F + B)),
        # Each chunk has half of the stage's work, and the bubble is of one chunk.
        ("interleaved", 2, 4 * (F + B) + (2 - 1) * (F + B) / 2),
        ("interleaved", 4, 4 * (F + B) + (2 - 1) * (F + B) / 4),
    ],
)
@pytest.mark.parametrize("records_no_ops", [False, True])
def test_schedules_take_what_the_formulas_say(schedule, n_chunks, computing_s, records_no_ops):
    """P = 2 and M = 4 without transfers: (M + P - 1)(F + B), and with V chunks M (F + B) + (P - 1)(F + B)/V."""
    job = OpJob(
        n_dp=1, n_stages=2, n_chunks=n_chunks, n_micro_batches=4, n_steps=2, schedule=schedule, jitter=0.0, gap_s=0.0,
        forward_s=F / n_chunks, backward_s=B / n_chunks, send_s=0.0, gather_s=0.0, scatter_s=0.0, optimizer_s=0.0,
        records_no_ops=records_no_ops,
    )  # fmt: skip
    table, truth = generate(job)
    end_s = 4e-5 + 0.01 + 0.004  # layer norms, embeddings, clipping
    assert truth.step_s == pytest.approx(computing_s + end_s, rel=1e-9)
    assert analysed(table).original_s == pytest.approx(computing_s + end_s, rel=1e-5)


def test_dp_ranks_wait_for_the_slowest_at_their_gradients():
    """Two DP ranks of one stage: one computes 3 s, the other 4 s; scattering takes 1 s, the optimizer 0.5 s."""

    def worker(forward_s):
        return [
            ("params-all-gather", 0, 0.25, -1), ("forward-compute", 0.25, forward_s, 0),
            ("backward-compute", 0.25 + forward_s, B, 0),
            ("grads-reduce-scatter", 0.25 + forward_s + B, 4.25 - forward_s - B + 1, -1),
            ("optimizer", 5.25, 0.5, -1),
        ]  # fmt: skip

    found = analysed(trace({(0, 0): worker(1.0), (1, 0): worker(2.0)}, mc=0))
    assert found.original_s == pytest.approx([5.75])
    assert found.ideal_s == pytest.approx([5.25])
    assert found.by_dp_rank.slowdown == pytest.approx([1.0, 5.75 / 5.25])
    assert found.by_worker.ravel() == pytest.approx([1.0, 5.75 / 5.25])
    assert found.slowest_workers.removed == pytest.approx(1.0 + 0.0)


def test_ideal_is_the_mean_of_computes_and_the_median_of_transfers():
    table = trace({(0, 0): [("forward-compute", 0, 1, 0), ("forward-compute", 1, 4, 1), ("backward-compute", 5, 2, 0),
                            ("backward-compute", 7, 2, 1), ("optimizer", 9, 1, -1)]})  # fmt: skip
    job = build(table_of(table, "t"), Path("t")).job
    assert job.ideal_s.tolist() == [2.5, 2.5, 2.0, 2.0, 1.0]
    assert np.median([0.1, 0.2, 9.0]) == 0.2
