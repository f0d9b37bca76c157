"""Small files of other tools, as values: Flight Recorder dumps, Inspector lines, RAS answers, traces."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

from collector.importers.recognise import read_call_files

SECOND_NS = 10**9
RECORDED = Path(os.environ.get("PACEHOUND_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"
"""Files of real jobs, which are not in the repository."""


def call(record_id, seq=1, *, group="0", desc="default_pg", name="all_reduce", state="completed", p2p=None, **more):
    """An entry of a Flight Recorder dump; `p2p` is its number among the point-to-point calls."""
    at_ns = 1_000 * SECOND_NS + record_id * SECOND_NS
    return {
        "record_id": record_id,
        "pg_id": int(group) if group.isdigit() else 0,
        "process_group": (group, desc),
        "collective_seq_id": seq,
        "p2p_seq_id": 0 if p2p is None else p2p,
        "op_id": record_id,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": at_ns,
        "input_sizes": [[4, 8]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 8]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": at_ns + SECOND_NS // 2 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": p2p is not None,
        **more,
    }


def dump(entries=(), groups=None, status=None, version="2.10"):
    """A dump; `groups` is name -> (description, ranks)."""
    groups = {"0": ("default_pg", [0, 1])} if groups is None else groups
    made = {
        "version": version,
        "pg_config": {n: {"name": n, "desc": desc, "ranks": str(list(ranks))} for n, (desc, ranks) in groups.items()},
        "entries": list(entries),
    }
    if status is not None:
        names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
        made["pg_status"] = {pg_id: dict(zip(names, values, strict=True)) for pg_id, values in status.items()}
    return made


def as_json(value):
    """As torch writes a dump as JSON: counters in quotes, 0 for a time that is not known, no empty `entries`."""
    value = json.loads(json.dumps(value))
    for counters in value.get("pg_status", {}).values():
        counters.update({name: str(count) for name, count in counters.items()})
    for entry in value["entries"]:
        for name in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[name] = entry[name] or 0
    if not value["entries"]:
        del value["entries"]
    return json.dumps(value).encode()


def write_dumps(folder, dumps, protocol=2):
    """One pickle per rank."""
    for rank, value in dumps.items():
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(value, protocol))


def inspector_call(sn, function="AllReduce", size=4096, at_us=None):
    """A call in an Inspector log; `at_us` makes it verbose."""
    made = {"coll": function, "coll_sn": sn, "coll_msg_size_bytes": size, "coll_exec_time_us": 40,
            "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.5, "coll_busbw_gbs": 2.5}  # fmt: skip
    if at_us is not None:
        events = [{"channel_id": c, "kernel_start_ts": at_us + 5 + c, "kernel_stop_ts": at_us + 40 + c} for c in (0, 1)]
        made["event_trace_ts"] = {"coll_start_ts": at_us, "coll_stop_ts": at_us + 2, "kernel_events": events}
    return {"coll_perf": made}


def inspector_context(rank, size, key="0xabc", version="v4.0", pid=None, **header):
    """Whose calls they are."""
    return {
        "header": {"id": key, "rank": rank, "n_ranks": size, "nnodes": 1, **header},
        "metadata": {"inspector_output_format_version": version, "git_rev": "", "rec_mechanism": "profiler_plugin",
                     "dump_timestamp_us": 1_748_030_377_748_202, "hostname": "node", "pid": pid or 100 + rank},
    }  # fmt: skip


def lines(*records):
    """JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records)


def ras_rank(place, counts, pid=None, **status):
    """A rank that answered RAS."""
    state = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    return {"rank": place, "host": "10.0.0.1", "pid": pid or 100 + place, "cuda_dev": place, "nvml_dev": place,
            "status": {**state, **status}, "collective_counts": counts}  # fmt: skip


def ras_missing(place, pid=None, *, dead=False):
    """One that did not."""
    return {"rank": place, "host": "10.0.0.1", "pid": pid or 100 + place, "cuda_dev": place, "nvml_dev": place,
            "status": {"unresponsive": True, "considered_dead": dead}}  # fmt: skip


def ras_answer(*communicators):
    """An answer; each communicator is (hash, ranks, missing ranks)."""
    return {
        "nccl_version": "2.28.7", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
        "timestamp": "2025-12-19 13:06:53", "communicators_count": len(communicators),
        "communicators": [
            {"hash": key, "secondary_hash": "0x1:0x2", "size": len(ranks) + len(missing), "ranks_count": len(ranks),
             "missing_ranks_count": len(missing), "ranks": ranks, "missing_ranks": missing}
            for key, ranks, missing in communicators
        ],
        "ras": {"collection_time_sec": 0.1, "timeouts_count": 0},
    }  # fmt: skip


def kineto_trace(rank=0, world_size=2, calls=3, first_step=4, seq=None, args=None):
    """A trace of one call in each of `calls` steps, whose kernels carry their collective."""
    carried = {"Collective name": "allreduce", "In msg nelems": 64, "dtype": "Float", "Process Group Name": "0",
               "Process Group Description": "default_pg", "Process Group Ranks": str(list(range(world_size))),
               "Group size": world_size, **(args or {})}  # fmt: skip
    events = [{"ph": "M", "name": "process_name", "args": {"name": "python"}}]
    for place in range(calls):
        at_us = 1000.0 * place
        own = {**carried, "correlation": place, "stream": 20} | ({} if seq is None else {"Seq": seq + place})
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{first_step + place}", "tid": 1, "ts": at_us,
             "dur": 900.0},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": at_us + 100, "dur": 5.0,
             "args": {"correlation": place}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "tid": 20,
             "ts": at_us + 200, "dur": 300.0, "args": own},
        ]  # fmt: skip
    return {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size},
            "baseTimeNanoseconds": 10**18, "traceEvents": events}  # fmt: skip


def read_job(folder):
    """The call files of a folder by rank; or, where none can be used, why."""
    found = read_call_files(sorted(folder.iterdir()))
    assert found.others == ()
    if not found.sets:
        return [one.reason for one in found.refused]
    (calls,) = found.sets
    return {file.ranks[0]: file for file in calls.files}
