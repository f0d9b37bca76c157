"""An agent looks seldom where nothing is under way, and often where something would wait or be lost."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from pathlib import Path

import pytest

from collector.agent.background import ThreadTaskRunner
from collector.agent.waker import Waker
from pacehound.launcher.lifeline import Lifeline
from pacehound.model import codec
from pacehound.model.events import Progress
from pacehound.model.flushes import Flush
from tests.fakes.agent_run import MS, AgentRun

STEPS = itertools.count()
"""Their numbers grow, and nothing else is asked of them."""


def calls(run: AgentRun, ring, seqs: range) -> None:
    for seq in seqs:
        ring.done(seq, run.now_ns - 20 * MS, run.now_ns - 10 * MS)


def test_it_waits_for_the_next_flush_and_less_where_a_ring_fills(tmp_path: Path) -> None:
    run = AgentRun(tmp_path)
    ring = run.joined(0, capacity=1_024)
    run.flush()
    run.step()
    assert 0.9 < run.agent.may_wait_s(run.now_ns) < 1.0
    calls(run, ring, range(4))
    run.step(50)
    assert run.agent.may_wait_s(run.now_ns) == pytest.approx(0.4), "160 records a second, and 64 more are let be"
    calls(run, ring, range(4, 104))
    run.step(50)
    assert run.agent.may_wait_s(run.now_ns) == pytest.approx(0.016)


def test_it_does_not_wait_while_something_waits_for_the_receiver(tmp_path: Path) -> None:
    run = AgentRun(tmp_path)
    run.step()
    run.joined(0)
    run.receiver.is_away = True
    run.step(1_100)
    assert run.agent.may_wait_s(run.now_ns) > 0.5, "a request with all of it is under way"
    run.step()
    assert run.agent.may_wait_s(run.now_ns) == 0.0
    run.receiver.is_away = False
    run.step(60_000)
    run.step()
    assert run.agent.may_wait_s(run.now_ns) > 0.5


def test_it_does_not_wait_where_the_ends_of_iterations_are_waited_for(tmp_path: Path) -> None:
    run = AgentRun(tmp_path, "agent.digests_from_ranks=2")
    run.joined(0)
    run.flush()
    run.step()
    assert run.agent.may_wait_s(run.now_ns) == 0.0


def seconds_with_a_flush(run: AgentRun, ring, iterations_a_second: list[int]) -> list[bool]:
    """Of a job with so many iterations in each of these seconds, at the end of which the agent looks."""
    flushed = []
    for n in iterations_a_second:
        for _ in range(n):
            ring.marker(next(STEPS), run.now_ns - 10 * MS)
        before = len(run.receiver.of(Progress))
        run.step(1_050)
        run.step()  # what was sent has come
        flushed.append(len(run.receiver.of(Progress)) > before)
    return flushed


def quiet_ns_of_the_last_promise(run: AgentRun) -> int:
    said = [event for message in run.receiver.messages for event in codec.decode(message)]
    return [one.quiet_ns for one in said if isinstance(one, Flush) and one.promises][-1]


def test_short_iterations_that_take_what_they_took_are_told_of_in_every_fourth_second(tmp_path: Path) -> None:
    run = AgentRun(tmp_path)
    ring = run.joined(0)
    assert seconds_with_a_flush(run, ring, [10] * 8) == [True] * 8, "what is usual is not known yet"
    assert seconds_with_a_flush(run, ring, [10] * 3) == [False, False, True], "it has not been said yet"
    for _ in range(2):
        assert seconds_with_a_flush(run, ring, [10] * 4) == [False, False, False, True]
        assert quiet_ns_of_the_last_promise(run) == 1_500 * MS, "beyond 2.5 s, which nobody wonders about"
    assert seconds_with_a_flush(run, ring, [6] + [10] * 7) == [True] * 8, "they have not taken the same of late"
    assert seconds_with_a_flush(run, ring, [10] * 3) == [False, False, True]
    assert seconds_with_a_flush(run, ring, [10] * 4) == [False, False, False, True]
    assert seconds_with_a_flush(run, ring, [0] * 4) == [True] * 4, "they hang, perhaps"
    assert quiet_ns_of_the_last_promise(run) == 0


def test_iterations_of_which_two_or_three_end_between_two_looks_take_what_they_took(tmp_path: Path) -> None:
    """They are timed by when they ended: of 400 ms each, two are over in one second and three in the next."""
    run = AgentRun(tmp_path)
    ring = run.joined(0)
    ended_ns, flushes = run.now_ns, []
    for _ in range(20):
        while ended_ns + 400 * MS < run.now_ns:
            ended_ns += 400 * MS
            ring.marker(next(STEPS), ended_ns)
        flushes += seconds_with_a_flush(run, ring, [0])
    assert flushes[-8:].count(True) == 2


def test_who_cannot_say_that_he_may_be_quiet_is_not_for_longer_than_half_of_what_is_late(tmp_path: Path) -> None:
    run = AgentRun(tmp_path, "agent.messages=apart")
    ring = run.joined(0)
    assert seconds_with_a_flush(run, ring, [10] * 8) == [True] * 8
    assert seconds_with_a_flush(run, ring, [10] * 6) == [False, False, True] * 2, "2.5 s are over"


def test_what_is_no_short_iteration_is_told_of_each_second(tmp_path: Path) -> None:
    run = AgentRun(tmp_path)
    ring = run.joined(0)
    assert seconds_with_a_flush(run, ring, [0] * 12) == [True] * 12, "none is marked"
    assert seconds_with_a_flush(run, ring, [0, 1] * 12) == [True] * 24, "they take two seconds"


def test_an_agent_sleeps_over_the_flush_that_is_not_needed(tmp_path: Path) -> None:
    run = AgentRun(tmp_path)
    ring = run.joined(0)
    while seconds_with_a_flush(run, ring, [10]) == [True]:
        pass
    assert run.agent.may_wait_s(run.now_ns) > 0.8


def test_a_receiver_that_has_answered_wakes_whoever_sleeps() -> None:
    waker = Waker()
    tasks: ThreadTaskRunner[int] = ThreadTaskRunner("test", when_done=waker.wake)
    tasks.run(lambda: 5)
    assert waker.wait(60.0)
    assert tasks.results() == [5]
    assert not waker.wait(0.0)
    tasks.close(60.0)


def test_a_descriptor_with_something_to_read_wakes_until_it_is_read() -> None:
    waker = Waker()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not waker.wait(0.0, (ours.fileno(),))
        theirs.send(b"x")
        assert waker.wait(60.0, (ours.fileno(),))
        assert ours.recv(1) == b"x"
        assert not waker.wait(0.0, (ours.fileno(),))


def test_a_launcher_that_says_something_or_leaves_calls(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    lifeline = Lifeline(ours, None, "job")
    called = threading.Semaphore(0)
    lifeline.when_called(called.release)
    os.write(theirs, b"\n")
    assert called.acquire(timeout=60.0)
    assert not lifeline.is_gone()
    os.close(theirs)
    assert called.acquire(timeout=60.0)
    assert lifeline.is_gone()
