"""A real gloo job of four ranks that communicates in every way, seen through its rings."""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest
import ring_reader

from bench.rig import realjob
from pacehound.instrument import build
from pacehound.instrument.launch import environment
from pacehound.model.codes import DTYPES, OPS
from pacehound.model.identity import communicator_id

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, needs_torch]

JOB = Path(__file__).with_name("instrumented_job.py")
GROUP, MEMBERS, LAUNCH, COMPLETE, MARKER, EXIT, DESTROY = range(1, 8)
WORLD = (0, 1, 2, 3)


class Seen:
    """The records of a job, by rank; and when, as it says itself, what it had to wait for was there."""

    def __init__(self, run_dir: Path) -> None:
        self.returned_ns: dict[int, list[int]] = {}  # the backward pass of each sharded step
        self.waited_ns: dict[int, list[int]] = {}  # each result of a functional collective
        self.rings = ring_reader.read_all(run_dir)
        self.records = [record for ring in self.rings for record in ring.records]
        self.groups: dict[bytes, dict[str, object]] = {}
        self.members: dict[bytes, list[int]] = defaultdict(list)
        self.announced: dict[bytes, set[int]] = defaultdict(set)
        for record in self.records:
            if record.kind == GROUP:
                self.groups[record.handle] = ring_reader.group(record)
                self.announced[record.handle].add(record.rank)
        for ring in self.rings:
            for handle in {record.handle for record in ring.records if record.kind == MEMBERS}:
                parts = [r for r in ring.records if r.kind == MEMBERS and r.handle == handle]
                self.members[handle] = [rank for part in parts for rank in ring_reader.members(part)]

    def calls(self, kind: int) -> dict[tuple[bytes, int, int, int, int], ring_reader.Call]:
        """By (communicator, rank, seq, peer if p2p, direction)."""
        found = {}
        for record in self.records:
            if record.kind == kind:
                call = ring_reader.call(record)
                peer = call.peer if call.direction else -1
                key = (record.handle, record.rank, call.seq, peer, call.direction)
                assert key not in found, "two records of one call"
                found[key] = call
        return found


WITHOUT_HOOKS = """
import os
from pacehound.instrument import build, torch_c10d
build.find = lambda: os.environ["BUILT"] or None
as_it_is = torch_c10d.Instrument.__init__
def without_hooks(self, *args):
    as_it_is(self, *args)
    self._has_hooks = False
torch_c10d.Instrument.__init__ = without_hooks
"""
"""A `sitecustomize`: the torch of this process has no hooks, as before 2.15."""

SEEN_BY = [
    pytest.param("python", marks=[pytest.mark.prove]),
    pytest.param("dispatched", marks=[pytest.mark.prove]),
    "dispatched natively",
    "native",
]


def built_for_the_dispatcher(folder: Path) -> Path:
    made = folder / build.path().name
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "has_hooks", lambda: False)
        build.make(made)
    return made


@pytest.fixture(scope="module", params=SEEN_BY)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    if request.param.endswith(("native", "natively")) and build.find() is None:
        if build.reason_unavailable() is not None:
            pytest.skip(f"no native hooks here: {build.reason_unavailable()}")
        build.build()
    run_dir = tmp_path_factory.mktemp(request.param)
    usual = {**os.environ, "OMP_NUM_THREADS": "1"}
    if request.param.startswith("dispatched"):
        folder = tmp_path_factory.mktemp("site")
        (folder / "sitecustomize.py").write_text(WITHOUT_HOOKS)
        usual["PYTHONPATH"] = str(folder)
        usual["BUILT"] = str(built_for_the_dispatcher(folder)) if request.param.endswith("natively") else ""
    env = environment(run_dir, "job-1", usual)
    if request.param == "python":
        env["PACEHOUND_NATIVE"] = "0"
    command = realjob.forked(tmp_path_factory.mktemp("store"), ranks=4, script=JOB)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert not (run_dir / "notes").exists(), [p.read_text() for p in (run_dir / "notes").iterdir()]
    result = Seen(run_dir)
    result.returned_ns = {rank["rank"]: rank["returned_ns"] for rank in told}
    result.waited_ns = {rank["rank"]: rank["waited_ns"] for rank in told}
    assert {ring.pid for ring in result.rings} == {rank["pid"] for rank in told}, "only the ranks write rings"
    return result


def world_of(seen: Seen, generation: int) -> bytes:
    (handle,) = [h for h, g in seen.groups.items() if g["is_world"] and g["generation"] == generation]
    return handle


