"""The profiler plugin, played recorded sequences of events by a host of our own, through each of its interfaces."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import Counter

import numpy as np
import pytest

from collector.calls import rings
from pacehound.model.codes import ALGORITHMS, DTYPES, OPS, PROTOCOLS, SOURCES
from tests.native import plugin_jobs
from tests.native.plugin_jobs import NewPluginJob, Plugin

APIS = [4, 5, 6]
INIT = "init c abcdef12 2 0 world"
REDUCE = "coll x c g AllReduce 1024 ncclFloat32 2 0 0 RING SIMPLE"


def call(name: str, start: str, channels: int = 2) -> list[str]:
    """A collective as NCCL tells of it when all goes well: stopped when enqueued, then its kernel by channel."""
    lines = [f"group g{name} c", start, f"stop {name}", f"stop g{name}", "sleep 300"]
    lines += [f"kernel {name}k{channel} c {name} {channel} n" for channel in range(channels)]
    lines += ["sleep 300"]
    return [*lines, *(f"kstop {name}k{channel} n" for channel in range(channels))]


@pytest.mark.parametrize("api", APIS)
def test_a_collective_is_over_when_its_kernel_is_and_not_when_it_is_enqueued(
    new_plugin_job: NewPluginJob, api: int
) -> None:
    job = new_plugin_job()
    enqueued = [INIT, "group g c", REDUCE, "stop x", "stop g"]
    started = [*enqueued, "sleep 300", "kernel k0 c x 0 n", "kernel k1 c x 1 n", "sleep 1500", "kstop k1 n"]
    job.play(started, api=api)
    assert (len(job.launches()), len(job.completes())) == (1, 0)
    (launch,) = job.launches()
    assert (OPS[launch["op"]], DTYPES[launch["dtype"]], launch["count"]) == ("all_reduce", "float32", 1024)
    assert (ALGORITHMS[launch["algorithm"]], PROTOCOLS[launch["protocol"]]) == ("ring", "simple")
    assert (SOURCES[launch["source"]], launch["channels"], launch["peer"]) == ("profiler", 2, -1)

    other = new_plugin_job(rank=1)
    other.play([*started, "sleep 500", "kstop k0 n"], api=api)
    (complete,) = other.completes()
    duration_ns = int(complete["end_ns"]) - int(complete["start_ns"])
    assert complete["launch_ns"] + 250_000 < complete["start_ns"] < complete["end_ns"]
    assert 1_800_000 < duration_ns < 1_000_000_000  # the GPU's clock runs 7 ms ahead of ours
    assert not complete["flags"] & rings.END_BOUND
    assert (complete["send_count"], complete["recv_count"]) == (-1, -1)
    assert np.isnan([complete["send_rate"], complete["recv_rate"]]).all()


@pytest.mark.parametrize("api", APIS)
def test_transfers_are_counted_by_direction_and_a_call_waits_for_them(new_plugin_job: NewPluginJob, api: int) -> None:
    job = new_plugin_job()
    script = [
        INIT, "group g c", REDUCE, "stop x", "stop g", "op s0 c x 0 1 8 1", "op s1 c x 1 1 2 1", "op r c x 0 1 3 0",
    ]  # fmt: skip
    for step in range(8):  # eight of them in two milliseconds: four in each
        script += [*(["sleep 3000"] if step == 4 else []), f"step t{step} c s0 {step}", f"stop t{step}"]
    script += ["kernel k0 c x 0 n", "kernel k1 c x 1 n", "kstop k0 n", "kstop k1 n", "stop s0"]
    # Records of s1's and r's transfers are missing; they are over all the same.
    job.play(script, api=api)
    assert len(job.completes()) == 0
    job.play([*script, "stop s1", "stop r"], api=api)
    (complete,) = job.completes()
    assert (complete["send_count"], complete["recv_count"]) == (10, 3)
    assert 2 <= complete["send_rate"] <= 10
    assert np.isnan(complete["recv_rate"])


@pytest.mark.parametrize("api", APIS)
def test_records_that_come_twice_late_or_never_change_nothing_else(new_plugin_job: NewPluginJob, api: int) -> None:
    job = new_plugin_job()
    script = [INIT, *call("a", "coll a c ga AllGather 7 ncclInt8 2 0 0 TREE LL")]
    # Everything once more, with handles that are over: nothing may come of it.
    script += ["kstop ak0 n", "stop ak0", "stop a", "stop ga", "kernel late c a 1 n", "kstop late n", "state ak0 9"]
    script += ["op o c a 0 1 4 1", "step t c o 0", "stop t", "stop o"]
    # b's second channel never ends, c ends without a time, d has a time that cannot be; e is whole.
    script += [
        "group gb c",
        "coll b c gb AllReduce 1 ncclFloat16 2 0 0 RING LL128",
        "kernel bk0 c b 0 n",
        "kstop bk0 n",
    ]
    script += ["group gc c", "coll cc c gc AllReduce 1 ncclFloat16 1 1 0 RING LL", "kernel ck c cc 0 n", "stop ck"]
    script += ["group gd c", "coll d c gd AllReduce 1 ncclFloat16 1 2 0 RING LL", "kernel dk c d 0 n", "kstop dk 1"]
    script += call("e", "coll e c ge AllReduce 1 ncclFloat16 2 3 0 RING LL")
    script += ["sleep 150000", *call("f", "coll f c gf AllReduce 1 ncclFloat16 2 4 0 RING LL")]
    job.play(script, api=api)
    ends = {int(row["seq"]): row for row in job.completes()}
    assert sorted(ends) == [0, 1, 2, 3, 4, 5]
    assert Counter(job.completes()["seq"].tolist()).most_common(1)[0][1] == 1
    bound = {seq: bool(row["flags"] & rings.END_BOUND) for seq, row in ends.items()}
    assert bound == {0: False, 1: True, 2: True, 3: True, 4: False, 5: False}
    for seq, row in ends.items():
        assert row["launch_ns"] <= row["end_ns"], seq
        assert row["start_ns"] <= row["end_ns"], seq
    assert ends[1]["end_ns"] <= ends[4]["start_ns"]  # they run in order: it was over when e began


@pytest.mark.parametrize("api", APIS)
def test_pairs_are_counted_by_peer_and_direction_and_functions_together(new_plugin_job: NewPluginJob, api: int) -> None:
    job = new_plugin_job()
    script = [INIT.replace(" 2 0 ", " 4 0 ")]
    for n in range(3):
        script += [f"group g{n} c", f"p2p s{n} c g{n} Send 5 ncclUint8 3 1", f"p2p r{n} c g{n} Recv 5 ncclUint8 2 1"]
        script += [f"coll a{n} c g{n} AllReduce 1 ncclFloat64 1 {n} 0 NVLS SIMPLE"]
        script += [f"coll b{n} c g{n} Broadcast 1 ncclBfloat16 1 {n} 3 RING LL"]
    job.play(script, api=api)
    seen = [
        (OPS[row["op"]], int(row["seq"]), int(row["peer"]), bool(row["flags"] & rings.LOCAL_PEER))
        for row in job.launches()
    ]
    assert seen == [
        line
        for n in range(3)
        for line in (
            ("send", n, 3, True),
            ("recv", n, 2, True),
            ("all_reduce", 2 * n, -1, False),
            ("broadcast", 2 * n + 1, 3, True),
        )
    ]
    groups = job.launches()["group"].reshape(3, 4)
    assert (groups[:, 0] == groups[:, 1]).all()
    assert len(set(groups[:, 0].tolist())) == 3


def test_calls_that_nccl_does_not_tell_of_leave_a_gap_in_the_numbers(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job()
    script = [INIT]
    for said in (0, 1, 5, 6):
        script += ["group g c", f"coll x c g AllReduce 1 ncclInt32 1 {said} 0 RING LL"]
    script += ["group g c", "coll x c g Reduce 1 ncclInt32 1 0 0 RING LL", "final c"]
    job.play(script)
    assert job.launches()["seq"].tolist() == [0, 1, 5, 6, 7]
    assert any("3 calls not told of" in note for note in job.notes())


def test_transfers_for_another_process_are_not_taken_for_ours(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job()
    script = [INIT, "group g c", REDUCE, "op o c x 0 1 4 1 1", "step t c o 0", "stop t", "stop o"]
    script += ["kernel k0 c x 0 n", "kernel k1 c x 1 n", "kstop k0 n", "kstop k1 n", "final c"]
    job.play(script)
    assert job.completes()["send_count"].tolist() == [-1]
    assert any("1 transfers for other processes" in note for note in job.notes())


def test_a_communicator_says_who_is_in_it_and_all_ranks_name_it_alike(new_plugin_job: NewPluginJob) -> None:
    jobs = [new_plugin_job(rank) for rank in (0, 1)]
    for rank, job in enumerate(jobs):
        job.play([f"init c abcdef12 2 {rank} world", f"init d 77 1 0 alone{rank}", "final d", "final c"])
    found = jobs[0].records()
    groups = found[found["kind"] == rings.GROUP].view(rings.RAW).view(rings.GROUP_BODY)
    by_name: dict[str, set[bytes]] = {}
    for group in groups:
        name = bytes(group["name"]).split(b"\0", 1)[0].decode()
        by_name.setdefault(name, set()).add(bytes(group["handle"]))
    assert {name: len(handles) for name, handles in by_name.items()} == {"world": 1, "alone0": 1, "alone1": 1}
    assert (found["kind"] == rings.DESTROY).sum() == 4
    assert {bool(group["is_world"]) for group in groups if int(group["n_members"]) == 2} == {True}


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (22603, "needs NCCL 2.27"),
        (23003, "2112"),
        (0, "does not say its version"),
    ],
)
def test_versions_of_nccl_that_are_known_to_break_are_refused_with_the_reason(
    new_plugin_job: NewPluginJob, version: int, words: str
) -> None:
    job = new_plugin_job()
    said = job.play([INIT, "group g c", REDUCE, "final c"], HOST_NCCL_VERSION=str(version))
    assert "mask 0 context 0" in said
    assert words in said
    assert any(words in note for note in job.notes())
    assert len(job.records()) == 0


@pytest.mark.parametrize("version", [22803, 22907, 23004, 23007])
def test_other_versions_are_not(new_plugin_job: NewPluginJob, version: int) -> None:
    job = new_plugin_job()
    assert "mask 94 context 1" in job.play([INIT], HOST_NCCL_VERSION=str(version))


@pytest.mark.parametrize(
    ("version", "api", "words"),
    [
        pytest.param(22707, 4, "2039", marks=[pytest.mark.prove]),
        pytest.param(23102, 6, "2355", marks=[pytest.mark.prove]),
        (23203, 6, "2355"),
    ],
)
def test_where_kernel_events_were_reported_as_costly_calls_are_told_without_their_ends(
    new_plugin_job: NewPluginJob, version: int, api: int, words: str
) -> None:
    job = new_plugin_job()
    script = [INIT, "repeat 600", "group g# c", "coll x# c g# AllReduce 1024 ncclFloat32 2 # 0 TREE LL"]
    script += ["op s# c x# 1 1 2 1", "step t# c s# 0", "stop t#", "stop s#", "stop x#", "stop g#", "again"]
    said = job.play([*script, "sleep 5100000", "group g c", REDUCE.replace("2 0 0", "2 600 0")], api=api,
                    HOST_NCCL_VERSION=str(version))  # fmt: skip
    assert "mask 30 context 1" in said
    assert any(words in note for note in job.notes())
    assert job.launches()["seq"].tolist() == list(range(601)), "none is left out, and the communicator is not given up"
    assert {SOURCES[code] for code in job.launches()["source"].tolist()} == {"profiler_launches"}
    assert len(job.completes()) == 0
    found = job.records()
    edges = found[found["kind"] == rings.EDGE].view(rings.RAW).view(rings.EDGE_BODY)
    assert [(int(edge["index"]), int(edge["peer"]), int(edge["channel"])) for edge in edges] == [(0, 1, 1)]


def test_without_a_run_folder_nothing_is_asked_for(new_plugin_job: NewPluginJob) -> None:
    assert "mask 0 context 0" in new_plugin_job().play([INIT, "group g c", REDUCE], PACEHOUND_RUN_DIR="")


def test_calls_beyond_what_fits_are_left_out_and_counted(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job()
    script = [INIT, "group g c", "coll f c g AllReduce 1 ncclInt8 1 0 0 RING LL", "kernel k c f 0 n"]
    script += ["repeat 5000", "group g# c", "coll x# c g# AllReduce 1 ncclInt8 1 # 0 RING LL", "again", "final c"]
    job.play(script)
    assert any("905 calls not told of" in note for note in job.notes())


def test_a_communicator_without_kernel_events_is_left_alone_instead_of_seeming_to_hang(
    new_plugin_job: NewPluginJob,
) -> None:
    job = new_plugin_job()
    script = [INIT, "repeat 20", "group g# c", "coll x# c g# AllReduce 1 ncclInt8 1 # 0 RING LL", "again"]
    job.play([*script, "sleep 5100000", *script[1:]])
    assert job.launches()["seq"].tolist() == list(range(20))
    assert (job.records()["kind"] == rings.DESTROY).sum() == 1
    assert job.notes() == ["a communicator is not watched: NCCL tells of no kernels on it"]


def test_several_ranks_in_one_process_are_told_apart(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job(world=None)
    job.play([line for rank in (0, 1) for line in (f"init c{rank} abc 2 {rank} w", f"init d{rank} {rank} 1 0 alone")])
    found = job.records()
    groups = found[found["kind"] == rings.GROUP].view(rings.RAW).view(rings.GROUP_BODY)
    assert [(int(row["rank"]), int(row["n_members"]), int(row["generation"])) for row in groups] == [
        (0, 2, 0),
        (0, 1, 0),
        (1, 2, 0),
        (1, 1, 0),
    ]


def test_nothing_but_nccls_interface_is_exported(plugin: Plugin) -> None:
    tool = shutil.which("nm")
    if tool is None:
        pytest.skip("no nm")
    listed = subprocess.run([tool, "-D", "--defined-only", plugin.built], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert names == {
        *(f"ncclProfiler_v{api}" for api in APIS),
        "pacehound_profiler_refusal",
        "pacehound_profiler_no_kernels",
    }


def random_script(rng: random.Random, n_calls: int) -> tuple[list[str], int]:
    """Calls whose records are dropped, doubled and shuffled among each other; and how many calls there are."""
    lines = [INIT]
    late: list[str] = []
    for n in range(n_calls):
        channels = rng.randrange(1, 4)
        lines += [f"group g{n} c", f"coll x{n} c g{n} AllReduce {n} ncclInt8 {channels} {n} 0 RING LL", f"stop x{n}"]
        events = [f"op o{n} c x{n} 0 1 2 1", f"step t{n} c o{n} 0", f"stop t{n}", f"stop o{n}"]
        for channel in range(channels):
            events += [f"kernel k{n}.{channel} c x{n} {channel} n", f"kstop k{n}.{channel} {rng.choice('nn-')}"]
        events = [event for event in events if rng.random() > 0.05]
        if rng.random() < 0.3:
            rng.shuffle(events)
        events += [rng.choice(events) for _ in range(2) if events]
        late += events
        rng.shuffle(late) if rng.random() < 0.1 else None
        while len(late) > 20:
            lines.append(late.pop(0))
    return [*lines, *late], n_calls


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_order_records_come_in_no_call_ends_twice_or_before_it_began(
    new_plugin_job: NewPluginJob, api: int, seed: int
) -> None:
    job = new_plugin_job()
    script, n_calls = random_script(random.Random(seed), 200)
    script += ["sleep 150000", *call("z", f"coll z c gz AllReduce 1 ncclInt8 2 {n_calls} 0 RING LL")]
    script += ["sleep 150000", *call("y", f"coll y c gy AllReduce 1 ncclInt8 2 {n_calls + 1} 0 RING LL")]
    job.play(script, api=api)
    completes = job.completes()
    assert job.launches()["seq"].tolist() == list(range(n_calls + 2))
    assert sorted(completes["seq"].tolist()) == list(range(n_calls + 2))  # those without records, too
    assert (completes["launch_ns"] <= completes["end_ns"]).all()
    assert (completes["start_ns"] <= completes["end_ns"]).all()
    is_started = completes["start_ns"] > 0
    assert (completes["launch_ns"][is_started] <= completes["start_ns"][is_started]).all()


@pytest.mark.parametrize("api", [*(pytest.param(api, marks=[pytest.mark.prove]) for api in APIS[:-1]), APIS[-1]])
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(
    new_plugin_job: NewPluginJob, tmp_path_factory: pytest.TempPathFactory, sanitizer: str, api: int
) -> None:
    folder = tmp_path_factory.mktemp("sanitized")
    try:
        built = plugin_jobs.build(folder, sanitizer)
    except AssertionError as error:
        pytest.skip(f"this compiler has no such sanitizer: {str(error)[-200:]}")
    job = new_plugin_job(of=built)
    mixed, _ = random_script(random.Random(7), 100)
    launches = [INIT, "init d 99 2 0 other"]
    proxies: list[str] = ["wait on"]
    launches += ["tell on"]
    for n in range(300):  # a thread that enqueues, one that tells of kernels, and communicators that go meanwhile
        launches += [f"group h{n} c", f"coll p{n} c h{n} AllReduce 1 ncclInt8 1 {n} 0 RING LL", f"stop p{n}"]
        if n % 10 == 0:
            launches += [f"init e{n} {n:x} 2 0 short", f"coll q{n} e{n} h AllReduce 1 ncclInt8 1 0 0 RING LL"]
            launches += [f"final e{n}"]
        proxies += [f"kernel m{n} c p{n} 0 n", f"op n{n} c p{n} 0 1 3 {n % 2}", f"step u{n} c n{n} 1", f"stop u{n}"]
        proxies += [f"stop n{n}", f"kstop m{n} n", f"kernel w{n} e{n - n % 10} q{n - n % 10} 0 n", f"kstop w{n} n"]
    fork = ["fork"] if "thread" not in sanitizer else []
    job.play([*launches, "tell off"], proxies, ["wait on", "wait off", *proxies[1:]], api=api)
    job.play([*mixed, *fork, "final c", *mixed[1:]], api=api)
