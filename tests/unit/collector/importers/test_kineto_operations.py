"""Traces of torch.profiler as operations: what is taken for what, and what is refused with which words."""

from __future__ import annotations

import gzip
import json

import pytest

from collector.importers.call_files.refusal import RefusedFile
from collector.importers.kineto_operations import read_kineto
from pacehound.model.operations import OPTYPES
from tests.fakes.profiler_traces import BASE_NS, ranged, trace_of, written

NAMES = ("optype", "stage", "chunk", "micro_batch", "pipeline", "seq")


def data_parallel_events(first_us=0.0, step=3):
    """Forward of 100 us, backward of 200, gradients of 50 from 280 on, optimizer."""
    return [
        ranged(f"ProfilerStep#{step}", first_us, 400),
        ranged("autograd::engine::evaluate_function: MulBackward0", first_us + 100, 150, "cpu_op"),
        ranged("autograd::engine::evaluate_function: AddBackward0", first_us + 260, 40, "cpu_op"),
        ranged("gloo:all_reduce", first_us + 280, 50),
        ranged("Optimizer.step#SGD.step", first_us + 350, 20),
    ]


def marked_events(stage, extra=()):
    place = f"stage={stage} mb=0"
    return [
        ranged("ProfilerStep#3", 0, 400),
        ranged(f"pacehound:forward-compute {place}", 10, 90),
        ranged(f"pacehound:backward-compute {place}", 110, 100),
        ranged("Optimizer.step#SGD.step", 350, 20),
        *extra,
    ]


def rows_of(operations):
    columns = [operations.integers(name).tolist() for name in NAMES]
    times_us = [((operations.integers(name) - BASE_NS) / 1000).tolist() for name in ("start_ns", "end_ns")]
    return [
        (OPTYPES[row[0]], *row[1:6], round(row[6], 3), round(row[7], 3))
        for row in zip(*columns, *times_us, strict=True)
    ]


def refusal(path):
    with pytest.raises(RefusedFile) as error:
        read_kineto(path)
    return str(error.value)


def test_a_data_parallel_job_needs_no_marks(tmp_path):
    """Forward begins with the step, backward with the first node of the graph; reductions are told as rounds."""
    job = read_kineto(written(tmp_path, [trace_of(rank, 2, data_parallel_events()) for rank in (0, 1)]))
    assert [one.integers("rank")[0] for one in job.operations] == [0, 1]
    assert rows_of(job.operations[1]) == [
        ("forward-compute", 0, 0, 0, 1, 0, 0, 100),
        ("backward-compute", 0, 0, 0, 1, 0, 100, 300),
        ("optimizer", 0, 0, -1, 1, 0, 350, 370),
    ]
    assert [(one.ranks, (one.arrival_ns - BASE_NS).tolist()) for one in job.rounds] == [
        ((0,), [[280_000]]),
        ((1,), [[280_000]]),
    ]


