"""HostSample: how the processes of a host are, and that the job has ended."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from collector.agent.host_words import HostWords
from collector.calls import rings
from collector.host.processes import PROC, read_stat
from pacehound.model import codec
from pacehound.model.codes import JOINING
from pacehound.model.events import SWITCHED_OFF, HostSample, ProcessState, Progress
from pacehound.model.flushes import Flush
from tests.fakes.agent_run import MS, UNIX_NS, AgentRun
from tests.fakes.ring_file import HANDLE, RingFile


def last(run: AgentRun) -> ProcessState:
    return run.receiver.of(HostSample)[-1].processes[0]


def test_a_stop_is_said_at_once_and_so_is_its_end(run: AgentRun) -> None:
    run.joined(0)
    run.step(1_100)
    assert (last(run).rank, last(run).pid, last(run).state) == (0, 100, "running")
    said = len(run.receiver.of(HostSample))
    run.proc.put(100, state="T")
    run.step(250)
    stopped_ns = run.now_ns
    assert len(run.receiver.of(HostSample)) == said + 1
    run.step(1_100)
    assert (last(run).state, last(run).since_ns) == ("stopped", UNIX_NS + stopped_ns)
    run.proc.put(100, state="t")
    run.step(250)
    assert (last(run).state, last(run).since_ns) == ("stopped", UNIX_NS + stopped_ns)
    run.proc.put(100, state="R")
    run.step(250)
    assert last(run).state == "running"


def test_a_process_that_its_container_numbers_anew_is_followed_by_its_number_here(run: AgentRun) -> None:
    """And one that only has the number which that one has there is somebody else."""
    ring = run.joined(0)
    run.proc.put(100, start_ticks=77)
    run.proc.put(4_300)
    run.proc.say(4_300, status="Name:\tpython\nNSpid:\t4300\t101\n")
    run.proc.put(4_400)
    run.proc.say(4_400, status="Name:\tpython\nNSpid:\t4400\t100\n")
    run.flush()
    assert (last(run).rank, last(run).pid, last(run).state) == (0, 4_400, "running")
    (process,) = run.agent.processes.alive()
    assert (process.pid, process.own_pid) == (4_400, 100)
    ring.done(0, run.now_ns, run.now_ns)
    run.flush()
    run.kill()  # another agent goes on
    run.proc.put(4_400, state="T")
    run.flush()
    assert (last(run).pid, last(run).state) == (4_400, "stopped")
    assert run.agent.watched().calls == 1
    run.proc.put(4_400, state="Z", wait_status=9)
    run.flush()
    assert (last(run).state, last(run).signal) == ("exited", 9)


def begun(run: AgentRun, pid: int, rank: int) -> None:
    """A launcher has begun the process of a rank of this run."""
    run.proc.put(pid)
    run.proc.run_by(pid, "/usr/bin/python3.11")
    run.proc.say(pid, environ=f"PACEHOUND_RUN_DIR={run.path.absolute()}\0RANK={rank}\0")


def told(run: AgentRun) -> dict[int, list[int]]:
    """Of each rank that is told of now, the processes."""
    found: dict[int, list[int]] = {}
    for process in run.receiver.of(HostSample)[-1].processes:
        found.setdefault(process.rank, []).append(process.pid)
    return found


def test_a_rank_that_others_wait_for_to_join_is_found_by_its_environment_until_it_does(run: AgentRun) -> None:
    begun(run, 77, rank=1)
    waiting = run.ring(0)
    run.flush()
    assert told(run) == {0: [100]}  # nobody waits
    waiting.group([0, 1], name=JOINING, generation=-1)
    waiting.launch(0, 900 * MS)
    run.flush()
    assert told(run) == {0: [100], 1: [77]}
    run.proc.put(77, state="T")
    run.step(250)
    assert run.receiver.of(HostSample)[-1].processes[1].state == "stopped"
    run.ring(1)  # it was a launcher of this one
    run.step(1_100)
    assert told(run) == {0: [100], 1: [101]}


def test_nobody_keeps_a_communicator_open_for_who_did_not_wait_in_it(run: AgentRun) -> None:
    late, waited = run.joined(1), run.ring(0)
    waited.group([0, 1], name=JOINING, generation=-1, handle=bytes(16))
    waited.launch(0, 900 * MS, handle=bytes(16))
    run.flush()
    assert run.agent.assembler.waits_for_others
    waited.complete(0, run.now_ns, handle=bytes(16))
    waited.raw(rings.DESTROY, b"", handle=bytes(16))
    run.flush()
    run.flush()
    closed = {promise.communicator: promise.closed for promise in run.receiver.of(Progress)}
    assert closed == {HANDLE.hex(): False, bytes(16).hex(): True}
    assert not run.agent.assembler.waits_for_others
    assert late


def speaking(run: AgentRun) -> list[bool]:
    """Of each message with promises, whether it speaks of processes as well."""
    told = [event for message in run.receiver.messages for event in codec.decode(message)]
    return [event.speaks_of_processes for event in told if isinstance(event, Flush) and event.promises]


def test_processes_that_are_as_they_were_are_said_once_a_minute_and_the_promises_speak_for_them(run: AgentRun) -> None:
    run.joined(0)
    run.step(1_100)
    for _ in range(62 * 5):
        run.step(200)
    times_ns = [sample.time_ns for sample in run.receiver.of(HostSample)]
    assert len(times_ns) == 2
    assert 30_000 * MS <= times_ns[1] - times_ns[0] <= 61_200 * MS
    assert {sample.quiet_ns for sample in run.receiver.of(HostSample)} == {60 * 1_000 * MS}
    assert all(speaking(run))
    assert len(speaking(run)) > 50
    run.proc.put(100, state="T")
    run.step(250)
    assert (last(run).state, len(run.receiver.of(HostSample))) == ("stopped", 3)


def test_hosts_that_began_together_do_not_all_say_again_at_the_same_moment() -> None:
    said_at_s = Counter[int]()
    for number in range(500):
        words = HostWords()
        for second in range(61):
            sample = HostSample(job="j", attempt=0, time_ns=second * 10**9, host=f"node-{number}", processes=())
            said_at_s[second] += len(words.changed([sample], 0))
    assert said_at_s.pop(0) == 500
    assert sum(said_at_s.values()) == 500
    assert min(said_at_s.elements()) >= 30
    assert max(said_at_s.values()) < 40


def test_while_the_receiver_is_away_processes_are_said_in_full(run: AgentRun) -> None:
    """Who has taken the host for a silent one hears from a sample that it is back."""
    run.joined(0)
    run.step(1_100)
    run.step(1_100)
    run.receiver.is_away = True
    for _ in range(4):
        run.step(1_100)
    said = len(run.receiver.of(HostSample))
    run.receiver.is_away = False
    run.step(60_000)
    run.step()
    assert len(run.receiver.of(HostSample)) >= said + 3
    assert [flag for flag in speaking(run) if not flag], "what they say needs no promise"


def test_an_agent_that_says_calls_apart_says_each_second_how_processes_are(tmp_path: Path) -> None:
    run = AgentRun(tmp_path, "agent.messages=apart")
    run.joined(0)
    for _ in range(10):
        run.step(1_100)
    assert len(run.receiver.of(HostSample)) >= 9


def test_a_rank_that_left_is_said_with_its_signal_and_its_open_calls_are_given_up(run: AgentRun) -> None:
    first, second = run.ring(0), run.ring(1)
    for ring in (first, second):
        ring.group([0, 1])
        ring.launch(0, 100 * MS)
    run.flush()
    first.launch(1, 200 * MS)  # written just before it died
    run.proc.put(100, state="Z", wait_status=9)
    run.step(250)
    assert (last(run).state, last(run).signal, last(run).exit_code) == ("exited", 9, None)
    assert [(r["rank"], r["seq"], r["end_ns"]) for r in run.receiver.rows()] == [(0, 0, 0), (0, 1, 0)]
    progress = run.receiver.of(Progress)[-1]
    assert [(r.rank, r.last_launched, len(r.open)) for r in progress.ranks] == [(0, 1, 0), (1, 0, 1)]
    assert not progress.closed
    run.proc.remove(100)
    run.kill()
    run.flush()
    assert (last(run).state, last(run).signal) == ("exited", 9)  # known for good, reaped or not
    assert len(run.receiver.rows()) == 2


def test_how_a_process_ended_is_seen_before_its_launcher_has_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels before 6.15 tell it of a zombie alone, and torchrun leaves one for 50 ms, which is less than a look."""
    monkeypatch.setattr("collector.host.processes.exit_status_of", lambda pidfd: None)
    run = AgentRun(tmp_path)
    run.proc.root = PROC
    run.kill()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        stat = read_stat(child.pid)
        assert stat is not None
        RingFile(tmp_path / "rings", rank=0, pid=child.pid, start_ticks=stat.start_ticks).group([0, 1])
        run.step(1_100)
        assert last(run).state == "running"
        assert not run.agent.heed(run.now_ns), "whatever else woke the agent"
        child.kill()
        assert select.select(run.agent.descriptors, [], [], 60.0)[0]
        assert run.agent.heed(run.now_ns)
    finally:
        child.communicate()
    run.step(1)  # a look is not due, and nobody could tell any more
    assert (last(run).state, last(run).signal) == ("exited", signal.SIGKILL)
    assert select.select(run.agent.descriptors, [], [], 0.0)[0] == []


