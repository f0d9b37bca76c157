"""`pacehound whatif` on traces of torch.profiler: the same answer as on the same job in parquet."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pacehound import cli
from simulator.operations.job import OpFaults, OpJob
from simulator.operations.trace import generate

JOB = OpJob(
    n_dp=2, n_stages=3, n_micro_batches=6, n_steps=3, records_no_ops=False, faults=OpFaults(slow_workers={(1, 2): 1.6})
)
BASE_NS = 10**18
STEP_US = 100e6


def range_of(name, start_us, us):
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": start_us, "dur": us, "pid": 1, "tid": 1}


def written(folder, table, skew_s=None):
    """Every operation as a mark of its rank's trace; the k-th transfer of a type is of micro-batch k."""
    traces = {}
    columns = table.to_pydict()
    for row in zip(*columns.values(), strict=True):
        one = dict(zip(columns, row, strict=True))
        events = traces.setdefault(one["rank"], {})
        start_us = one["step"] * STEP_US + (one["start_ts"] + (skew_s or {}).get(one["rank"], 0)) * 1e6
        mb = one["mb_id"] if one["mb_id"] >= 0 else one["seq_id"] if one["optype"].endswith(("send", "recv")) else -1
        name = f"pacehound:{one['optype']} stage={one['stage']}" + (f" mb={mb}" if mb >= 0 else "")
        events.setdefault(one["step"], []).append(range_of(name, start_us, one["duration"] * 1e6))
    for rank, of_step in traces.items():
        events = [event for step in of_step.values() for event in step]
        events += [range_of(f"ProfilerStep#{step}", (step - 0.05) * STEP_US, STEP_US) for step in of_step]
        trace = {
            "schemaVersion": 1,
            "distributedInfo": {"rank": rank, "world_size": len(traces)},
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": events,
        }
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
    return folder


@pytest.fixture(scope="module")
def table():
    return generate(JOB)[0]


def whatif(*args):
    answer = CliRunner().invoke(cli.pacehound, ["whatif", *map(str, args), "--json"])
    assert answer.exit_code == 0, answer.stderr
    return json.loads(answer.stdout)


def by_worker(found):
    return {(one["dp_rank"], one["stage"]): one["slowdown"] for one in found["workers"]}


def test_a_directory_of_traces_has_the_answer_of_the_same_job_in_parquet(table, tmp_path):
    """Times are whole nanoseconds there."""
    pq.write_table(table, tmp_path / "job.parquet")
    (tmp_path / "job").mkdir()
    expected, found = whatif(tmp_path / "job.parquet"), whatif(written(tmp_path / "job", table))
    for key in ("blocking_slowdown", "Mw", "Ms", "waste"):
        assert found[key] == pytest.approx(expected[key], rel=1e-4)
    assert by_worker(found) == pytest.approx(by_worker(expected), rel=1e-4)
    assert found["job_meta"]["dp_size"] == 2
    assert found["job_meta"]["pp_size"] == 3
    assert found["discrepancy"]["value"] < 0.01
    assert found["patterns"][0]["name"] == "single worker"


@pytest.mark.parametrize("skew_s", [-0.7, 0.7])
def test_hosts_whose_clocks_are_apart_are_put_on_one(table, tmp_path, skew_s):
    """Ranks 2 and 3, one stage, are a host of their own."""
    (tmp_path / "true").mkdir()
    (tmp_path / "skewed").mkdir()
    expected = whatif(written(tmp_path / "true", table))
    found = whatif(written(tmp_path / "skewed", table, {2: skew_s, 3: skew_s}))
    assert [one["kind"] for one in found["defects"]] == ["clock skew"]
    assert found["blocking_slowdown"] == pytest.approx(expected["blocking_slowdown"], abs=0.01)
    worst = max(by_worker(found), key=by_worker(found).get)
    assert worst == (1, 2)
    assert np.isfinite(found["discrepancy"]["value"])


def test_a_trace_that_says_too_little_is_bad_input_and_says_what_is_missing(table, tmp_path):
    folder = written(tmp_path, table)
    (folder / "rank4.json.gz").unlink()
    answer = CliRunner().invoke(cli.pacehound, ["whatif", str(folder)])
    assert answer.exit_code == 2
    assert "missing: 4" in answer.stderr
