"""`pacehound whatif`: a page, JSON, pictures and timelines from a trace, and clear refusals."""

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


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    file = tmp_path_factory.mktemp("whatif") / "trace-made.parquet"
    pq.write_table(generate(OpJob(n_dp=4, n_steps=3, faults=OpFaults(slow_workers={(1, 2): 1.5})))[0], file)
    return file


def whatif(*args):
    return CliRunner().invoke(cli.pacehound, ["whatif", *map(str, args)])


def test_the_page_says_how_slow_who_and_what_to_do(trace):
    page = whatif(trace, "--fix", "worker=1:2")
    assert page.exit_code == 0
    assert "made: x1.2" in page.stdout
    assert "Cause: single worker" in page.stdout
    assert "dp 1 stage 2" in page.stdout
    assert "worker=1:2: steps of" in page.stdout
    assert max(map(len, page.stdout.splitlines())) <= 80
    assert not any(line.endswith(" ") for line in page.stdout.splitlines())


def test_the_answer_for_a_script_is_json_without_nan(trace):
    answer = whatif(trace, "--json", "--fix", "stage=last", "--fix", "optype=forward-pp-comm", "--fix", "dp=1")
    assert answer.exit_code == 0
    found = json.loads(answer.stdout, parse_constant=pytest.fail)
    assert found["schema"] == 1
    assert found["Mw"] == found["mw"]["rem"] > 0.9
    assert next(iter(found["blocking_decompose_by_dp_rank"])) == "1"
    assert found["launch_decompose_by_stage"] is None
    assert [one["what"] for one in found["fixes"][:3]] == ["stage=last", "optype=forward-pp-comm", "dp=1"]
    assert found["fixes"][3]["what"] == "stage=last + optype=forward-pp-comm + dp=1"
    assert found["fixes"][2]["removed"] == pytest.approx(1, abs=0.1)
    assert max(found["workers"], key=lambda one: one["slowdown"])["rank"] == 9
    assert found["patterns"][0]["name"] == "single worker"


@pytest.mark.parametrize(
    "fix", ["worker=9:0", "worker=0:9", "worker=0", "stage=4", "stage=-1", "optype=gemm", "dp=x", "everything"]
)
def test_questions_that_cannot_be_asked_are_usage_errors_that_say_what_can(trace, fix):
    answer = whatif(trace, "--fix", fix)
    assert answer.exit_code == 2
    assert f"--fix {fix}" in answer.stderr


def test_a_file_that_is_no_trace_is_refused(tmp_path):
    file = tmp_path / "x.parquet"
    file.write_text("no")
    answer = whatif(file)
    assert answer.exit_code == 2
    assert str(file) in answer.stderr


def test_meta_data_beside_the_trace_is_read_and_of_another_job_refused(trace, tmp_path):
    meta = tmp_path / "meta.yaml"
    meta.write_text("trial_name: mine  # a job\ndp_size: 4\npp_size: 4\ntp_size: 8\ndsp_size: 2\n")
    found = json.loads(whatif(trace, "--json", "--meta", meta).stdout)
    assert found["job_meta"]["world_size"] == 256
    assert found["job_meta"]["trial_name"] == "mine"
    meta.write_text("dp_size: 5\n")
    assert "dp_size 5" in whatif(trace, "--meta", meta).stderr
    meta.write_text("tp_size: many\n")
    assert "many" in whatif(trace, "--meta", meta).stderr
    assert whatif(trace, "--meta", tmp_path / "none.yaml").exit_code == 2


def test_heat_maps_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    trace = tmp_path / "small.parquet"  # each worker is a cell with a number in it, which takes its time to draw
    pq.write_table(generate(OpJob(n_dp=2, n_stages=2, n_steps=2))[0], trace)
    assert whatif(trace, "--png", tmp_path / "map.png").exit_code == 0
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "cannot write" in whatif(trace, "--png", tmp_path / "no" / "map.png").stderr


def test_timelines_open_in_perfetto_and_show_what_is_waiting(trace, tmp_path):
    answer = whatif(trace, "--timeline", tmp_path)
    assert answer.exit_code == 0
    lines = {
        name: json.loads(gzip.decompress((tmp_path / f"{name}-made.json.gz").read_bytes()))["traceEvents"]
        for name in ("recorded", "simulated", "ideal")
    }
    ends = {}
    for name, events in lines.items():
        whole = [event for event in events if event["ph"] == "X"]
        assert len(whole) == pq.read_metadata(trace).num_rows
        assert all(event["dur"] >= 0 for event in whole)
        # What runs in one stream runs in turn.
        by_thread = {}
        for event in sorted(whole, key=lambda event: (event["ts"], event["ts"] + event["dur"])):
            if "compute" in event["name"]:
                last = by_thread.get((event["pid"], event["tid"]), -1.0)
                assert event["ts"] >= last - 0.01
                by_thread[event["pid"], event["tid"]] = event["ts"] + event["dur"]
        ends[name] = max(event["ts"] + event["dur"] for event in whole if event["args"]["step"] == 0)
    assert ends["recorded"] == pytest.approx(ends["simulated"], rel=0.01)
    assert ends["ideal"] < 0.9 * ends["recorded"]
    assert np.isfinite(list(ends.values())).all()
