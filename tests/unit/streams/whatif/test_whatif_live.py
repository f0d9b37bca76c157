"""Operations as agents send them, and rounds of collectives, become the trace that the analysis takes."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pacehound.model.calls import Sees
from pacehound.model.events import Finding, Instant
from pacehound.model.operations import OPERATION_SCHEMA, OPTYPES, Operations
from pacehound.settings import IncidentSettings
from streams.job.incidents import IncidentTracker
from streams.rounds.round_table import RoundTable
from streams.watching.moment import Moment
from streams.whatif import optypes
from streams.whatif.live import live_trace
from streams.whatif.price_watch import PriceWatch
from streams.whatif.untimed import untimed_reductions
from tests.fakes.events import finding
from tests.fakes.hand_made_rounds import rounds_at

MS = 1_000_000
N_MB = 4


def event(rows):
    """`rows`: (rank, step, type, stage, micro-batch, pipeline, seq, start in ms, end in ms)."""
    names = ("rank", "step", "optype", "stage", "micro_batch", "pipeline", "seq", "start_ns", "end_ns")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    columns["chunk"] = columns["stage"]
    columns["optype"] = [OPTYPES.index(name) for name in columns["optype"]]
    for name in ("start_ns", "end_ns"):
        columns[name] = [round(at * MS) for at in columns[name]]
    arrays = [pa.array(columns[field.name], field.type) for field in OPERATION_SCHEMA]
    return Operations(job="j", attempt=0, host="h", rows=pa.RecordBatch.from_arrays(arrays, schema=OPERATION_SCHEMA))


def gradients(ranks, arrivals_ms, ends_ms):
    return rounds_at("dp", ranks, np.array([arrivals_ms], np.int64) * MS, np.array([ends_ms], np.int64) * MS)


def data_parallel_step(step, origin_ms, slow_ms=0):
    """Two ranks, four micro-batches of 10 ms forward and 20 ms backward; rank 1 takes `slow_ms` more for those."""
    rows, arrivals = [], []
    for rank in (0, 1):
        now = origin_ms
        for mb in range(N_MB):
            rows.append((rank, step, "forward-compute", 0, mb, rank, mb, now, now + 10))
            end = now + 30 + slow_ms * rank
            rows.append((rank, step, "backward-compute", 0, mb, rank, mb, now + 10, end))
            now = end
        arrivals.append(now)
    synced = max(arrivals) + 5
    rows += [(rank, step, "optimizer", 0, -1, rank, 0, synced, synced + 1) for rank in (0, 1)]
    return event(rows), gradients((0, 1), arrivals, [synced, synced])


def test_a_send_ends_when_its_receive_does():
    """The sender waited for it much later; on another pipeline the same micro-batch is another transfer."""
    rows = []
    for pipeline, received in ((0, 14), (2, 17)):
        first, second = pipeline, pipeline + 1
        rows += [
            (first, 1, "forward-compute", 0, 0, pipeline, 0, 0, 10),
            (first, 1, "forward-send", 0, 0, pipeline, 0, 10, 90),
            (second, 1, "forward-recv", 1, 0, pipeline, 0, 2, received),
            (second, 1, "forward-compute", 1, 0, pipeline, 0, received, 30),
        ]
    table = live_trace([event(rows)], [], "t")
    sends = table.optype == optypes.FORWARD_SEND
    assert (table.start_s + table.duration_s)[sends].tolist() == pytest.approx([0.014, 0.017])
    assert table.dp_rank[sends].tolist() == [0, 1]


def test_a_step_begins_with_its_first_computation():
    """The last stage has ended its step before, and waits for the first micro-batch: no part of this step."""
    rows = [
        (0, 1, "forward-compute", 0, 0, 0, 0, 40, 50),
        (0, 1, "forward-send", 0, 0, 0, 0, 50, 90),
        (1, 1, "forward-recv", 1, 0, 0, 0, 2, 51),
        (1, 1, "forward-compute", 1, 0, 0, 0, 51, 61),
    ]
    table = live_trace([event(rows)], [], "t")
    assert table.start_s.tolist() == pytest.approx([0.0, 0.010, 0.0, 0.011])
    assert table.duration_s.tolist() == pytest.approx([0.010, 0.001, 0.011, 0.010])


def test_reductions_before_the_optimizer_are_the_gradients_and_end_the_backward_pass_that_launched_them():
    """A wrapper waits for its reductions within the backward pass: that waiting is no computing."""
    operations, rounds = data_parallel_step(4, 0, slow_ms=3)
    columns = {name: operations.integers(name).copy() for name in OPERATION_SCHEMA.names}
    is_last = (columns["optype"] == optypes.BACKWARD_COMPUTE) & (columns["micro_batch"] == N_MB - 1)
    columns["end_ns"][is_last] = 137 * MS
    rows = pa.RecordBatch.from_pydict(columns, schema=OPERATION_SCHEMA)
    table = live_trace([Operations(job="j", attempt=0, host="h", rows=rows)], [rounds], "t")
    is_sync = table.optype == optypes.GRADS_SCATTER
    assert table.start_s[is_sync].tolist() == pytest.approx([0.120, 0.132])
    assert table.duration_s[is_sync].tolist() == pytest.approx([0.017, 0.005])
    is_backward = (table.optype == optypes.BACKWARD_COMPUTE) & (table.mb_id == N_MB - 1)
    assert table.duration_s[is_backward].tolist() == pytest.approx([0.020, 0.023])


def test_what_holds_up_passes_is_put_together_behind_the_last_one():
    """Rank 0 waits 4 ms in its forward pass and 6 in its backward pass; the step still ends when it did."""
    rows = [
        (0, 1, "forward-compute", 0, 0, 0, 0, 0, 14),
        (0, 1, "params-all-gather", 0, 0, 0, 0, 2, 5),
        (0, 1, "params-all-gather", 0, 0, 0, 1, 5, 6),
        (0, 1, "backward-compute", 0, 0, 0, 0, 14, 40),
        (0, 1, "grads-reduce-scatter", 0, 0, 0, 0, 30, 36),
        (0, 1, "optimizer", 0, -1, 0, 0, 40, 41),
        (1, 1, "forward-compute", 0, 0, 1, 0, 0, 14),
        (1, 1, "backward-compute", 0, 0, 1, 0, 14, 40),
        (1, 1, "optimizer", 0, -1, 1, 0, 40, 41),
    ]
    table = live_trace([event(rows)], [gradients((0, 1), [35, 35], [39, 39])], "t")
    of_rank = {}
    for at in np.argsort(table.start_s, kind="stable").tolist():
        told = (optypes.NAMES[table.optype[at]], table.start_s[at], table.start_s[at] + table.duration_s[at])
        of_rank.setdefault(int(table.rank[at]), []).append((told[0], round(told[1] * 1e3, 6), round(told[2] * 1e3, 6)))
    assert of_rank[0] == [
        ("forward-compute", 0, 10),
        ("backward-compute", 10, 30),
        ("grads-reduce-scatter", 30, 40),
        ("optimizer", 40, 41),
    ]
    # The other rank is not sharded: its reductions are told by the rounds.
    assert ("grads-reduce-scatter", 35, 39) in of_rank[1]


def test_a_window_prices_the_slow_worker_by_what_the_others_take():
    """Rank 1 takes 50 ms for a micro-batch where rank 0 takes 30: without it the step would take 126 of 206 ms."""
    watch = PriceWatch("j", 0, 2, [])
    priced = []
    for number, step in enumerate((2, 4, 6, 8)):
        operations, rounds = data_parallel_step(step, number * 1000, slow_ms=20)
        watch.on_rounds(RoundTable([rounds]))
        watch.hear(operations, None)
        watch.hear(operations, None)  # an agent that begins again may say it twice
        priced += watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2))
    (price,) = priced
    assert (price.first_step, price.last_step, price.n_steps, watch.refused) == (4, 6, 2, 0)
    assert price.recorded_s == pytest.approx(0.206, abs=1e-6)
    assert price.discrepancy < 1e-6
    best = price.fixes[0]
    assert (best.what, best.name, best.ranks) == ("worker", "dp 1, stage 0", (1,))
    assert best.step_time_s == pytest.approx(0.126, abs=1e-6)
    assert best.gain == pytest.approx(80 / 206, abs=1e-6)


def on_a_device(rounds, ahead_ms=90):
    """The same calls on a GPU: launched by a host that is ahead, seen by the hooks and by the profiler plugin."""
    launched_ns = rounds.arrival_ns - ahead_ms * MS
    hooks = replace(
        rounds,
        sees=Sees.LAUNCH,
        arrival_ns=launched_ns,
        start_ns=np.zeros_like(launched_ns),
        end_ns=np.zeros_like(launched_ns),
    )
    plugin = replace(rounds, communicator="nccl", source="profiler", arrival_ns=launched_ns + 2000)
    return hooks, plugin


def price_of(steps, seen_by):
    """Of a job on a device, with the rounds that `seen_by` picks of a step's two."""
    watch = PriceWatch("j", 0, 3, [])
    priced = []
    for number, step in enumerate(steps):
        operations, rounds = data_parallel_step(step, 1000 + number * 1000, slow_ms=20)
        for one in seen_by(step, *on_a_device(rounds)):
            watch.on_rounds(RoundTable([one]))
        watch.hear(operations, None)
        priced += watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2))
    return watch, priced