def test_a_process_that_says_why_it_leaves_is_quoted(run: AgentRun) -> None:
    ring = run.joined(0)
    run.step(1_100)
    ring.exit(run.now_ns, failed=True, text="RuntimeError: out of memory")
    run.step(50)
    assert last(run).detail == "RuntimeError: out of memory"
    run.proc.put(100, state="Z", wait_status=1 << 8)
    run.step(250)
    assert (last(run).exit_code, last(run).detail) == (1, "RuntimeError: out of memory")


def test_a_process_that_has_destroyed_the_group_of_all_ranks_has_left_until_it_joins_another(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.group([0], handle=b"\x05" * 16, is_world=False)
    run.step(1_100)
    ring.destroy(handle=b"\x05" * 16)
    run.step(1_100)
    assert not last(run).has_left, "it was a group of its own"
    ring.destroy()
    run.step(50)
    assert last(run).has_left, "said at once"
    run.kill()  # another agent goes on
    run.flush()
    assert last(run).has_left
    ring.group([0, 1], handle=b"\x06" * 16)
    run.flush()
    assert not last(run).has_left


def test_a_process_is_the_rank_that_it_had_when_it_last_joined_all(run: AgentRun) -> None:
    ring = run.joined(0)
    run.flush()
    ring.destroy()
    ring.rank = 1
    ring.group([0, 1], handle=b"\x06" * 16)
    run.flush()
    assert [(process.rank, process.pid) for process in run.receiver.of(HostSample)[-1].processes] == [(1, 100)]


def test_a_pid_that_was_used_again_is_another_process(run: AgentRun) -> None:
    run.joined(0)
    run.step(1_100)
    run.proc.put(100, start_ticks=2000)
    run.step(250)
    assert (last(run).state, last(run).exit_code, last(run).signal) == ("exited", None, None)


def test_an_attempt_that_was_replaced_is_closed_once(run: AgentRun) -> None:
    run.joined(0)
    run.step(1_100)
    run.proc.remove(100)
    run.step(1_100)
    run.proc.put(200)
    again = run.ring(1, attempt=1)
    again.group([0, 1], handle=b"\x05" * 16)
    run.flush()
    run.kill()
    run.flush()
    samples = run.receiver.of(HostSample)
    assert [(s.attempt, s.closed_why) for s in samples if s.closed] == [(0, "job ended")]
    assert samples[-1].attempt == 1
    assert not samples[-1].closed


def test_the_end_of_the_job_is_the_last_thing_said(run: AgentRun) -> None:
    run.joined(0)
    run.flush()
    run.end("job killed")
    run.deliver()
    run.flush()
    last_event = run.receiver.events[-1]
    assert isinstance(last_event, HostSample)
    assert (last_event.closed, last_event.closed_why) == (True, "job killed")


def test_ranks_that_have_met_and_made_no_call_count_as_seen(run: AgentRun) -> None:
    run.joined(0)
    run.joined(1)
    run.flush()
    assert (run.agent.watched().ranks, run.agent.watched().calls) == (2, 0)


def test_a_job_without_ranks_ends_too(run: AgentRun) -> None:
    run.flush()
    assert run.receiver.events == []
    run.end()
    run.deliver()
    assert [(e.attempt, e.closed) for e in run.receiver.of(HostSample)] == [(0, True)]


@pytest.mark.parametrize(("failed", "code"), [(False, 0), (True, 1)])
def test_where_nobody_can_tell_its_own_last_word_stands(run: AgentRun, failed: bool, code: int) -> None:
    ring = run.joined(0)
    run.step(1_100)
    ring.exit(run.now_ns, failed=failed)
    run.proc.remove(100)  # reaped before the agent looked
    run.step(250)
    assert (last(run).state, last(run).exit_code) == ("exited", code)


def test_who_was_gone_before_the_agent_began_left_when_it_wrote_last(run: AgentRun) -> None:
    """On a busy machine a job may be over first. Who was killed has written nothing after its last call."""
    killed, failed = run.joined(0), run.joined(1)
    for ring in (killed, failed):
        ring.done(0, 100 * MS, 110 * MS)
    killed.launch(1, 200 * MS)
    failed.exit(230 * MS, failed=True, text="RuntimeError: connection closed by peer")
    absurd = run.joined(2)
    absurd.launch(0, (1 << 64) - 1)
    for pid in (100, 101, 102):
        run.proc.remove(pid)
    run.step(5_000)
    left = {process.rank: process for process in run.receiver.of(HostSample)[-1].processes}
    assert {rank: (p.state, p.exit_code, p.since_ns - UNIX_NS) for rank, p in left.items()} == {
        0: ("exited", None, 200 * MS),
        1: ("exited", 1, 230 * MS),
        2: ("exited", None, run.now_ns),  # when it was looked for
    }


def test_a_status_that_was_seen_beats_its_own_word(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.exit(run.now_ns, failed=False)
    run.step(1_100)
    run.proc.put(100, state="Z", wait_status=11)
    run.step(250)
    assert (last(run).exit_code, last(run).signal) == (None, 11)


def test_of_a_process_that_has_switched_itself_off_no_call_is_open_and_it_says_so(run: AgentRun) -> None:
    """And so does an agent that begins later: the ring stays where it is."""
    ring = run.joined(0)
    ring.done(0, 100 * MS, 110 * MS)
    ring.launch(1, 120 * MS)
    run.step(1_100)
    assert [[call.seq for call in rank.open] for rank in run.receiver.of(Progress)[-1].ranks] == [[1]]
    ring.switch_off()
    run.step(5_000)
    assert (last(run).state, last(run).unseen) == ("running", (SWITCHED_OFF,))
    assert not any(rank.open for rank in run.receiver.of(Progress)[-1].ranks)
    assert ring.path.exists()


def test_a_process_that_cannot_be_looked_at_is_unknown_not_gone(run: AgentRun) -> None:
    ring = run.joined(0)
    ring.launch(0, 100 * MS)
    (run.proc.root / "100" / "stat").write_text("")
    run.flush()
    assert last(run).state == "unknown"
    assert run.receiver.rows() == []  # its call is still open
