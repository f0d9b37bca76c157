"""The readers on recordings that nobody here wrote: counts, ranks, groups, and where they agree over ranks."""

from __future__ import annotations

from collections import Counter

import pytest

from collector.importers.call_files import kineto, xpu_timer
from collector.importers.recognise import read_call_files
from pacehound.model.calls import OPS, CallBatch, Sees
from pacehound.model.events import UNTOLD, HostSample, Markers, Progress, Topology
from tests.fakes.call_files import RECORDED

pytestmark = pytest.mark.skipif(not (RECORDED / "fr").is_dir(), reason=f"the recordings are not at {RECORDED}")


def dumps(name):
    found = read_call_files(sorted((RECORDED / "fr" / name).iterdir()))
    assert found.refused == ()
    assert [path.name for path in found.others] == ["fault_injection.log", "nvrx_reference.txt"]
    (calls,) = found.sets
    assert [file.ranks for file in calls.files] == [(rank,) for rank in range(16)]
    return calls.files


@pytest.mark.parametrize(
    ("name", "still_open", "groups"),
    [
        ("gpu_error_1st", [20, 20, 20, 20, 8, 8, 8, 8, 19, 19, 19, 19, 27, 16, 43, 15], 65),
        ("lock_gil_1st", [11] * 8 + [9, 0, 9, 9, 9, 9, 0, 9], 59),
    ],
)
def test_dumps_of_a_whole_job(name, still_open, groups):
    files = dumps(name)
    told = [one for file in files for one in file.events if isinstance(one, Progress)]
    by_rank = Counter()
    for progress in told:
        (ours,) = progress.ranks
        by_rank[ours.rank] += len(ours.open)
    assert [by_rank[rank] for rank in range(16)] == still_open
    topologies = [one for file in files for one in file.events if isinstance(one, Topology)]
    members = {}
    for one in topologies:
        # The same id on every rank means the same group.
        assert members.setdefault(one.communicator, (one.name, one.members)) == (one.name, one.members)
        assert set(one.host_ranks) <= set(one.members)
    assert len(members) == groups
    assert {one.members for one in topologies if one.is_world} == {tuple(range(16))}
    assert {file.world_size for file in files} == {16}


def test_both_ends_of_a_pair_agree_on_their_oldest_open_transfer():
    """The sends of one rank and the receives of its peer have the same numbers wherever both have launched them."""
    halves = Counter()
    for file in dumps("gpu_error_1st"):
        for progress in file.events:
            if isinstance(progress, Progress):
                for one in progress.ranks[0].open:
                    if one.direction != "none":
                        ends = (progress.ranks[0].rank, one.peer)
                        halves[progress.communicator, *(ends if one.direction == "send" else ends[::-1]), one.seq] += 1
    assert max(halves.values()) == 2
    assert sum(count == 2 for count in halves.values()) > sum(halves.values()) / 4


def test_the_ranks_without_any_call_are_behind_their_peers_and_say_so():
    files = dumps("lock_gil_1st")
    tensor_group = [
        (progress.ranks[0].rank, progress.ranks[0].last_launched)
        for file in files[8:12]
        for progress in file.events
        if isinstance(progress, Progress)
        and any(isinstance(one, Topology) and one.communicator == progress.communicator
                and one.name == "TENSOR_MODEL_PARALLEL_GROUP" for one in file.events)
    ]  # fmt: skip
    assert tensor_group == [(8, 88688), (9, 88683), (10, 88688), (11, 88688)]
    # Ranks 0-7 have made point-to-point calls on the default group, so its counter on rank 9 says nothing.
    world = next(one.communicator for one in files[9].events if isinstance(one, Topology) and one.is_world)
    (ours,) = (one.ranks[0] for one in files[9].events if isinstance(one, Progress) and one.communicator == world)
    assert ours.last_launched == UNTOLD


@pytest.mark.parametrize(
    ("name", "ops", "steps"),
    [
        ("hta_nccl_data.json.gz", {"all_reduce": 15, "broadcast": 6}, (4, 5, 6)),
        ("mng_adamsync_current_rank0.json.gz", {"all_gather": 28, "reduce_scatter": 28}, (10, 11, 12, 13)),
        ("mng_adamsync_hook_rank0.json.gz", {"all_gather": 28, "reduce_scatter": 28}, (10, 11, 12, 13)),
    ],
)
def test_traces_with_collective_arguments(name, ops, steps):
    (file,) = kineto.joined([kineto.read(RECORDED / "kineto" / name)], "job").files
    assert file.ranks == (0,)
    (batch,) = [one for one in file.events if isinstance(one, CallBatch)]
    assert Counter(OPS[code] for code in batch.codes("op")) == ops
    assert batch.sees == Sees.ALL
    assert batch.integers("seq").tolist() == list(range(len(batch)))
    assert (batch.integers("launch_ns") < batch.integers("start_ns")).all()
    assert (batch.integers("start_ns") < batch.integers("end_ns")).all()
    (markers,) = [one for one in file.events if isinstance(one, Markers)]
    assert markers.steps == steps
    assert markers.communicator == batch.communicator


@pytest.mark.parametrize("rank", [0, 1])
def test_traces_without_collective_arguments_still_have_steps(rank):
    trace = kineto.read(RECORDED / "kineto" / f"hta_sampled_rank-{rank}.json.gz")
    (file,) = kineto.joined([trace], "job").files
    assert (file.ranks, file.world_size) == ((rank,), 128)
    assert not any(isinstance(one, CallBatch) for one in file.events)
    assert any("10 NCCL kernels do not say" in note for note in file.notes)


@pytest.mark.parametrize(("name", "hang"), [("normal_0.prom", ()), ("hang_all.prom", tuple(range(8)))])
def test_scrapes(name, hang):
    (file,) = xpu_timer.joined([xpu_timer.read(RECORDED / "xpu_timer" / name)], "job").files
    assert file.ranks == tuple(range(8))
    (sample,) = [one for one in file.events if isinstance(one, HostSample)]
    assert sample.host == "aistudio-z1y0p6pq-edljob-worker-0"
    assert [one.rank for one in sample.processes] == list(range(8))
    assert tuple(one.rank for one in sample.processes if one.detail) == hang
