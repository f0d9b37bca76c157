"""A process that communicates unseen is named within two minutes, and nobody else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.agent.blindness import BlindWatch
from collector.calls.communicators import BACKENDS
from collector.host.rank_process import RankProcess
from pacehound.model.events import HostSample
from tests.fakes.agent_run import MS, AgentRun
from tests.fakes.proc_tree import ProcTree

NCCL, GLOO = BACKENDS.index("nccl"), BACKENDS.index("gloo")
SHARED_MEMORY = "7f00-7f01 rw-s 00000000 00:19 7 /dev/shm/nccl-x7QpLw (deleted)\n"
LOADED = "7f02-7f03 r-xp 00000000 08:01 9 /torch/lib/libnccl.so.2\n7f04-7f05 rw-s 0 00:05 3 /dev/nvidia0\n"
PLUGIN = "7f06-7f07 r-xp 00000000 08:01 8 /opt/aws/libnccl-net-ofi.so\n"
MPI = "7f08-7f09 r-xp 00000000 08:01 5 /opt/ompi/lib/libmpi.so.40\n"
SECOND_NS = 1_000_000_000
RANK = RankProcess(attempt=0, rank=3, pid=103, start_ticks=1000)


@pytest.mark.parametrize(
    ("maps", "backends", "expected"),
    [
        (SHARED_MEMORY, set(), ("nccl",)),
        (SHARED_MEMORY + LOADED, {GLOO}, ("nccl",)),
        (PLUGIN, set(), ("nccl",)),
        (SHARED_MEMORY + LOADED, {NCCL}, None),
        (LOADED, set(), None),  # torch loads it in every process
        (MPI, set(), ("mpi",)),
        (MPI, {GLOO}, None),
        ("", set(), None),
    ],
)
def test_what_is_at_work_and_not_heard_of_is_said(
    tmp_path: Path, maps: str, backends: set[int], expected: tuple[str, ...] | None
) -> None:
    tree = ProcTree(tmp_path)
    tree.put(RANK.pid)
    tree.say(RANK.pid, maps=maps)
    watch = BlindWatch(tmp_path)
    said_after_s = next(
        (s for s in range(120) if watch.look([RANK], lambda: {(0, 3): backends}, s * SECOND_NS).get(RANK.pid)), None
    )
    assert (said_after_s is not None) == (expected is not None)
    if said_after_s is not None:
        assert 90 <= said_after_s < 120
        assert watch.look([RANK], dict, 121 * SECOND_NS)[RANK.pid] == expected


def test_one_that_is_heard_of_later_is_not_said_any_more_and_a_new_process_starts_anew(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.put(RANK.pid)
    tree.say(RANK.pid, maps=SHARED_MEMORY)
    watch = BlindWatch(tmp_path)
    assert not watch.look([RANK], dict, 0)
    assert watch.look([RANK], dict, 100 * SECOND_NS)
    assert not watch.look([RANK], lambda: {(0, 3): {NCCL}}, 120 * SECOND_NS)
    assert not watch.look([RANK], dict, 140 * SECOND_NS)
    other = RankProcess(attempt=0, rank=3, pid=103, start_ticks=2000)
    assert not watch.look([other], dict, 240 * SECOND_NS)
    tree.remove(RANK.pid)
    assert not watch.look([RANK], dict, 400 * SECOND_NS)


def test_a_map_is_read_again_only_where_the_process_maps_more_or_less_than_it_did(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.put(RANK.pid)
    tree.say(RANK.pid, maps=LOADED, statm="5000 900 300 1 0 800 0")
    watch = BlindWatch(tmp_path)
    watch.look([RANK], dict, 0)
    tree.say(RANK.pid, maps=SHARED_MEMORY)
    assert not any(watch.look([RANK], dict, second * SECOND_NS) for second in range(15, 300, 15)), "it was not read"
    tree.say(RANK.pid, statm="5001 900 300 1 0 800 0")
    assert not watch.look([RANK], dict, 300 * SECOND_NS)
    assert watch.look([RANK], dict, 400 * SECOND_NS) == {RANK.pid: ("nccl",)}


def test_the_agent_says_it_with_the_process(run: AgentRun) -> None:
    for rank in (0, 1):
        ring = run.ring(rank)
        ring.group([0, 1])
        run.proc.say(100 + rank, maps=SHARED_MEMORY)
    ring.launch(0, MS)  # rank 1's gloo; nothing of its NCCL
    for _ in range(130):
        run.step(1_000)
    last = run.receiver.of(HostSample)[-1]
    assert [(process.rank, process.unseen) for process in last.processes] == [(0, ("nccl",)), (1, ("nccl",))]
    first = next(
        sample for sample in run.receiver.of(HostSample) if any(process.unseen for process in sample.processes)
    )
    assert first.time_ns - run.receiver.of(HostSample)[0].time_ns < 120 * SECOND_NS
