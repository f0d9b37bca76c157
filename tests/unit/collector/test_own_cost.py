"""An agent that takes too much of its host flushes less often, says so, and goes back when it is quiet again."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.own_cost import OwnCost, resident_bytes
from pacehound.events import HostSample
from tests.fakes.agent_run import MS, AgentRun

SECOND_NS = 1_000_000_000


def after(cores: list[float], **settings: float) -> tuple[list[float], list[str]]:
    """How often it flushes after each window in which it took so many cores, and what it says."""
    cost = OwnCost(**({"flush_s": 1.0, "longest_flush_s": 2.5, "budget_cores": 0.2} | settings))
    cost.look(0, 0)
    flush_s, said, cpu_ns = [], [], 0
    for number, share in enumerate(cores):
        cpu_ns += round(share * 10 * SECOND_NS)
        said.append(cost.look((number + 1) * 10 * SECOND_NS, cpu_ns))
        flush_s.append(cost.flush_s)
        assert cost.cpu_cores == pytest.approx(share)
    return flush_s, said


def test_it_slows_down_above_the_budget_and_back_far_below_it():
    flush_s, said = after([0.1, 0.3, 0.3, 0.3, 0.15, 0.04, 0.04, 0.04])
    assert flush_s == [1.0, 2.0, 2.5, 2.5, 2.5, 1.25, 1.0, 1.0]
    assert [bool(sentence) for sentence in said] == [False, True, True, False, False, False, False, False]


def test_it_is_never_quicker_than_asked_nor_slower_than_a_host_may_be_silent():
    assert after([0.0, 0.9, 0.9], flush_s=8.0)[0] == [8.0, 8.0, 8.0]


def test_an_agent_above_its_budget_says_less_often_where_its_host_stands(tmp_path: Path) -> None:
    run = AgentRun(tmp_path)
    run.ring(0).group([0])

    def samples(n_seconds: int, cores: float) -> int:
        before = len(run.door.of(HostSample))
        for _ in range(20 * n_seconds):
            run.cpu_ns += round(cores * 50 * MS)
            run.step(50)
        return len(run.door.of(HostSample)) - before

    cheap = samples(20, 0.1)
    samples(25, 0.5)
    assert samples(20, 0.1) <= cheap // 2
    samples(25, 0.0)
    assert samples(20, 0.0) == pytest.approx(cheap, abs=1)


def test_memory_is_what_the_kernel_says():
    assert 10 << 20 < resident_bytes() < 16 << 30
