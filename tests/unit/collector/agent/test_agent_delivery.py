"""Delivery: nothing waits for the head node, the backlog is bounded, every loss is counted."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from collector.agent import daemon
from collector.agent.daemon import Assignment
from collector.agent.daemon import run as run_agent
from collector.agent.outbox import RETRY_FILE_NS
from collector.agent.run_folder import RunFolder
from collector.agent.waker import Waker
from pacehound.errors import InvalidInput, InvalidSetting
from pacehound.launcher.run_dir import write_command
from pacehound.model.calls import CallBatch
from pacehound.model.events import HostSample, Progress, Topology
from pacehound.runtime.watched import Watched
from pacehound.settings import Settings
from tests.fakes.agent_run import MS, AgentRun
from tests.fakes.receiver import promises_hold
from tests.fakes.said import said_in


def busy(run: AgentRun, seconds: int, calls_per_second: int) -> None:
    ring = run.ring(0, capacity=8192)
    ring.group([0, 1])
    seq = 0
    for _ in range(seconds):
        for _ in range(calls_per_second):
            ring.done(seq, run.now_ns, run.now_ns)
            seq += 1
        run.step(1_100)


def assignment(run_dir: Path, endpoint: str) -> Assignment:
    return Assignment(run_dir=run_dir, endpoint=endpoint, headers={}, unsent=run_dir)


def test_a_head_node_that_was_away_gets_everything_in_order(run: AgentRun) -> None:
    run.receiver.is_away = True
    busy(run, 30, 10)
    assert run.receiver.events == []
    run.end()
    run.deliver()
    assert [r["seq"] for r in run.receiver.rows()] == list(range(300))
    assert isinstance(next(one for one in run.receiver.events if not isinstance(one, HostSample)), Topology)
    assert promises_hold(run.receiver.events)


def test_the_backlog_is_bounded_and_what_was_dropped_is_counted_in_the_data(tmp_path: Path) -> None:
    run = AgentRun(tmp_path, "agent.max_backlog_bytes=100000")
    run.receiver.is_away = True
    busy(run, 40, 50)
    assert run.outbox.held_bytes <= 100_000
    run.receiver.is_away = False
    for _ in range(3):
        run.step(6_000)  # as long as it waits at most before it tries again
    run.ring(0, tid=9).launch(40 * 50, run.now_ns)
    run.flush()
    run.end()
    run.deliver()
    arrived = {r["seq"] for r in run.receiver.rows()}
    lost = 40 * 50 + 1 - len(arrived)
    assert lost > 250
    assert run.receiver.of(Progress)[-1].dropped_total == lost
    assert sum(batch.dropped for batch in run.receiver.of(CallBatch)) == lost
    assert min(arrived) > 0  # the oldest went
    assert promises_hold(run.receiver.events)
    # What explains the data is all there.
    assert len(run.receiver.of(Topology)) == 1
    assert len(run.receiver.of(HostSample)) >= 40


def test_a_kill_while_calls_are_dropped_loses_no_count(tmp_path: Path) -> None:
    run = AgentRun(tmp_path, "agent.max_backlog_bytes=75000")
    run.receiver.is_away = True
    busy(run, 20, 50)
    run.kill()
    ring = run.ring(0, tid=9, capacity=8192)
    for seq in range(1000, 1500):
        ring.done(seq, run.now_ns, run.now_ns)
    run.flush()
    run.kill()
    run.end()
    run.deliver()
    arrived = {r["seq"] for r in run.receiver.rows()}
    assert run.receiver.of(Progress)[-1].dropped_total == 1500 - len(arrived) > 0


def test_a_message_that_is_refused_is_found_dropped_and_counted_and_the_rest_arrives(run: AgentRun) -> None:
    run.receiver.is_away = True
    busy(run, 5, 10)
    _, waiting = run.outbox.take(1 << 30)
    run.outbox.release()
    wrong = next(m for m in waiting if any(isinstance(one, CallBatch) for one in said_in(m)))
    run.receiver.refuses = {wrong}
    run.end()
    run.deliver()
    assert run.agent.delivery.counts.refused_messages == 1
    assert len(run.receiver.rows()) == 40
    assert wrong not in run.receiver.messages


def test_a_killed_agent_repeats_the_same_bytes(run: AgentRun) -> None:
    run.delivery_tasks.loses_answers = True
    busy(run, 3, 10)
    first = [m for request in run.receiver.requests for m in request]
    run.receiver.requests.clear()
    run.kill()
    run.step(1)
    again = [m for request in run.receiver.requests for m in request]
    assert len(first) >= 3
    assert again[: len(first)] == first


def test_a_damaged_outbox_costs_repetitions_never_rows_or_batch_numbers(
    run: AgentRun, caplog: pytest.LogCaptureFixture
) -> None:
    busy(run, 3, 10)
    run.agent.let_go()
    run.outbox.close()
    for path in run.path.glob("outbox.sqlite-*"):
        path.unlink()
    run.outbox.path.write_bytes(b"damaged" * 1000)
    with caplog.at_level(logging.WARNING):
        run.start()
    assert "damaged" in caplog.text
    run.end()
    run.deliver()
    assert {r["seq"] for r in run.receiver.rows()} == set(range(30))
    batches = run.receiver.of(CallBatch)
    assert len({b.ordinal for b in batches}) == len(batches)


def test_a_state_of_another_build_is_set_aside(run: AgentRun) -> None:
    run.outbox.save([], b"\xc1 no such state", run.now_ns)
    run.kill()
    run.joined(0)
    run.flush()
    assert len(run.receiver.of(Topology)) == 1


def test_two_agents_never_watch_one_folder(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(
        json.dumps({"job": "j", "host": "h", "clock": {"monotonic_ns": 0, "unix_ns": 0}})
    )
    first = RunFolder(tmp_path)
    first.lock()
    with pytest.raises(InvalidInput, match=r"the agent with pid \d+ watches"):
        run_agent(assignment(tmp_path, "http://127.0.0.1:1"), Settings())
    first.unlock()
    second = RunFolder(tmp_path)
    second.lock()
    second.unlock()


@pytest.mark.parametrize("text", ["", "{}", '{"job": 1}', '{"job": "j", "host": "h", "clock": 5}'])
def test_a_folder_without_a_proper_job_is_refused(tmp_path: Path, text: str) -> None:
    if text:
        (tmp_path / "job.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"job\.json"):
        run_agent(assignment(tmp_path, "http://127.0.0.1:1"), Settings())


def test_an_endpoint_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no URL"):
        run_agent(assignment(tmp_path, "head:4318"), Settings())


def test_a_quiet_agent_saves_once_a_second_and_not_more(run: AgentRun) -> None:
    run.joined(0)
    run.flush()
    saved = []
    original = run.outbox.save
    run.outbox.save = lambda *a: (saved.append(run.now_ns), original(*a))[1]  # type: ignore[method-assign, func-returns-value]
    for _ in range(100):
        run.step(50)
    assert len(saved) == 5
    assert saved[1] - saved[0] == 1_000 * MS


def test_rings_of_threads_that_left_are_removed_and_what_they_said_is_kept(run: AgentRun) -> None:
    """Sixty short threads take no space once they were read; a killed agent goes on without their files."""
    main = run.ring(0, tid=1)
    main.group([0, 1])
    threads = []
    for number in range(60):
        thread = run.ring(0, tid=2 + number)
        thread.done(number, run.now_ns, run.now_ns)
        thread.leave()
        threads.append(thread.path)
    run.flush()
    assert [path.name for path in main.path.parent.iterdir()] == [main.path.name]
    run.kill()
    run.flush()
    assert sorted(r["seq"] for r in run.receiver.rows()) == list(range(60))
    assert run.agent.counts.refused_rings == 0
    assert run.agent._rings.finished == []


def test_a_ring_stays_until_what_was_read_of_it_is_saved(run: AgentRun) -> None:
    thread = run.joined(0)
    for seq in range(100):  # more than what the file has room for
        thread.done(seq, run.now_ns, run.now_ns)
    thread.leave()
    run.outbox._file.execute("PRAGMA max_page_count=1")  # type: ignore[union-attr]
    run.step(1_100)
    run.step()
    assert not run.outbox.is_saved
    assert thread.path.exists()
    run.step(round(RETRY_FILE_NS / MS))
    assert run.outbox.is_saved
    assert not thread.path.exists()


def test_the_rings_of_processes_that_are_gone_are_removed_after_their_last_record(run: AgentRun) -> None:
    """Killed in the middle of a record, which a handler had interrupted: what stands behind it is read first."""
    ring = run.joined(0)
    run.flush()
    ring.launch(0, run.now_ns, steps=2)
    ring.written += 1
    ring.done(1, run.now_ns, run.now_ns)
    run.proc.remove(100)
    run.flush()
    assert [r["seq"] for r in run.receiver.rows()] == [1]
    run.flush()
    assert not ring.path.exists()


def test_a_ring_made_within_the_tick_of_a_listing_is_found_at_the_next_look(run: AgentRun) -> None:
    run.joined(0)
    folder = run.path / "rings"
    changed_ns = folder.stat().st_mtime_ns
    run.step()
    run.joined(1)
    os.utime(folder, ns=(changed_ns, changed_ns))
    run.step()
    assert len(run.agent.processes.known) == 2


def test_an_agent_says_what_it_has_seen_and_what_became_of_it(run: AgentRun) -> None:
    """After a kill, too; what nobody could read any more is counted as lost."""
    for rank in (0, 1):
        ring = run.joined(rank)
        for seq in range(3):
            ring.done(seq, run.now_ns, run.now_ns)
        ring.marker(0, run.now_ns)
        ring.marker(0, run.now_ns, ordinal=1)
    assert run.agent.watched() == Watched()
    run.flush()
    run.kill()
    run.receiver.is_away = True
    thread = run.ring(0, tid=7, capacity=64)
    for seq in range(3, 3 + 64):
        thread.done(seq, run.now_ns, run.now_ns)
    run.flush()
    watched = run.agent.watched()
    assert (watched.ranks, watched.calls, watched.iterations, watched.lost_calls) == (2, 6 + 32, 1, 64)
    assert watched.unsent == len(run.outbox) > 0
    assert (watched.receiver_said, watched.is_saved) == ("away", True)
    run.end()
    run.deliver()
    assert run.agent.watched().unsent == 0
    assert run.agent.watched().sent > 0
    assert run.agent.watched().receiver_said == ""


def test_without_its_launcher_an_agent_watches_while_the_command_is_there(
    run: AgentRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only while a rank is: it may still be loading. Without either the job has ended."""
    monkeypatch.setattr(daemon, "ORPHANED_NS", 0)
    looks = []

    class Turns(Waker):
        def wait(self, timeout_s: float, also: Collection[int] = ()) -> bool:
            looks.append(run.agent.has_closed)
            if len(looks) == 20:
                write_command(run.path, 2**22 + 1)
            return False

    write_command(run.path, os.getpid())
    daemon._watch(run.agent, RunFolder(run.path), Turns(), threading.Event(), 0.0, lambda: True)
    assert len(looks) >= 20
    assert run.agent.has_closed


def test_ranks_that_are_left_when_the_command_has_ended_are_counted(run: AgentRun) -> None:
    for rank in range(3):
        run.joined(rank % 2, tid=500 + rank)  # two threads of rank 0
    run.proc.put(101, state="Z")
    run.flush()
    assert run.agent.watched().went_on == 0
    run.end()
    run.step()
    assert run.agent.watched().went_on == 1
