"""The shim sees every call of a job, in order, as it was made; and ranks agree on ids and numbers without a word."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.calls.rings import RingReader
from pacehound.model.codes import DTYPES, OPS, REDOPS
from pacehound.model.identity import nccl_child_id, nccl_communicator_id
from tests.native.stub_jobs import JOB, Built, Job, Ring

NewJob = Callable[..., Job]

# NCCL's numbers of types and reductions, as nccl.h has them.
NCCL_TYPES = [
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16", "float8_e4m3",
    "float8_e5m2",
]  # fmt: skip
NCCL_REDOPS = ["sum", "prod", "max", "min", "avg", "premul_sum"]
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather", "scatter"]
REDUCING, ROOTED = {"all_reduce", "reduce_scatter", "reduce"}, {"broadcast", "reduce", "gather", "scatter"}


def line(op: str, comm: str, count: int = 1, dtype: int = 7, redop: int = 0, peer: int = 0, stream: int = 0) -> str:
    return f"{op} {comm} {count} {dtype} {redop} {peer} {stream}"


def seen(ring: Ring, names: dict[bytes, str]) -> list[tuple[object, ...]]:
    """Calls as tests write them: op, communicator, count, dtype, redop, peer, stream, seq."""
    return [
        (OPS[call["op"]], names[call["handle"]], call["count"], DTYPES[call["dtype"]], REDOPS[call["redop"]],
         call["peer"], call["stream"], call["seq"])
        for call in ring.calls
    ]  # fmt: skip


def names(ring: Ring) -> dict[bytes, str]:
    return {group.handle: group.name for group in ring.groups}


class Program:
    """One rank's script, and the calls it is expected to show."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.expected: list[tuple[object, ...]] = []
        self.next: Counter[tuple[object, ...]] = Counter()

    def call(self, op: str, comm: str, count: int, dtype: int, redop: int, peer: int, stream: int) -> None:
        self.lines.append(line(op, comm, count, dtype, redop, peer, stream))
        key = (comm, op, peer) if op in ("send", "recv") else (comm,)
        seq = self.next[key]
        self.next[key] += 1
        shown_peer = peer if op in ROOTED | {"send", "recv"} else -1
        shown_redop = NCCL_REDOPS[min(redop, 5)] if op in REDUCING else "unknown"
        self.expected.append((op, comm, count, NCCL_TYPES[dtype], shown_redop, shown_peer, stream, seq))


def random_programs(seed: int, size: int, rounds: int) -> list[Program]:
    """The same rounds on all ranks: collectives of the world and of two halves, pairs in groups, groups in groups."""
    rng = random.Random(seed)
    programs = [Program() for _ in range(size)]
    halves = {rank: f"half{rank % 2}" for rank in range(size)}
    for rank, program in enumerate(programs):
        program.lines += [
            f"initconfig world {size} {rank}",
            f"initconfig {halves[rank]} {(size + 1 - rank % 2) // 2} {rank // 2}",
        ]
    for _ in range(rounds):
        kind = rng.choice(["world", "half", "ring", "nested"])
        op, count, dtype = rng.choice(COLLECTIVES), rng.randrange(1, 1 << 20), rng.randrange(12)
        redop, root, stream, depth = rng.randrange(7), rng.randrange(size), rng.randrange(3), rng.randrange(1, 4)
        for rank, program in enumerate(programs):
            right, left = (rank + 1) % size, (rank - 1) % size
            if kind == "world":
                program.call(op, "world", count, dtype, redop, root, stream)
            elif kind == "half":
                program.call("all_reduce", halves[rank], count, dtype, redop, 0, stream)
            elif kind == "ring":
                program.lines.append("group")
                program.call("send", "world", count, dtype, 0, right, stream)
                program.call("recv", "world", count, dtype, 0, left, stream)
                program.lines.append("end")
            else:
                program.lines += ["group"] * depth
                program.call(op, "world", count, dtype, redop, root, stream)
                program.lines += ["end"] * (depth - 1)
                program.call("all_gather", halves[rank], count, dtype, 0, 0, stream)
                program.lines.append("end")
    for program in programs:
        program.lines.append("syncall")
    return programs


