"""An agent looks seldom where nothing is under way, and often where something would wait or be lost."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.agent_run import MS, AgentRun


def calls(run: AgentRun, ring, seqs: range) -> None:
    for seq in seqs:
        ring.done(seq, run.now_ns - 20 * MS, run.now_ns - 10 * MS)


def test_it_is_calm_while_rings_fill_slowly_and_nothing_waits(tmp_path: Path) -> None:
    run = AgentRun(tmp_path)
    ring = run.joined(0, capacity=1_024)
    for _ in range(50):
        run.step()
    assert run.agent.is_calm
    calls(run, ring, range(8))
    run.step()
    assert run.agent.is_calm
    calls(run, ring, range(8, 40))
    run.step()
    assert not run.agent.is_calm, "a 64th of the ring is filled between two looks"
    run.step()
    assert run.agent.is_calm


def test_it_is_not_while_something_waits_for_the_receiver(tmp_path: Path) -> None:
    run = AgentRun(tmp_path)
    run.joined(0)
    run.receiver.is_away = True
    run.flush()
    run.step()
    assert not run.agent.is_calm
    run.receiver.is_away = False
    run.step(60_000)
    run.step()
    run.step()
    assert run.agent.is_calm


def test_it_is_not_where_the_ends_of_iterations_are_waited_for(tmp_path: Path) -> None:
    run = AgentRun(tmp_path, "agent.digests_from_ranks=2")
    run.joined(0)
    run.flush()
    run.step()
    assert not run.agent.is_calm