def test_on_a_device_gradients_are_those_that_the_plugin_has_seen_end():
    """They begin with their kernels: the host had launched them 90 ms before, in the pass before the last."""
    watch, (price,) = price_of((1, 2, 3, 4), lambda step, hooks, plugin: (hooks, plugin))
    assert watch.unpriced == ""
    assert price.recorded_s == pytest.approx(0.206, abs=1e-6)
    assert price.discrepancy < 1e-6
    assert (price.fixes[0].what, price.fixes[0].ranks) == ("worker", (1,))
    assert price.fixes[0].gain == pytest.approx(80 / 206, abs=1e-6)


def test_windows_that_come_together_are_priced_each():
    watch = PriceWatch("j", 0, 2, [])
    for number, step in enumerate((2, 4, 6, 8, 10)):
        operations, rounds = data_parallel_step(step, number * 1000, slow_ms=20)
        watch.on_rounds(RoundTable([rounds]))
        watch.hear(operations, None)
    priced = watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2))
    assert [(price.first_step, price.last_step) for price in priced] == [(4, 6), (8, 10)]
    assert len({price.identity() for price in priced}) == 2


def test_without_ends_of_the_gradients_there_is_no_price_and_the_reason_is_said():
    watch, priced = price_of((1, 2, 3, 4), lambda step, hooks, plugin: (hooks,))
    assert priced == []
    assert watch.refused == 1
    assert "gradients of ranks 0, 1" in watch.unpriced
    assert "--nccl profiler" in watch.unpriced


