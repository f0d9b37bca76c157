"""What the profiler plugin writes becomes CallBatches by way of the agent, with device times, counts and rates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pacehound.model.calls import CallBatch, Sees
from pacehound.model.events import Progress, Topology
from tests.fakes.late_agent import late_agent
from tests.native.plugin_jobs import JOB, Plugin, PluginJob

UNIX_AHEAD_NS = 10**18


def script(rank: int, n_calls: int) -> list[str]:
    lines = [f"init c abcdef12 2 {rank} world"]
    for n in range(n_calls):
        algorithm = "TREE" if n % 2 else "RING"
        lines += ["group g c", f"coll x c g AllReduce 1024 ncclFloat32 1 {n} 0 {algorithm} LL", "stop x", "stop g"]
        lines += ["kernel k c x 0 n", "op s c x 0 1 2 1", "op r c x 0 1 1 0"]
        lines += ["step t c s 0", "stop t", "sleep 1500", "step t c s 1", "stop t", "step u c r 0", "stop u"]
        lines += ["stop s", "stop r", "kstop k n"]
    lines += ["group g c", f"p2p p c g {'Recv' if rank else 'Send'} 8 ncclInt8 {1 - rank} 1", "stop p"]
    return [*lines, "kernel k c p 0 n", "kstop k n", "final c"]


@pytest.mark.parametrize("api", [4, 5, 6])
def test_two_ranks_end_to_end(plugin: Plugin, tmp_path: Path, api: int) -> None:
    n_calls = 20
    for rank in (0, 1):
        PluginJob(plugin, tmp_path, rank).play(script(rank, n_calls), api=api)
    _, receiver = late_agent(tmp_path / "run", JOB, unix_ahead_ns=UNIX_AHEAD_NS)

    assert {(topology.members, topology.is_world, topology.backend) for topology in receiver.of(Topology)} == {
        ((0, 1), True, "nccl")
    }
    batches = receiver.of(CallBatch)
    assert {(batch.source, batch.sees, batch.dropped) for batch in batches} == {("profiler", Sees.ALL, 0)}
    rows = [row for batch in batches for row in batch.rows.to_pylist()]
    reduced = [row for row in rows if row["op"] == "all_reduce"]
    assert sorted((row["rank"], row["seq"]) for row in reduced) == [(r, s) for r in (0, 1) for s in range(n_calls)]
    for row in reduced:
        assert UNIX_AHEAD_NS < row["launch_ns"] <= row["start_ns"] < row["end_ns"]
        assert row["end_ns"] - row["start_ns"] > 1_400_000
        assert (row["send_count"], row["recv_count"], row["recv_rate"]) == (2, 1, 1.0)
        assert row["send_rate"] in (1.0, 2.0)
        assert (row["algorithm"], row["protocol"]) == ("tree" if row["seq"] % 2 else "ring", "ll")
    pairs = [(row["rank"], row["op"], row["peer"], row["direction"], row["seq"]) for row in rows if row["peer"] >= 0]
    assert sorted(pairs) == [(0, "send", 1, "send", 0), (1, "recv", 0, "recv", 0)]
    assert all(np.isnan(row["send_rate"]) and row["send_count"] == -1 for row in rows if row["peer"] >= 0)
    last = {progress.communicator: progress for progress in receiver.of(Progress)}
    assert all(progress.sees_completion and progress.dropped_total == 0 for progress in last.values())
    assert all(rank.last_completed == n_calls - 1 for progress in last.values() for rank in progress.ranks)
