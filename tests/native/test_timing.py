"""Calls timed on the device where a controller asks for it, at a cost that is held down, and never at a job's risk."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from collector.agent import control_block
from collector.agent.control_block import ControlBlock, Timing, TimingPhase, TimingWhy
from collector.calls import rings
from collector.host.kernel_files import text_of
from pacehound.model.calls import CallBatch, Sees
from pacehound.model.events import Progress, Topology
from pacehound.model.rounds import Rounds
from streams.rounds.communicator import CommunicatorOperator
from tests.fakes.late_agent import late_agent
from tests.native import stub_jobs
from tests.native.stub_jobs import COMPILER, NATIVE, STUB, Built, Job, until
from tests.native.test_shim_calls import line
from tests.native.test_shim_safety import notes
from tests.native.trap_controller import blocks_of

NewJob = Callable[..., Job]
Call = dict[str, int]

LOOK = ["capture 63 1", line("all_reduce", "w", stream=63), "capture 63 0"]
"""A call by which a process gets to know of a request, and which is not timed itself."""
BEGIN = ["touch ready", "await asked", *LOOK, "await on"]
THREAD = "pacehound-time"
PAIRS = 1024
MAX_STREAMS = 64


class Timer:
    """A controller that asks the processes of a job to time their calls."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.blocks = blocks_of(job.run_dir, [process.pid for process in job.processes])
        self.timing_id = 0

    def ask(self, *, seconds: float = 120.0, rounds: int = 1, every: int = 1, cap: float = 0.1) -> None:
        """All of them; and let those go on that `await asked`."""
        self.timing_id = time.monotonic_ns()
        until_ns = self.timing_id + int(seconds * 1e9)
        for block in self.blocks:
            block.time_calls(self.timing_id, until_ns=until_ns, rounds=rounds, every=every, cap=cap)
        (self.job.folder / "asked").touch()

    def start(self, *, rounds: int = 1, every: int = 1, cap: float = 0.1) -> None:
        """Ask, and let those go on that `await on` when all are at it."""
        until("the job is ready", (self.job.folder / "ready").exists)
        self.ask(rounds=rounds, every=every, cap=cap)
        self.wait_for(TimingPhase.ON)
        (self.job.folder / "on").touch()

    def said(self) -> list[Timing]:
        return [block.timing(self.timing_id) for block in self.blocks]

    def wait_for(self, phase: TimingPhase) -> None:
        until(f"timing is {phase.name}", lambda: all(said.phase == phase for said in self.said()))

    def stop(self) -> None:
        for block in self.blocks:
            block.stop_timing()


def threads(pid: int) -> list[str]:
    """The names of a process's threads; one may end while it is read."""
    return [text_of(path / "comm") for path in Path(f"/proc/{pid}/task").iterdir()]


def launched(job: Job, rank: int = 0) -> list[Call]:
    return [call for ring in job.records(rank) for call in ring.calls]


def completed(job: Job, rank: int = 0) -> list[Call]:
    calls = (call for ring in job.records(rank) for call in ring.completed)
    return sorted(calls, key=lambda call: call["seq"])


def timed(calls: Sequence[Call]) -> list[Call]:
    return [call for call in calls if call["flags"] & rings.TIMED]


def key(call: Call) -> tuple[int, ...]:
    return call["handle"], call["seq"], call["peer"], call["direction"]


def run(job: Job, lines: Sequence[str], **asked: float) -> Timer:
    """One rank that does `lines` with its calls timed."""
    job.start(0, ["init w 1 0", *BEGIN, *lines, "syncall", "touch done", "await end"])
    timer = Timer(job)
    timer.start(**asked)  # type: ignore[arg-type]
    until("the job is done", (job.folder / "done").exists, timeout_s=60)
    return timer


def end(job: Job) -> list[str]:
    (job.folder / "end").touch()
    return job.wait(60)