def test_gradients_of_which_the_plugin_has_missed_some_have_no_price():
    watch, priced = price_of((1, 2, 3, 4), lambda step, hooks, plugin: (hooks, plugin)[: 1 if step == 3 else 2])
    assert priced == []
    assert watch.unpriced.startswith("1 calls that reduce the gradients of ranks 0, 1")


def test_gradients_of_the_last_step_may_not_be_missing_either():
    """The plugin's calls of it have yet to come: the hooks' may be of a step that the device has not begun."""
    watch, priced = price_of((1, 2, 3, 4), lambda step, hooks, plugin: (hooks, plugin)[: 1 if step == 4 else 2])
    assert priced == []
    assert "in some of the steps" in watch.unpriced


def test_the_next_window_has_a_price_again():
    watch, priced = price_of(range(1, 9), lambda step, hooks, plugin: (hooks, plugin)[: 1 if step == 3 else 2])
    assert [price.first_step for price in priced] == [5]
    assert watch.unpriced == ""


def test_a_sharded_job_on_a_device_needs_no_plugin():
    """What holds up its passes was recorded with them; its reductions without an end say nothing more."""
    rows = []
    for rank in (0, 1):
        rows += [
            (rank, 1, "forward-compute", 0, 0, rank, 0, 0, 10),
            (rank, 1, "params-all-gather", 0, 0, rank, 0, 1, 2 + rank),
            (rank, 1, "backward-compute", 0, 0, rank, 0, 10, 30),
            (rank, 1, "optimizer", 0, -1, rank, 0, 30, 31),
        ]
    hooks, _ = on_a_device(gradients((0, 1), [25, 25], [29, 29]), ahead_ms=5)
    assert untimed_reductions([event(rows)], [hooks]) == ""
    unsharded = [row for row in rows if row[2] != "params-all-gather"]
    assert untimed_reductions([event(unsharded)], [hooks]) != ""