def test_every_group_is_announced_by_each_of_its_members_with_world_ranks(seen: Seen) -> None:
    for handle, ranks in seen.members.items():
        assert seen.announced[handle] == set(ranks)
        group = seen.groups[handle]
        expected = communicator_id("job-1", 0, str(group["name"]), ranks, int(str(group["generation"])))
        assert handle.hex() == expected
        assert group["backend"] == 1
    sets = sorted(tuple(sorted(ranks)) for ranks in seen.members.values())
    assert (1, 3) in sets, "new_group"
    assert sets.count((0, 1)) >= 2, "split_group and the mesh's tensor-parallel group"
    assert (0, 2) in sets, "the mesh's data-parallel group"
    assert seen.groups[world_of(seen, 0)]["timeout_ms"] == 60_000


def test_reinitialising_makes_a_new_communicator_that_counts_from_zero(seen: Seen) -> None:
    first, second = world_of(seen, 0), world_of(seen, 1)
    assert first != second
    again = {key: call for key, call in seen.calls(LAUNCH).items() if key[0] == second}
    assert {(key[1], call.seq, OPS[call.op], call.count) for key, call in again.items()} == {
        (rank, 0, "all_reduce", 7) for rank in WORLD
    }


def test_ranks_agree_on_the_sequence_of_collectives_of_every_group(seen: Seen) -> None:
    by_group: dict[bytes, dict[int, list[tuple[object, ...]]]] = defaultdict(lambda: defaultdict(list))
    for (handle, rank, seq, _, direction), call in sorted(seen.calls(LAUNCH).items()):
        if not direction:
            sizes_agree = OPS[call.op] not in {"gather", "scatter"}
            by_group[handle][rank].append((seq, call.op, call.dtype, call.peer, call.count if sizes_agree else 0))
    for handle, by_rank in by_group.items():
        sequences = list(by_rank.values())
        assert [c[0] for c in sequences[0]] == list(range(len(sequences[0]))), "no gap"
        assert all(sequence == sequences[0] for sequence in sequences), seen.groups[handle]
        assert set(by_rank) == set(seen.members[handle])


def test_the_script_s_own_collectives_are_seen_in_its_order(seen: Seen) -> None:
    world = world_of(seen, 0)
    calls = [call for key, call in sorted(seen.calls(LAUNCH).items()) if key[0] == world and key[1] == 0 and not key[4]]
    seen_here = [(OPS[c.op], DTYPES[c.dtype], c.peer, c.count) for c in calls[:14]]
    f32 = "float32"
    assert seen_here == [
        ("all_reduce", f32, -1, 4),
        ("broadcast", f32, 1, 4),
        ("reduce", f32, 2, 4),
        ("barrier", "unknown", -1, 0),
        ("all_gather", f32, -1, 4),
        ("all_gather", f32, -1, 4),
        ("reduce_scatter", f32, -1, 8),
        ("reduce_scatter", f32, -1, 8),
        ("all_to_all", f32, -1, 8),
        ("gather", f32, 1, 4),
        ("scatter", f32, 1, 4),
        ("all_reduce", "float64", -1, 8),
        ("all_reduce", "float64", -1, 8),
        ("all_reduce", "float64", -1, 8),
    ]
    assert [bool(c.flags & 4) for c in calls[10:14]] == [False, True, True, True]


def test_roots_of_a_subgroup_are_world_ranks(seen: Seen) -> None:
    broadcasts = {key: call for key, call in seen.calls(LAUNCH).items() if OPS[call.op] == "broadcast"}
    (pair,) = {key[0] for key, call in broadcasts.items() if call.count == 13}
    assert seen.members[pair] == [1, 3]
    assert {call.peer for key, call in broadcasts.items() if key[0] == pair} == {3}
    assert sorted(r.rank for r in seen.records if r.kind == DESTROY and r.handle == pair) == [1, 3]


def test_every_launched_call_ends_after_its_launch(seen: Seen) -> None:
    launched, completed = seen.calls(LAUNCH), seen.calls(COMPLETE)
    assert set(launched) == set(completed)
    for key, call in completed.items():
        assert call.launch_ns == launched[key].launch_ns
        assert call.end_ns > call.launch_ns
        assert not call.flags & 2, "none failed"
        is_bound = bool(call.flags & 8)
        assert is_bound == (OPS[call.op] in {"send", "recv", "reduce_scatter"})