def test_off_there_is_not_one_call_about_events_and_no_thread(new_job: NewJob) -> None:
    job = new_job(1)
    job.start(0, ["init w 1 0", "repeat 50", line("all_reduce", "w"), "again", "group", line("all_gather", "w"), "end",
                  "syncall", "eventcalls", "touch done", "await end"])  # fmt: skip
    until("the job is done", (job.folder / "done").exists)
    assert THREAD not in threads(job.processes[0].pid)
    assert end(job) == ["event calls: 0\n"]
    assert timed(launched(job)) == completed(job) == []


def test_each_timed_call_has_a_start_and_an_end_that_are_as_far_apart_as_its_events(new_job: NewJob) -> None:
    job = new_job(1, STUB_CALL_US="3000")
    timer = run(job, ["repeat 30", line("all_reduce", "w", stream=1), "again"])
    until("all ends are there", lambda: len(completed(job)) == 30)
    seen_ns = time.monotonic_ns()
    (said,) = timer.said()
    assert (said.phase, said.why, said.timed, said.untimed) == (TimingPhase.ON, TimingWhy.NONE, 30, 0)
    assert said.event_ns >= 0
    calls, ends = timed(launched(job)), completed(job)
    assert [call["seq"] for call in calls] == [call["seq"] for call in ends] == list(range(1, 31))
    for call, ended in zip(calls, ends, strict=True):
        assert key(ended) == key(call)
        assert call["launch_ns"] <= ended["start_ns"] < ended["end_ns"] <= seen_ns
        assert ended["end_ns"] - ended["start_ns"] >= 2_999_000
    together_ns = sum(ended["end_ns"] - ended["start_ns"] for ended in ends)
    assert together_ns <= seen_ns - calls[0]["launch_ns"]
    end(job)