def test_calls_of_several_stages_are_no_gradients():
    rows = [
        (rank, 1, kind, rank, mb, 0, 0, 0, 10)
        for rank in (0, 1)
        for kind, mb in (("forward-compute", 0), ("optimizer", -1))
    ]
    hooks, _ = on_a_device(gradients((0, 1), [5, 5], [9, 9]), ahead_ms=1)
    assert untimed_reductions([event(rows)], [hooks]) == ""


def test_steps_that_a_rank_has_not_ended_are_waited_for():
    watch = PriceWatch("j", 0, 1, [])
    for number, step in enumerate((1, 2, 3)):
        operations, rounds = data_parallel_step(step, number * 1000)
        watch.on_rounds(RoundTable([rounds]))
        if step < 3:
            half = operations.rows.filter(pa.array(operations.integers("rank") == 0))
            watch.hear(Operations(job="j", attempt=0, host="h", rows=half), None)
            assert watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2)) == []
        else:
            watch.hear(operations, None)
            assert [price.first_step for price in watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2))] == [3]


def test_a_window_that_makes_no_sense_is_counted_and_the_next_one_is_priced():
    """Here one rank has no forward pass; a job must not lose its findings for that."""
    watch = PriceWatch("j", 0, 1, [])
    priced = []
    for number in range(3):
        operations, rounds = data_parallel_step(number, number * 1000, slow_ms=20)
        if number == 1:
            is_kept = (operations.integers("rank") == 0) | (operations.integers("optype") != optypes.FORWARD_COMPUTE)
            rows = operations.rows.filter(pa.array(is_kept))
            operations = Operations(job="j", attempt=0, host="h", rows=rows)
        watch.on_rounds(RoundTable([rounds]))
        watch.hear(operations, None)
        priced += watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2))
    assert watch.refused == 1
    assert [price.first_step for price in priced] == [2]


def test_an_open_slowdown_is_told_with_the_last_price():
    watch = PriceWatch("j", 0, 1, [])
    for number in range(2):
        operations, rounds = data_parallel_step(number, number * 1000, slow_ms=20)
        watch.on_rounds(RoundTable([rounds]))
        watch.hear(operations, None)
    (price,) = watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2))
    tracker = IncidentTracker("j", 0, IncidentSettings(min_duration_s=0.0, min_loss=0.0))
    tracker.on_finding(finding(onset=Instant(step=0, time_ns=1)), 5, 1.0)
    (incident,) = tracker.on_price(price)
    assert incident.version == 1
    assert incident.cost.what_if == price
    (closed,) = tracker.on_end(price.time_ns + 1, "job ended", {})
    assert closed.cost.what_if == price