def test_what_a_step_of_sharded_parameters_scatters_is_over_when_its_backward_pass_is(seen: Seen) -> None:
    of_pair = [handle for handle, ranks in seen.members.items() if ranks in ([0, 2], [1, 3])]
    for rank, returned_ns in seen.returned_ns.items():
        ends_ns = sorted(
            call.end_ns
            for key, call in seen.calls(COMPLETE).items()
            if key[0] in of_pair and key[1] == rank and OPS[call.op] == "reduce_scatter"
        )
        assert len(ends_ns) == len(returned_ns) == 2
        assert all(end_ns < returned for end_ns, returned in zip(ends_ns, returned_ns, strict=True))


def test_what_a_functional_collective_scatters_is_over_when_its_result_has_been_waited_for(seen: Seen) -> None:
    """Whatever has been issued meanwhile, and not with the rank's next call: its own work lies between."""
    for rank, waited_ns in seen.waited_ns.items():
        ends_ns = {
            call.count // len(WORLD): call.end_ns
            for key, call in seen.calls(COMPLETE).items()
            if key[1] == rank and OPS[call.op] == "reduce_scatter"
        }
        assert ends_ns[31] < waited_ns[0] < ends_ns[37] < waited_ns[1] < ends_ns[41]


def test_ranks_of_one_all_reduce_end_after_the_last_one_entered(seen: Seen) -> None:
    rounds: dict[tuple[bytes, int], list[ring_reader.Call]] = defaultdict(list)
    for (handle, _, seq, _, direction), call in seen.calls(COMPLETE).items():
        if not direction and OPS[call.op] == "all_reduce":
            rounds[handle, seq].append(call)
    assert len(rounds) > 10
    for calls in rounds.values():
        assert min(c.end_ns for c in calls) > max(c.launch_ns for c in calls)


def test_sends_and_receives_of_a_pair_have_the_same_numbers(seen: Seen) -> None:
    sends, receives = set(), set()
    for (handle, rank, seq, peer, direction), call in seen.calls(LAUNCH).items():
        if direction == 1:
            sends.add((handle, rank, peer, seq, call.count))
        elif direction == 2:
            receives.add((handle, peer, rank, seq, call.count))
    assert sends == receives
    assert len({(source, destination) for _, source, destination, _, _ in sends}) >= 8, "ring both ways"


def test_data_parallel_steps_leave_gradients_and_markers(seen: Seen) -> None:
    for rank in WORLD:
        markers = [ring_reader.marker(r) for r in seen.records if r.kind == MARKER and r.rank == rank]
        kinds = [(kind, step, ordinal) for _, step, kind, ordinal in sorted(markers)]
        # Two of one optimizer and 25 of the next, which goes on with the numbers.
        assert [k for k in kinds if k[0] == 0] == [(0, step, 0) for step in range(27)]
        assert [k[0] for k in kinds if k[0] != 0] == [3, 4, 1, 2], "evaluation, then a checkpoint"
    world = world_of(seen, 0)
    gradients = [c for key, c in seen.calls(LAUNCH).items() if key[0] == world and key[1] == 0 and c.count == 9]
    assert len([c for c in gradients if OPS[c.op] == "all_reduce"]) == 25, "DDP's own all-reduces"


def test_what_a_step_has_waited_for_is_over_when_it_ends(seen: Seen) -> None:
    """Though the thread that tells of it may come later: with few processors it does in every fifth step."""
    world = world_of(seen, 0)
    for rank in WORLD:
        markers = [ring_reader.marker(r) for r in seen.records if r.kind == MARKER and r.rank == rank]
        steps_ns = [time_ns for time_ns, step, kind, _ in sorted(markers) if kind == 0 and step >= 2]
        gradients = [
            call
            for key, call in sorted(seen.calls(COMPLETE).items())
            if key[:2] == (world, rank) and call.count == 9 and OPS[call.op] == "all_reduce"
        ]
        assert len(gradients) == len(steps_ns)
        assert all(call.end_ns <= step_ns for call, step_ns in zip(gradients, steps_ns, strict=True))


def test_ranks_leave_in_good_order(seen: Seen) -> None:
    exits = [(r.rank, ring_reader.leaving(r)) for r in seen.records if r.kind == EXIT]
    assert sorted(exits) == [(rank, (0, "")) for rank in WORLD]
    assert all(ring.closed for ring in seen.rings)