def test_all_ranks_time_the_same_rounds(new_job: NewJob) -> None:
    job = new_job(2)
    for rank in range(2):
        rounds = ["repeat 17", line("all_reduce", "w"), "sync 0", "again"]
        job.start(rank, [f"init w 2 {rank}", *BEGIN, *rounds, "await end"])
    timer = Timer(job)
    timer.start(rounds=3, every=2)
    expected = [seq for seq in range(1, 18) if seq // 3 % 2 == 0]
    for rank in range(2):
        until("all ends are there", lambda rank=rank: len(completed(job, rank)) == len(expected))
        assert [call["seq"] for call in timed(launched(job, rank))] == expected
    assert [said.every for said in timer.said()] == [2, 2]
    end(job)


def test_the_rank_that_waits_is_told_from_the_one_that_is_late(new_job: NewJob) -> None:
    job = new_job(2)
    for rank in range(2):
        late, told = (["await first", "sleep 500"], []) if rank else ([], ["touch first"])
        lines = [f"init w 2 {rank}", *BEGIN, *late, line("all_reduce", "w"), *told, "syncall", "await end"]
        job.start(rank, lines)
    Timer(job).start()
    for rank in range(2):
        until("the end is there", lambda rank=rank: completed(job, rank))
    (waiting,), (late,) = completed(job, 0), completed(job, 1)
    assert waiting["end_ns"] - waiting["start_ns"] > late["end_ns"] - late["start_ns"]
    end(job)


def test_what_goes_into_a_graph_is_not_timed_and_what_runs_beside_it_is(new_job: NewJob) -> None:
    """The stub aborts on an event in a captured stream, and on a question from a thread that is not relaxed."""
    job = new_job(1, STUB_CALL_US="2000")
    beside = ["repeat 10", line("all_reduce", "w", stream=3), line("all_reduce", "w"), "again", "sync 0"]
    group = ["group", line("all_gather", "w", stream=3), line("all_gather", "w", stream=3), "end"]
    timer = run(job, ["capture 3 1", *beside, *group, "capture 3 0", line("all_reduce", "w", stream=3)])
    until("all ends are there", lambda: len(completed(job)) == 11)
    calls = launched(job)
    assert all(bool(call["flags"] & rings.CAPTURED) != bool(call["flags"] & rings.TIMED) for call in calls[1:])
    assert timer.said()[0].untimed == 0
    end(job)


def test_a_group_is_timed_as_one_where_its_calls_are_few_and_on_one_stream(new_job: NewJob) -> None:
    job = new_job(1, STUB_CALL_US="2000")
    pair = [line("send", "w", stream=1), line("recv", "w", stream=1)]
    apart = [line("all_reduce", "w", stream=1), line("all_reduce", "w", stream=2)]
    many = [line("all_reduce", "w", stream=1)] * 9
    timer = run(job, ["group", *pair, "end", "group", *apart, "end", "group", *many, "end", "group", "end"])
    until("both ends are there", lambda: len(completed(job)) == 2)
    send, recv = completed(job)
    assert {send["direction"], recv["direction"]} == {1, 2}
    assert (send["start_ns"], send["end_ns"]) == (recv["start_ns"], recv["end_ns"])
    assert send["end_ns"] - send["start_ns"] >= 1_999_000
    assert [key(call) for call in timed(launched(job))] == [key(send), key(recv)]
    assert (timer.said()[0].timed, timer.said()[0].untimed) == (2, 11)
    end(job)


def test_with_too_many_calls_on_their_way_the_others_are_counted_and_not_timed(new_job: NewJob) -> None:
    job = new_job(1)
    n_streams, n_calls = 20, 80
    blocked = [f"kernel {stream} 1500000" for stream in range(n_streams)]
    calls = [line("all_reduce", "w", stream=stream) for stream in range(n_streams)]
    timer = run(job, [*blocked, f"repeat {n_calls}", *calls, "again"])
    until("the ends are there", lambda: len(completed(job)) == len(timed(launched(job))), timeout_s=60)
    (said,) = timer.said()
    assert said.untimed > 0
    if said.every == 1:  # a machine that is busy elsewhere may have made event calls dear
        assert said.timed + said.untimed == n_streams * n_calls
        assert said.timed >= PAIRS
    assert said.timed == len(completed(job))
    end(job)


def test_turned_off_the_thread_goes_and_turned_on_it_comes_again(new_job: NewJob) -> None:
    job = new_job(1)
    job.start(0, ["init w 1 0", *BEGIN, line("all_reduce", "w"), "syncall", "touch one", "await off",
                  line("all_reduce", "w"), "syncall", "touch two", "await again", *LOOK, "await on2",
                  line("all_reduce", "w"), "syncall", "await end"])  # fmt: skip
    timer = Timer(job)
    timer.start()
    pid = job.processes[0].pid
    assert THREAD in threads(pid)
    until("the end is there", lambda: len(completed(job)) == 1)
    timer.stop()
    timer.wait_for(TimingPhase.OFF)
    until("the thread is gone", lambda: THREAD not in threads(pid))
    (job.folder / "off").touch()
    until("one call goes by", (job.folder / "two").exists)
    timer.ask()
    (job.folder / "again").touch()
    timer.wait_for(TimingPhase.ON)
    (job.folder / "on2").touch()
    until("the other end is there", lambda: len(completed(job)) == 2)
    assert [call["seq"] for call in timed(launched(job))] == [1, 4]
    end(job)


def test_it_ends_by_itself(new_job: NewJob) -> None:
    job = new_job(1)
    job.start(0, ["init w 1 0", "touch ready", "await asked", line("all_reduce", "w"), "await end"])
    timer = Timer(job)
    until("the job is ready", (job.folder / "ready").exists)
    timer.ask(seconds=0.3)
    timer.wait_for(TimingPhase.OVER)
    assert timer.said()[0].why == TimingWhy.TIME
    until("the thread is gone", lambda: THREAD not in threads(job.processes[0].pid))
    end(job)


def test_a_fork_is_not_timed_and_its_parent_goes_on(new_job: NewJob) -> None:
    job = new_job(1)
    run(job, [line("all_reduce", "w"), "fork", line("all_reduce", "w")])
    until("both ends are there", lambda: len(completed(job)) == 2)
    end(job)
    others = [path for path in (job.run_dir / "rings").glob("*.ring") if str(job.processes[0].pid) not in path.name]
    childs = [call for path in others for call in stub_jobs.read_ring(path).calls]
    assert [call["count"] for call in childs] == [7]
    assert timed(childs) == []


def test_what_is_on_its_way_at_an_abort_ends_without_times(new_job: NewJob) -> None:
    job = new_job(2)
    job.start(0, ["init w 2 0", *BEGIN, line("all_reduce", "w", stream=1), "abort w", "init v 1 0",
                  line("all_gather", "v"), "syncall", "await end"])  # fmt: skip
    job.start(1, ["init w 2 1", *BEGIN, "await end"])
    Timer(job).start()
    until("both ends are there", lambda: len(completed(job)) == 2)
    aborted, after = sorted(completed(job), key=lambda call: call["launch_ns"])
    assert (aborted["start_ns"], aborted["end_ns"]) == (0, 0)
    assert after["end_ns"] >= after["start_ns"] > 0
    end(job)


def test_a_communicator_that_does_not_block_has_no_times_where_its_calls_may_come_later(
    new_job: NewJob, tmp_path: Path
) -> None:
    """The real function says that the call is on its way; nobody knows when it will be on its stream."""
    later = (
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n"
        "int ncclAllGather(const void *a, void *b, size_t n, int t, void *c, void *s) { return 7; }"
    )
    (tmp_path / "later.c").write_text(later)
    library = tmp_path / "later.so"
    stub_jobs.run([str(COMPILER), "-shared", "-fPIC", str(tmp_path / "later.c"), "-o", str(library)])
    job = new_job(1)
    job.environ["LD_PRELOAD"] = f"{job.built.shim}:{library}"
    timer = run(job, [f"try {line('all_gather', 'w')}", line("all_reduce", "w")])
    until("both ends are there", lambda: len(completed(job)) == 2)
    assert [call["end_ns"] > 0 for call in completed(job)] == [False, True]
    assert (timer.said()[0].timed, timer.said()[0].untimed) == (1, 1)
    end(job)


@pytest.mark.parametrize("failing", [
    "cuEventCreate 5 2", "cuEventRecord 1 700", "cuEventRecord 2 700", "cuEventRecord 7 700", "cuEventQuery 1 719",
    "cuEventQuery 9 719", "cuEventElapsedTime 1 700", "cuEventElapsedTime 8 700",
])  # fmt: skip
def test_an_error_of_cuda_ends_it_for_the_process_and_the_job_goes_on(new_job: NewJob, failing: str) -> None:
    job = new_job(1, STUB_CUDA_FAILS=failing)
    job.start(0, ["init w 1 0", "touch ready", "await asked", "repeat 200", line("all_reduce", "w", stream=1), "sync 1",
                  "sleep 5", "again", "touch done", "await end"])  # fmt: skip
    timer = Timer(job)
    until("the job is ready", (job.folder / "ready").exists)
    timer.ask()
    until("the job is done", (job.folder / "done").exists)
    timer.wait_for(TimingPhase.OVER)
    assert timer.said()[0].why == TimingWhy.CUDA
    until("the thread is gone", lambda: THREAD not in threads(job.processes[0].pid))
    (said,) = notes(job)
    assert said.startswith("calls are not timed any more: ")
    assert said.endswith(f"gave CUDA error {failing.split()[-1]}")
    assert len(launched(job)) == 200
    assert {key(call) for call in completed(job)} == {key(call) for call in timed(launched(job))}
    end(job)


def test_without_cuda_it_says_so(new_job: NewJob, tmp_path: Path) -> None:
    without = [str(path) for path in STUB if path.name != "stub_events.c"]
    (tmp_path / "none.c").write_text('#include "stub_device.h"\nvoid stub_reach(void *e) { (void)e; }\n'
                                     "long stub_event_calls(void) { return 0; }\n")  # fmt: skip
    stub_jobs.run([str(COMPILER), "-shared", "-fPIC", f"-I{NATIVE}", f"-I{stub_jobs.HERE}", "-Wl,-soname,libnccl.so.2",
                   *without, str(tmp_path / "none.c"), "-o", str(tmp_path / "libnccl.so.2"), "-lpthread"])  # fmt: skip
    job = new_job(1, LD_LIBRARY_PATH=str(tmp_path))
    job.start(0, ["init w 1 0", "touch ready", "await asked", "repeat 100", line("all_reduce", "w"), "sleep 1", "again",
                  "syncall", "touch done", "await end"])  # fmt: skip
    timer = Timer(job)
    until("the job is ready", (job.folder / "ready").exists)
    timer.ask()
    timer.wait_for(TimingPhase.OVER)
    assert timer.said()[0].why == TimingWhy.NO_CUDA
    until("the thread is gone", lambda: THREAD not in threads(job.processes[0].pid))
    until("the job is done", (job.folder / "done").exists)
    assert timed(launched(job)) == []
    end(job)


@pytest.mark.parametrize(("cap", "event_us", "phase", "why"), [
    (0.1, "1000", TimingPhase.ON, TimingWhy.NONE), (0.0001, "3000", TimingPhase.OVER, TimingWhy.COST),
])  # fmt: skip
def test_above_its_cap_fewer_calls_are_timed_and_far_above_it_none(
    new_job: NewJob, cap: float, event_us: str, phase: TimingPhase, why: TimingWhy
) -> None:
    job = new_job(1, STUB_EVENT_US=event_us)
    job.start(0, ["init w 1 0", *BEGIN, "repeat 10000000", line("all_reduce", "w"), "sync 0", "again"])
    timer = Timer(job)
    timer.start(cap=cap)
    until("it costs too much", lambda: timer.said()[0].every > 1 or timer.said()[0].phase == TimingPhase.OVER)
    timer.wait_for(phase)
    assert timer.said()[0].why == why
    expected = "fewer calls are timed than was asked for" if why == TimingWhy.NONE else "far more than the cap"
    assert any(expected in said for said in notes(job))


def test_garbage_in_a_request_is_brought_into_bounds(new_job: NewJob) -> None:
    job = new_job(1)
    job.start(0, ["init w 1 0", *BEGIN, line("all_reduce", "w"), "syncall", "await end"])
    timer = Timer(job)
    until("the job is ready", (job.folder / "ready").exists)
    block = timer.blocks[0]
    timer.timing_id = (1 << 64) - 1
    for at, value in ((control_block.TIMING_ROUNDS, 0), (control_block.TIMING_EVERY, 0),
                      (control_block.TIMING_CAP_PPM, 0xFFFFFFFF)):  # fmt: skip
        block._short[at // 4] = value
    block._long[control_block.TIMING_UNTIL_NS // 8] = (1 << 64) - 1
    block._long[control_block.TIMING_ID // 8] = timer.timing_id
    (job.folder / "asked").touch()
    timer.wait_for(TimingPhase.ON)
    (job.folder / "on").touch()
    until("the end is there", lambda: len(completed(job)) == 1)
    assert timer.said()[0].every == 1
    end(job)


@pytest.mark.parametrize("arguments", [{"rounds": 0}, {"every": 0}, {"cap": 0.0}, {"cap": 0.2}])
def test_a_request_that_cannot_be_is_not_made(new_job: NewJob, arguments: dict[str, float]) -> None:
    job = new_job(1)
    job.start(0, ["init w 1 0", "await end"])
    (block,) = blocks_of(job.run_dir, [job.processes[0].pid])
    with pytest.raises(ValueError, match="cannot be"):
        block.time_calls(1, until_ns=1, **arguments)  # type: ignore[arg-type]
    end(job)


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing_while_it_is_turned_on_and_off(
    sanitized: Callable[[str], Built], shared_folder: Path, sanitizer: str
) -> None:
    job = Job(sanitized(sanitizer), shared_folder / "job")
    workers = [
        ["await made", f"init c{n} 1 0", "repeat 150", line("all_reduce", f"c{n}", stream=n), "group",
         line("send", f"c{n}", stream=n), line("recv", f"c{n}", stream=n), "end", "sleep 3", "again", f"abort c{n}"]
        for n in range(3)
    ]  # fmt: skip
    process = job.start(0, ["init w 1 0", "touch made", "repeat 150", line("all_gather", "w", stream=9), "capture 10 1",
                            line("all_gather", "w", stream=10), "capture 10 0", "sleep 3", "again", "syncall"],
                        *workers)  # fmt: skip
    block: ControlBlock = blocks_of(job.run_dir, [process.pid])[0]
    n_requests = 0
    while process.poll() is None:
        n_requests += 1
        block.time_calls(n_requests, until_ns=time.monotonic_ns() + 10**10, every=1 + n_requests % 2, cap=0.1)
        time.sleep(0.15)  # what goes on meanwhile is the test
        if n_requests % 3 == 0:
            block.stop_timing()
    job.wait(120)
    assert n_requests > 1
    rings_of_job = job.records(0)
    assert len([call for ring in rings_of_job for call in ring.calls]) == 300 + 3 * 450
    assert [call for ring in rings_of_job for call in ring.completed if call["end_ns"]] != []


def test_timed_calls_become_rounds_with_their_times_and_the_others_stay_launches(new_job: NewJob) -> None:
    job = new_job(2, STUB_CALL_US="2000")
    for rank in range(2):
        rounds = ["repeat 19", line("all_reduce", "w"), "sync 0", "again"]
        job.start(rank, [f"init w 2 {rank}", *BEGIN, *rounds, "await end"])
    timer = Timer(job)
    timer.start(rounds=5, every=2)
    expected = {seq for seq in range(1, 20) if seq // 5 % 2 == 0}
    for rank in range(2):
        until("all ends are there", lambda rank=rank: len(completed(job, rank)) == len(expected))
    end(job)
    agent, receiver = late_agent(job.run_dir, stub_jobs.JOB)
    batches = receiver.of(CallBatch)
    seen: dict[Sees, set[tuple[int, int]]] = {}
    for batch in batches:
        assert (batch.source, batch.dropped) == ("shim", 0)
        for row in batch.rows.to_pylist():
            seen.setdefault(batch.sees, set()).add((row["rank"], row["seq"]))
            if batch.sees == Sees.ALL:
                assert row["launch_ns"] <= row["start_ns"] <= row["end_ns"] - 1_999_000
            else:
                assert (row["start_ns"], row["end_ns"]) == (0, 0)
    everything = {(rank, seq) for rank in range(2) for seq in range(20)}
    assert seen[Sees.ALL] == {(rank, seq) for rank in range(2) for seq in expected}
    assert seen[Sees.LAUNCH] == everything - seen[Sees.ALL]
    assert agent.assembler.counts.refused == agent.assembler.counts.unmatched == 0
    (topology,) = receiver.of(Topology)
    operator = CommunicatorOperator(topology, lateness_ns=1)
    operator.on_topology(topology)
    closed = [event for batch in batches for event in operator.on_calls(batch)]
    for progress in receiver.of(Progress):
        closed += operator.on_progress(progress)
    starts = {
        int(seq): start.tolist()
        for event in closed if isinstance(event, Rounds)
        for seq, start in zip(event.seq, event.start_ns, strict=True) if event.sees == Sees.ALL
    }  # fmt: skip
    assert {seq for seq, of_ranks in starts.items() if all(of_ranks)} == expected