def test_marks_name_micro_batches_and_two_of_one_name_are_one_operation(tmp_path):
    """The loss is marked apart; the n-th ranks of the stages make a pipeline."""
    loss = ranged("pacehound:forward-compute stage=1 mb=0", 105, 3)
    send = ranged("pacehound:backward-send stage=1 mb=0", 210, 30)
    events = {0: marked_events(0), 1: marked_events(1, [loss, send])}
    job = read_kineto(written(tmp_path, [trace_of(rank, 4, events[rank // 2]) for rank in range(4)]))
    assert [one.integers("pipeline")[0] for one in job.operations] == [0, 1, 0, 1]
    assert rows_of(job.operations[3]) == [
        ("forward-compute", 1, 1, 0, 1, 0, 10, 108),
        ("backward-compute", 1, 1, 0, 1, 0, 110, 210),
        ("backward-send", 1, 1, 0, 1, 0, 210, 240),
        ("optimizer", 1, 1, -1, 1, 0, 350, 370),
    ]


def launched(kernel, correlation, launch_us, start_us, us, tid=2, **args):
    return [
        ranged("cudaLaunchKernel", launch_us, 1, "cuda_runtime", correlation=correlation) | {"tid": tid},
        ranged(kernel, start_us, us, "kernel", correlation=correlation, stream=7, **args),
    ]


def test_on_a_device_a_range_lasts_as_its_kernels_do_whoever_launched_them(tmp_path):
    """Backward kernels are launched by a thread of autograd's; NCCL's are no computing; the host is far ahead."""
    reduction = {"Collective name": "allreduce", "Process Group Ranks": "[0, 1]", "dtype": "Float", "In msg nelems": 64}
    events = [
        *marked_events(0, [ranged("pacehound:forward-send stage=0 mb=0", 105, 4)]),
        *launched("gemm", 1, 12, 1_000, 30),
        *launched("gemm", 2, 99, 1_040, 60),
        *launched("ncclDevKernel_SendRecv(x)", 3, 106, 1_200, 25),
        *launched("gemm_backward", 4, 150, 1_300, 80, tid=9),
        *launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 5, 205, 1_350, 90, **reduction),
        *launched("adam", 6, 355, 1_500, 5),
    ]
    job = read_kineto(written(tmp_path, [trace_of(rank, 2, events) for rank in (0, 1)]))
    assert [(row[0], *row[-2:]) for row in rows_of(job.operations[0])] == [
        ("forward-compute", 1_000, 1_100),
        ("forward-send", 1_200, 1_225),
        ("backward-compute", 1_300, 1_380),
        ("optimizer", 1_500, 1_505),
    ]
    assert (job.rounds[0].arrival_ns - BASE_NS).tolist() == [[1_350_000]]


@pytest.mark.parametrize(("ranks", "n_seen"), [("[0, 1]", 0), ("[0, 2]", 1)])
def test_reductions_over_several_stages_are_no_gradients(tmp_path, ranks, n_seen):
    said = {"Collective name": "allreduce", "Process Group Ranks": ranks}
    reduce = launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 5, 205, 220, 9, **said)
    traces = [trace_of(rank, 4, marked_events(rank % 2, reduce if rank == 0 else ())) for rank in range(4)]
    assert len(read_kineto(written(tmp_path, traces)).rounds[0]) == n_seen


def test_a_gather_before_the_first_forward_pass_gathers_parameters(tmp_path):
    gathers = [ranged("gloo:all_gather", 2, 5), ranged("gloo:all_gather", 50, 5)]
    (operations,) = read_kineto(written(tmp_path, [trace_of(0, 1, marked_events(0, gathers))])).operations
    assert [row[-2:] for row in rows_of(operations) if row[0] == "params-all-gather"] == [(2, 7)]


def test_steps_that_one_rank_lacks_are_left_out(tmp_path):
    traces = [trace_of(0, 2, data_parallel_events()), trace_of(1, 2, data_parallel_events())]
    traces[0]["traceEvents"] += data_parallel_events(400, step=4)
    job = read_kineto(written(tmp_path, traces))
    assert set(job.operations[0].integers("step").tolist()) == {3}


SEND = ranged("gloo:send", 60, 5)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (data_parallel_events()[1:], "no profiler step: call profiler.step()"),
        (data_parallel_events()[:-1], "has an optimizer's step in it"),
        ([data_parallel_events()[0], data_parallel_events()[-1]], "no backward pass before the optimizer"),
        ([*data_parallel_events(), SEND], "send and receive, so this is no data-parallel job"),
        ([*data_parallel_events(), ranged("FSDP::all_gather (0)", 5, 5)], "within their passes (FSDP)"),
        ([], "no profiler step"),
        ([*marked_events(0), ranged("pacehound:gemm mb=0", 1, 1)], "is none that what-if has a model of"),
        ([*marked_events(0), ranged("pacehound:backward-input stage=0 mb=0", 1, 1)], "backward-input"),
        ([*marked_events(0), ranged("pacehound:forward-compute stage=0", 1, 1)], "of which micro-batch"),
        ([*marked_events(0), ranged("pacehound:forward-compute stage=two mb=1", 1, 1)], "stage=two"),
        ([*marked_events(0), ranged("pacehound:forward-compute stage=1 mb=1", 1, 1)], "stage 0, 1 at once"),
        ([*marked_events(0), ranged("pacehound:forward-compute stage=0 mb=9999999", 1, 1)], "micro_batch"),
        ([one for one in marked_events(0) if "backward" not in one["name"]], "no backward-compute marked"),
        ([*marked_events(0), ranged("pacehound:forward-compute stage=0 mb=1", 1, -1)], "a time that cannot be"),
        ([*marked_events(0), ranged("pacehound:forward-compute stage=0 mb=1", "1", 1)], "not a number"),
    ],
)
def test_what_does_not_tell_what_ran_when_is_refused(tmp_path, events, said):
    assert said in refusal(written(tmp_path, [trace_of(0, 1, events)]))


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([(0, 4), (2, 4)], "missing: 1, 3"),
        ([(0, 2), (0, 2)], "rank 0 has 2 traces"),
        ([(0, 2), (1, 4)], "not of one job"),
        ([(0, 2), (1, 2), (5, 2)], "of 2 ranks 3 have a trace"),
    ],
)
def test_a_job_has_every_rank_once(tmp_path, ranks, said):
    assert said in refusal(written(tmp_path, [trace_of(*one, data_parallel_events()) for one in ranks]))


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(json.dumps(trace_of(0, 1, data_parallel_events())).encode())[:-40],
        gzip.compress(json.dumps(trace_of(0, 1, data_parallel_events())).encode()[:-40]),
        gzip.compress(b'{"traceEvents": 7}'),
        gzip.compress(b'{"traceEvents": [1]}'),
        gzip.compress(b'{"traceEvents": [], "distributedInfo": [0]}'),
        gzip.compress(b'{"traceEvents": [{"ph": "X", "name": "ncclX", "cat": "kernel", "args": [0]}]}'),
        b"",
        b"\x1f\x8b",
    ],
    ids=["cut", "cut before", "a number", "of numbers", "of no ranks", "without arguments", "nothing", "a magic"],
)
def test_damaged_files_are_refused_by_name(tmp_path, content):
    (tmp_path / "rank0.json.gz").write_bytes(content)
    assert "rank0.json.gz" in refusal(tmp_path / "rank0.json.gz")


def test_a_directory_without_traces_says_what_it_looks_for(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "settings.json").write_text("[]")
    assert "*.json or *.json.gz" in refusal(tmp_path)