@pytest.mark.parametrize(("size", "seed"), [(2, 1), (3, 2), (8, 3), (16, 4)])
def test_every_call_is_seen_in_order_as_it_was_made(new_job: NewJob, size: int, seed: int) -> None:
    programs = random_programs(seed, size, rounds=60)
    job = new_job(size)
    for rank, program in enumerate(programs):
        job.start(rank, program.lines)
    job.wait()
    ids: dict[str, set[bytes]] = {}
    for rank, program in enumerate(programs):
        (ring,) = job.records(rank)
        assert seen(ring, names(ring)) == program.expected, f"rank {rank}"
        assert {call["rank"] for call in ring.calls} == {rank}
        for group in ring.groups:
            ids.setdefault(group.name, set()).add(group.handle)
            if group.name == "world":
                assert (group.is_world, group.members) == (True, tuple(range(size)))
            else:
                assert (group.is_world, group.place) == (False, rank // 2)
    assert all(len(handles) == 1 for handles in ids.values())
    assert len({next(iter(handles)) for handles in ids.values()}) == len(ids)


def test_the_id_of_a_communicator_is_the_one_that_python_computes(new_job: NewJob) -> None:
    job = new_job(2, PACEHOUND_ATTEMPT="2", TORCHELASTIC_RESTART_COUNT="1")
    for rank in range(2):
        job.start(rank, [
            f"initscalable w 2 {rank}", f"split none w -1 {rank}", f"split a w 7 {1 - rank}",
            "shrink b a 1" if rank == 1 else "sleep 0",
        ])  # fmt: skip
    job.wait()
    world = nccl_communicator_id(JOB, 3, (job.folder / "w.uid").read_bytes())
    child = nccl_child_id(JOB, 3, world, "split", 1, [7])  # the one with no colour counts
    for rank in range(2):
        (ring,) = job.records(rank)
        assert [group.handle for group in ring.groups[:2]] == [world, child]
        assert ring.groups[1].place == 1 - rank  # keys turn the order round
    survivor = job.records(1)[0].groups[2]
    assert survivor.handle == nccl_child_id(JOB, 3, child, "shrink", 0, [1])
    assert (survivor.size, survivor.place) == (1, 0)


def test_what_is_made_in_a_group_or_without_blocking_is_known_when_it_is_there(new_job: NewJob) -> None:
    job = new_job(2)
    for rank in range(2):
        job.start(rank, [
            "group", f"init a 2 {rank}", f"init b 2 {rank}", "end", line("all_reduce", "a"), line("all_reduce", "b"),
            f"initlater c 2 {rank}", f"split d c 0 {rank}", line("all_reduce", "c"), line("all_reduce", "d"),
            "group", f"split e a 0 {rank}", f"split f a 1 {rank}", "end",
            line("all_reduce", "e"), line("all_reduce", "f"),
        ])  # fmt: skip
    job.wait()
    rings = [job.records(rank)[0] for rank in range(2)]
    handles = [[call["handle"] for call in ring.calls] for ring in rings]
    assert handles[0] == handles[1]
    assert len(set(handles[0])) == 6


def test_threads_have_rings_of_their_own_and_share_the_numbers_of_a_communicator(new_job: NewJob) -> None:
    job = new_job(2)
    for rank in range(2):
        main = [
            f"init w 2 {rank}",
            f"init v 2 {rank}",
            f"touch made{rank}",
            line("all_reduce", "w"),
            "await second",
            "syncall",  # every thread, or a rank leaves with calls on its streams that the other one waits for
        ]
        second = ["await made0", "await made1", "repeat 100", line("all_gather", "v", stream=1), "again", "syncall"]
        third = [
            "await made0", "await made1", "repeat 100", "group", line("send", "w", peer=1 - rank, stream=2),
            line("recv", "w", peer=1 - rank, stream=2), "end", "again", "syncall", "touch second",
        ]  # fmt: skip
        job.start(rank, main, second, third)
    job.wait()
    for rank in range(2):
        main, *others = job.records(rank)
        assert len(others) == 2
        numbers: dict[tuple[bytes, int, int], list[int]] = {}
        for ring in others:
            for call in ring.calls:
                numbers.setdefault((call["handle"], call["direction"], call["peer"]), []).append(call["seq"])
        assert sorted(map(len, numbers.values())) == [100, 100, 100]
        assert all(seqs == list(range(100)) for seqs in numbers.values())


def test_a_group_is_launched_at_its_end_and_only_then(new_job: NewJob) -> None:
    job = new_job(1)
    job.start(
        0,
        [
            "init w 1 0", "group", line("all_reduce", "w"), "touch in", "await out", line("all_gather", "w"), "end",
            "syncall",
        ],
    )  # fmt: skip
    try:
        from tests.native.stub_jobs import until

        until("the job is in the group", (job.folder / "in").exists)
        assert job.records(0)[0].calls == []
        (job.folder / "out").touch()
    finally:
        job.wait()
    calls = job.records(0)[0].calls
    assert [OPS[call["op"]] for call in calls] == ["all_reduce", "all_gather"]
    assert len({call["launch_ns"] for call in calls}) == 1
    assert {call["group"] for call in calls} == {1}


def test_calls_that_nccl_refuses_take_no_number(new_job: NewJob) -> None:
    job = new_job(1)
    bad = line("all_reduce", "w", dtype=99)
    job.start(0, [
        "init w 1 0", line("all_reduce", "w"), f"try {bad}", line("all_gather", "w"),
        "group", line("broadcast", "w"), f"try {bad}", "try end",  # the group as a whole is refused
        "group", line("reduce", "w"), "simulate", line("gather", "w"),
    ])  # fmt: skip
    job.wait()
    calls = job.records(0)[0].calls
    assert [(OPS[call["op"]], call["seq"]) for call in calls if OPS[call["op"]] == "gather"] == [("gather", 2)]


def test_what_goes_into_a_graph_is_marked(new_job: NewJob) -> None:
    job = new_job(1)
    job.start(
        0,
        [
            "init w 1 0", "capture 3 1", line("all_reduce", "w", stream=3), line("all_reduce", "w", stream=0),
            "capture 3 0", line("all_reduce", "w", stream=3),
        ],
    )  # fmt: skip
    job.wait()
    assert [bool(call["flags"] & 1) for call in job.records(0)[0].calls] == [True, False, False]


def test_a_communicator_that_is_gone_says_so_once_and_its_handle_may_be_used_again(new_job: NewJob) -> None:
    job = new_job(1)
    lines: list[str] = []
    for i in range(40):
        ends = [f"abort c{i}"] if i % 3 == 0 else [f"finalize c{i}"] * (i % 2) + [f"destroy c{i}"]
        lines += [f"initconfig c{i} 1 0", line("all_reduce", f"c{i}"), *ends]
    job.start(0, lines)
    job.wait()
    (ring,) = job.records(0)
    assert [group.name for group in ring.groups] == [f"c{i}" for i in range(40)]
    assert ring.destroyed == [group.handle for group in ring.groups]
    assert seen(ring, names(ring)) == [("all_reduce", f"c{i}", 1, "float32", "sum", -1, 0, 0) for i in range(40)]


def test_one_process_may_have_all_ranks(new_job: NewJob) -> None:
    job = new_job()
    job.start(0, ["initall g 3", "group", *(line("all_reduce", f"g{i}", stream=i) for i in range(3)), "end", "syncall"])
    job.wait()
    (ring,) = job.records(0)
    assert [(group.rank, group.members, group.is_world) for group in ring.groups] == [
        (i, (0, 1, 2), True) for i in range(3)
    ]
    assert len({group.handle for group in ring.groups}) == 1
    assert [(call["rank"], call["seq"]) for call in ring.calls] == [(i, 0) for i in range(3)]


def test_what_the_shim_takes_of_a_call_is_measured_now_and_then(new_job: NewJob) -> None:
    job = new_job(1)
    job.start(0, ["init w 1 0", *[line("all_reduce", "w")] * 5_000, "syncall"])
    job.wait()
    (path,) = (job.run_dir / "rings").iterdir()
    reader = RingReader(path)
    calls, took_ns = reader.measured()
    reader.close()
    assert 0 < calls <= 5_000 // 256 + 1
    assert 0 < took_ns <= 50_000 * calls


def test_nccl_is_found_where_it_was_loaded_late_and_privately(new_job: NewJob, built: Built) -> None:
    """As torch does it: NCCL comes with a library that Python opens, and is in nobody else's scope."""
    job = new_job(1)
    caller = (
        "import ctypes, sys; a = [b'job', *(x.encode() for x in sys.argv[1:])]; "
        f"sys.exit(ctypes.CDLL({str(built.folder / 'libjob.so')!r}).stub_main(len(a), (ctypes.c_char_p * len(a))(*a)))"
    )
    job.start(0, ["init w 1 0", line("all_reduce", "w"), "syncall"], program=[sys.executable, "-S", "-c", caller])
    job.wait()
    assert len(job.records(0)[0].calls) == 1


def test_nothing_is_written_without_a_run_folder(new_job: NewJob, tmp_path: Path) -> None:
    job = new_job(1, PACEHOUND_RUN_DIR="")
    job.start(0, ["group", "init w 1 0", "end", line("all_reduce", "w"), "destroy w"])
    job.wait()
    assert list(job.run_dir.iterdir()) == []
