"""Traces of torch.profiler: calls with device times, numbered alike over ranks, and steps."""

from __future__ import annotations

import gzip
import json

import pytest

from collector.importers.recognise import read_call_files
from pacehound.model.calls import OPS, CallBatch, Sees
from pacehound.model.events import OPTIMIZER_STEP, Markers, Topology
from tests.fakes.call_files import kineto_trace, read_job

BASE_NS = 10**18


def read(folder, traces):
    for name, trace in traces.items():
        content = json.dumps(trace).encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return read_job(folder)


def only(file, kind):
    (one,) = [one for one in file.events if isinstance(one, kind)]
    return one


def test_a_kernel_that_carries_its_collective_is_a_call(tmp_path):
    file = read(tmp_path, {"a.json.gz": kineto_trace(rank=1)})[1]
    batch = only(file, CallBatch)
    assert (batch.source, batch.sees) == ("kineto", Sees.ALL)
    assert [OPS[code] for code in batch.codes("op")] == ["all_reduce"] * 3
    assert batch.integers("launch_ns").tolist() == [BASE_NS + 100_000, BASE_NS + 1_100_000, BASE_NS + 2_100_000]
    assert batch.integers("start_ns")[0] == BASE_NS + 200_000
    assert batch.integers("end_ns")[0] == BASE_NS + 500_000
    first = batch.rows.slice(0, 1).to_pylist()[0]
    assert (first["rank"], first["seq"], first["count"], first["dtype"]) == (1, 0, 64, "float32")
    assert (first["algorithm"], first["protocol"], first["stream"]) == ("ring", "ll", 20)
    topology = only(file, Topology)
    assert (topology.is_world, topology.members, topology.host_ranks) == (True, (0, 1), (1,))


def test_profiler_steps_are_optimizer_steps(tmp_path):
    markers = only(read(tmp_path, {"a.json": kineto_trace(first_step=7)})[0], Markers)
    assert set(markers.names) == {OPTIMIZER_STEP}
    assert markers.steps == (7, 8, 9)
    assert markers.times_ns[0] == BASE_NS + 900_000


def test_calls_are_counted_from_the_first_step_that_all_traces_have(tmp_path):
    traces = {"a.json": kineto_trace(rank=0, calls=4, first_step=3), "b.json": kineto_trace(rank=1, first_step=4)}
    files = read(tmp_path, traces)
    assert only(files[0], CallBatch).integers("seq").tolist() == [0, 1, 2]
    assert only(files[0], CallBatch).integers("start_ns")[0] == BASE_NS + 1_200_000
    assert any("from profiler step 4; 1 came before" in note for note in files[0].notes)
    assert only(files[0], CallBatch).communicator == only(files[1], CallBatch).communicator


def test_numbers_that_calls_carry_are_theirs(tmp_path):
    assert only(read(tmp_path, {"a.json": kineto_trace(seq=90)})[0], CallBatch).integers("seq").tolist() == [90, 91, 92]


def test_a_kernel_without_arguments_is_found_through_its_launch(tmp_path):
    trace = kineto_trace(calls=1)
    kernel = trace["traceEvents"][-1]
    carried = {key: value for key, value in kernel["args"].items() if key not in ("correlation", "stream")}
    kernel["args"] = {"correlation": 0, "stream": 20}
    operation = {
        "ph": "X", "cat": "cpu_op", "name": "record_param_comms", "tid": 1, "ts": 90.0, "dur": 50.0, "args": carried,
    }  # fmt: skip
    second = {**kernel, "ts": 600.0, "dur": 10.0}
    trace["traceEvents"] += [operation, second]
    batch = only(read(tmp_path, {"a.json": trace})[0], CallBatch)
    # Two kernels of one operation are one call, launched when the operation began.
    assert batch.integers("launch_ns").tolist() == [BASE_NS + 90_000]
    assert batch.integers("end_ns").tolist() == [BASE_NS + 610_000]


SHORTENED = {"Process Group Ranks": "[0, 1, ..., 62, 63]", "Global rank start": 0, "Global rank stride": 1}


@pytest.mark.parametrize(
    ("args", "world_size", "members"),
    [
        (SHORTENED | {"Group size": 64}, 64, tuple(range(64))),
        ({"Process Group Ranks": [0, 2], "Process Group Description": "dp"}, 4, (0, 2)),
    ],
)
def test_ranks_of_a_group(tmp_path, args, world_size, members):
    file = read(tmp_path, {"a.json": kineto_trace(world_size=world_size, args=args)})[0]
    communicator = only(file, CallBatch).communicator
    (topology,) = [one for one in file.events if isinstance(one, Topology) and one.communicator == communicator]
    assert topology.members == members
    assert topology.is_world == (len(members) == world_size)


def test_groups_that_are_alike_are_kept_apart(tmp_path):
    trace = kineto_trace(calls=2)
    trace["traceEvents"][-1]["args"]["Process Group Name"] = "12"
    file = read(tmp_path, {"a.json": trace})[0]
    assert len({one.communicator for one in file.events if isinstance(one, CallBatch)}) == 2


def test_what_cannot_be_placed_is_left_out_and_counted(tmp_path):
    trace = kineto_trace(calls=3)
    kernels = [one for one in trace["traceEvents"] if one.get("cat") == "kernel"]
    del kernels[0]["args"]["Collective name"]
    kernels[1]["args"]["Collective name"] = "send"
    kernels[2]["args"]["Process Group Ranks"] = "[0, ..., 9]"
    kernels[2]["args"]["Group size"] = 0
    file = read(tmp_path, {"a.json": trace})[0]
    assert not any(isinstance(one, CallBatch) for one in file.events)
    assert len([note for note in file.notes if "left out" in note]) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"traceEvents": 3}, "no trace"),
        ({"traceEvents": []}, "no NCCL kernel and no profiler step"),
        ({"distributedInfo": {"rank": "x"}}, "distributedInfo.rank is the text 'x'"),
        ({"distributedInfo": None}, "put the rank into its name"),
        ({"distributedInfo": {"rank": -1}}, "distributedInfo.rank is -1"),
        ({"baseTimeNanoseconds": "soon"}, "baseTimeNanoseconds"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, change, said):
    (reason,) = read(tmp_path, {"a.json": kineto_trace() | change})
    assert said in reason


def test_traces_of_another_job_or_of_one_rank_twice_are_refused(tmp_path):
    traces = (kineto_trace(), kineto_trace(rank=1), kineto_trace(rank=1), kineto_trace(world_size=9))
    for name, trace in zip("abcd", traces, strict=True):
        (tmp_path / f"{name}.json").write_text(json.dumps(trace))
    found = read_call_files(sorted(tmp_path.iterdir()))
    assert [file.ranks for file in found.sets[0].files] == [(0,), (1,)]
    assert sorted(one.path.name for one in found.refused) == ["c.json", "d.json"]


def test_a_truncated_archive_is_refused(tmp_path):
    content = gzip.compress(json.dumps(kineto_trace(calls=2000)).encode())
    (tmp_path / "a.json.gz").write_bytes(content[: len(content) - 100])
    (refused,) = read_call_files([tmp_path / "a.json.gz"]).refused
    assert "cannot be read" in refused.reason