def test_what_opens_after_a_window_has_no_price_of_it():
    """A window of before says nothing of a stall that begins now."""
    tracker = IncidentTracker("j", 0, IncidentSettings(min_duration_s=0.0, min_loss=0.0))
    operations, rounds = data_parallel_step(0, 0)
    watch = PriceWatch("j", 0, 1, [])
    watch.hear(operations, None)
    operations, rounds = data_parallel_step(1, 1000)
    watch.on_rounds(RoundTable([rounds]))
    watch.hear(operations, None)
    (price,) = watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2))
    assert tracker.on_price(price) == []
    now = Instant(step=1, time_ns=price.time_ns)
    hang = Finding(id="g", job="j", attempt=0, kind="hang", verdict="culprit", cause="H1", culprits=(1,), onset=now)
    (incident,) = tracker.on_finding(hang, price.time_ns + 1, 1.0)
    assert incident.cost.what_if is None


def test_windows_that_straggle_again_and_again_are_a_finding_with_its_cost():
    """Rank 1 takes 50 ms where rank 0 takes 30: S is 1.24, for the mean is the ideal."""
    watch = PriceWatch("j", 0, 2, [])
    said = []
    for step in range(7):
        operations, rounds = data_parallel_step(step, step * 1000, slow_ms=20)
        watch.on_rounds(RoundTable([rounds]))
        watch.hear(operations, None)
        said += watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2))
    (found,) = (one for one in said if isinstance(one, Finding))
    assert (found.verdict, found.culprits, found.onset.step) == ("suspected", (1,), 1)
    waste = 1 - 1 / (1 + found.magnitude)
    elapsed_s = (operations.time_ns - found.onset.time_ns) / 1e9
    assert watch.ongoing(operations.time_ns) == {found.id: pytest.approx(waste * elapsed_s, rel=1e-3)}


def test_between_two_stretches_of_recorded_steps_no_rounds_are_held():
    """Steps 0 to 3 and 400 to 403 are recorded; the price is the same."""
    watch, priced, most_held = PriceWatch("j", 0, 3, []), [], 0
    for step in range(404):
        operations, rounds = data_parallel_step(step, step * 1000, slow_ms=20)
        watch.on_rounds(RoundTable([rounds]))
        if step % 400 < 4:
            watch.hear(operations, None)
        priced += watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2, step_time_s=1.0))
        if 100 < step < 400:
            most_held = max(most_held, len(watch._rounds))
    assert most_held < 20
    first, second = (one for one in priced if not isinstance(one, Finding))
    assert (first.first_step, first.last_step, second.first_step, second.last_step) == (1, 3, 400, 402)
    assert second.slowdown == pytest.approx(first.slowdown, rel=1e-9)


def test_steps_that_are_told_of_after_their_calls_are_gone_have_no_price():
    watch = PriceWatch("j", 0, 1, [])
    steps = [data_parallel_step(step, step * 1000, slow_ms=20) for step in range(100)]
    watch.hear(steps[0][0], None)
    for operations, rounds in steps:
        watch.on_rounds(RoundTable([rounds]))
        assert watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2, step_time_s=1.0)) == []
    watch.hear(steps[50][0], None)
    assert watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2, step_time_s=1.0)) == []
    assert "no longer held" in watch.unpriced


def test_windows_in_which_the_machines_were_crowded_have_a_price_and_are_no_finding():
    class Crowded:
        def is_crowded(self, moment, since_ns, share):
            assert 0 < since_ns < moment.now_ns
            assert share > 0.1
            return True

    watch = PriceWatch("j", 0, 2, [], Crowded())
    said = []
    for step in range(7):
        operations, rounds = data_parallel_step(step, step * 1000, slow_ms=20)
        watch.on_rounds(RoundTable([rounds]))
        watch.hear(operations, None)
        said += watch.on_tick(Moment(now_ns=operations.time_ns, world_size=2))
    assert [type(one).__name__ for one in said] == ["WhatIfPrice"] * 3
