"""Scrapes of xpu_timer: ranks, hosts, and the hang gauge; calls are not in them and none are made up."""

from __future__ import annotations

import pytest

from collector.importers.recognise import read_call_files
from pacehound.model.events import HostSample


def gauge(name, rank, value, host="worker-0", job="j", **labels):
    said = {"ip": "NOT_SET", "job_name": job, "local_rank": str(rank), "pod_name": host, "rank": str(rank), **labels}
    inside = ",".join(f'{key}="{one}"' for key, one in said.items())
    return f"XPU_TIMER_{name}{{{inside}}} {value}\n"


def read(folder, **contents):
    for name, content in contents.items():
        (folder / f"{name}.prom").write_text(content)
    found = read_call_files(sorted(folder.iterdir()))
    assert found.others == ()
    return found


def scrape(hang=0, **more):
    hangs = "".join(gauge("COMMON_HANG", rank, hang, **more) for rank in (0, 1))
    slow = "".join(gauge("COLL_KERNEL_AVG_LATENCY", rank, 100 + rank, operation="AllReduce", **more) for rank in (0, 1))
    return "# TYPE XPU_TIMER_COMMON_HANG gauge\n" + hangs + slow


@pytest.mark.parametrize("hang", [0, 1])
def test_ranks_hosts_and_the_hang_gauge(tmp_path, hang):
    (calls,) = read(tmp_path, a=scrape(hang)).sets
    (file,) = calls.files
    assert file.ranks == (0, 1)
    (sample,) = file.events
    assert isinstance(sample, HostSample)
    assert ["hangs" in one.detail for one in sample.processes] == [bool(hang)] * 2
    assert sample.host == "worker-0"
    assert {one.state for one in sample.processes} == {"unknown"}
    assert any("100 us on rank 0 and 101 us on rank 1" in note for note in file.notes)
    assert any("single calls" in said for said in file.cannot_know)


def test_scrapes_of_two_jobs_are_not_one(tmp_path):
    found = read(tmp_path, a=scrape(), b=scrape(job="other"))
    assert found.sets == ()
    assert all("of 2 jobs" in one.reason for one in found.refused)


def test_a_cut_last_line_is_noted(tmp_path):
    (calls,) = read(tmp_path, a=scrape()[:-10]).sets
    assert any("the last, is cut" in note for note in calls.files[0].notes)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("XPU_TIMER_COMMON_HANG 1\n", "line 1 is no gauge"),
        (gauge("COMMON_HANG", 0, "many"), "is no number"),
        (gauge("COMMON_HANG", "x", 1), "rank 'x' is none"),
        (gauge("COMMON_HANG", 0, 1) + gauge("COMMON_HANG", 0, 1, host="worker-9"), "line 2: rank 0 is on 'worker-9'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(tmp_path, line, said):
    (refused,) = read(tmp_path, a=line + scrape()).refused
    assert said in refused.reason
