"""Operations of sampled steps in the store: kept once, and priced there as they were priced when they came."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from pacehound import cli
from pacehound.bus import Message
from pacehound.cli.stored_operations import stored_window
from pacehound.errors import InvalidInput
from pacehound.model.calls import CallBatch, Sees
from pacehound.model.codec import encode
from pacehound.model.events import Finding, HostSample, Incident, Markers, Progress, Tick, Topology, WhatIfPrice
from pacehound.model.operations import OPERATION_SCHEMA, OPTYPES, Operations
from pacehound.model.routing import route
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import SlowCompute
from simulator.job import JobSpec, simulate
from simulator.source import C10D_GLOO
from storage.client import Store
from streams.pipeline import Pipeline
from streams.whatif.analysis import analyse, build
from streams.whatif.live import live_trace
from streams.whatif.price_watch import window_price
from streams.whatif.tensor_groups import tensor_groups
from tests.fakes.shared_store import copy_store
from tests.fakes.stored import write as write_messages

SETTINGS = Settings.load({}, ["ops.every_steps=2", "ops.window_steps=4"])
SPEC = JobSpec(
    job="it's",
    layout=Layout(tp=1, dp=4, pp=1),
    micro_batches=1,
    forward_s=0.1,
    iterations=90,
    source=C10D_GLOO,
    faults=(SlowCompute(ranks=(2,), factor=1.8, from_step=40),),
)
CALLS_PER_STEP = 5  # gradients in four parts, and one call of all ranks
RECORDED = range(2, 84, 2)
"""The first only begins it; the others make ten windows of four."""


def operations(events):
    """What torch_ops would have recorded: each rank computes until it launches the first reduction of its step."""
    calls = {rank: [] for rank in range(4)}
    for event in events:
        if isinstance(event, CallBatch):
            columns = [event.integers(name).tolist() for name in ("rank", "launch_ns", "end_ns")]
            for rank, launch_ns, end_ns in zip(*columns, strict=True):
                calls[rank].append((launch_ns, end_ns))
    for of_rank in calls.values():
        of_rank.sort()
    found = []
    for step in RECORDED:
        rows = []
        for rank in range(4):
            first = step * CALLS_PER_STEP
            begin_ns, launch_ns = calls[rank][first - 1][1] + 1_000, calls[rank][first][0]
            end_ns = calls[rank][first + CALLS_PER_STEP - 1][1]
            middle_ns = begin_ns + (launch_ns - begin_ns) // 3
            spans = (
                ("forward-compute", begin_ns, middle_ns, 0),
                ("backward-compute", middle_ns, launch_ns, 0),
                ("optimizer", end_ns, end_ns + 500, -1),
            )
            rows += [
                dict(zip(OPERATION_SCHEMA.names, row, strict=True))
                for name, start_ns, stop_ns, mb in spans
                for row in [(rank, step, OPTYPES.index(name), 0, 0, mb, rank, 0, start_ns, stop_ns)]
            ]
        batch = pa.RecordBatch.from_pylist(rows, schema=OPERATION_SCHEMA)
        found.append(Operations(job=SPEC.job, attempt=SPEC.attempt, host="host0", rows=batch))
    return found


@pytest.fixture(scope="module")
def log():
    """Everything on the bus: what came from the host, and what the streams made of it."""
    events = list(simulate(SPEC).events())
    pending, told, pipeline = operations(events), [], Pipeline(SETTINGS)
    for event in events:
        told.append(event)
        told += pipeline.on_event(event)
        while pending and isinstance(event, CallBatch) and pending[0].time_ns <= int(event.integers("end_ns").max()):
            told.append(pending.pop(0))
            told += pipeline.on_event(told[-1])
    assert not pending
    return told


def write(store, events):
    messages = [
        Message(topic=route(e)[0].name, key=route(e)[1], partition=0, offset=i, value=encode(e))
        for i, e in enumerate(events)
    ]
    result = write_messages(store, messages)
    assert result.dead_letters == ()
    return result


@pytest.fixture(scope="module")
def folder(log, empty_store, tmp_path_factory):
    found = copy_store(empty_store, tmp_path_factory.mktemp("operations") / "store")
    with Store.open(found) as store:
        write(store, log)
        write(store, log)  # a writer that begins again says everything twice
    return found


def test_every_operation_is_stored_once_with_its_name(folder, log):
    expected = sum(len(event) for event in log if isinstance(event, Operations))
    with Store.open(folder) as store:
        (row,) = store.query("SELECT count() AS n, uniqExact(step) AS steps FROM operations").to_pylist()
        assert row == {"n": expected, "steps": len(RECORDED)}
        names = store.query("SELECT DISTINCT optype FROM operations ORDER BY optype")["optype"].to_pylist()
        assert names == ["backward-compute", "forward-compute", "optimizer"]


def test_the_price_from_the_store_is_the_price_in_the_incident(folder, log):
    last = [event for event in log if isinstance(event, WhatIfPrice)][-1]
    incident = [event for event in log if isinstance(event, Incident) and event.cost.what_if is not None][-1]
    assert incident.cost.what_if == last
    assert (last.first_step, last.last_step) == (76, 82)
    assert last.fixes[0].ranks == (2,)
    with Store.open(folder) as store:
        window = stored_window(store.query, SPEC.job, None, SETTINGS.ops.window_steps)
    groups = tensor_groups([window.operations], window.rounds)
    built = build(live_trace([window.operations], window.rounds, "job", groups), folder)
    price = window_price(built, analyse(built), SPEC.job, window.attempt, last.time_ns, window.world_size, groups)
    assert price == last


def test_the_command_says_the_same(folder, log):
    last = [event for event in log if isinstance(event, WhatIfPrice)][-1]
    options = ["--job", SPEC.job, "--store", str(folder), "--set", "ops.window_steps=4"]
    answer = CliRunner().invoke(cli.pacehound, ["whatif", *options, "--json"])
    assert answer.exit_code == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["price"]["slowdown"] == found["blocking_slowdown"] == pytest.approx(last.slowdown, rel=1e-12)
    assert [fix["gain"] for fix in found["price"]["fixes"]] == pytest.approx([fix.gain for fix in last.fixes])
    page = CliRunner().invoke(cli.pacehound, ["whatif", *options])
    assert "As an incident would say it: in steps 76 to 82, worker dp 2, stage 0 (rank 2)" in page.stdout


def test_only_steps_that_all_ranks_have_told_of_are_taken(store, log):
    """Here rank 3 has told of no step beyond 80."""
    cut = []
    for event in log:
        if isinstance(event, Operations):
            is_kept = (event.integers("rank") < 3) | (event.integers("step") <= 80)
            event = replace(event, rows=event.rows.filter(pa.array(is_kept)))
        if isinstance(event, (Operations, Topology, CallBatch)):
            cut.append(event)
    write(store, cut)
    window = stored_window(store.query, SPEC.job, None, 3)
    assert np.unique(window.operations.integers("step")).tolist() == [76, 78, 80]
    with pytest.raises(InvalidInput, match="attempt 7"):
        stored_window(store.query, SPEC.job, 7, 3)
    with pytest.raises(InvalidInput, match=r"ops\.every_steps"):
        stored_window(store.query, "another", None, 3)


@pytest.fixture(scope="module")
def launches(log):
    """The same job as the hooks see it on GPUs, where its calls have no ends; and what the streams make of that."""
    told, pipeline = [], Pipeline(SETTINGS)
    for event in log:
        if isinstance(event, CallBatch):
            zeros = pa.array(np.zeros(event.rows.num_rows, np.int64), pa.int64())
            rows = event.rows
            for name in ("start_ns", "end_ns"):
                rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), zeros)
            event = replace(event, rows=rows, sees=Sees.LAUNCH)
        if isinstance(event, (Operations, Topology, CallBatch, Progress, Markers, HostSample, Tick)):
            told += [event, *pipeline.on_event(event)]
    return told


def test_without_ends_of_the_gradients_findings_say_that_there_is_no_price(launches):
    assert not [event for event in launches if isinstance(event, WhatIfPrice)]
    said = [sentence for event in launches if isinstance(event, Finding) for sentence in event.unseen]
    assert any("what stragglers cost" in sentence and "--nccl profiler" in sentence for sentence in said)


def test_without_ends_of_the_gradients_the_command_shows_the_window_and_says_why_it_has_no_price(
    launches, answering_store
):
    write(answering_store, [event for event in launches if isinstance(event, (Operations, Topology, CallBatch))])
    options = ["--job", SPEC.job, "--set", "ops.window_steps=4"]
    answer = CliRunner().invoke(cli.pacehound, ["whatif", *options, "--json"])
    assert answer.exit_code == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert "price" not in found
    assert "gradients of ranks 0, 1, 2, 3" in found["unpriced"]
    page = CliRunner().invoke(cli.pacehound, ["whatif", *options])
    assert "No price" in page.stdout


@pytest.mark.parametrize("arguments", [[], ["trace.parquet", "--job", "j"]])
def test_a_trace_or_a_job_is_asked_for_and_not_both(arguments):
    answer = CliRunner().invoke(cli.pacehound, ["whatif", *arguments])
    assert answer.exit_code == 2
    assert "one of TRACE and --job" in answer.stderr
