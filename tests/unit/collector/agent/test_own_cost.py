"""An agent that takes too much of its host flushes less often, says so, and goes back when it is quiet again."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.agent.own_cost import OwnCost, resident_bytes
from pacehound.model.calls import CallBatch
from pacehound.model.events import Progress
from tests.fakes.agent_run import MS, AgentRun

SECOND_NS = 1_000_000_000


def after(cores: list[float], **settings: float) -> tuple[list[float], list[bool], list[str]]:
    """Seconds between flushes after windows that took so many cores, whether it uses representatives, and its words."""
    cost = OwnCost(**({"flush_s": 1.0, "longest_flush_s": 2.5, "budget_cores": 0.2} | settings))
    cost.look(0, 0)
    flush_s, represents, said, cpu_ns = [], [], [], 0
    for number, share in enumerate(cores):
        cpu_ns += round(share * 10 * SECOND_NS)
        said.append(cost.look((number + 1) * 10 * SECOND_NS, cpu_ns))
        flush_s.append(cost.flush_s)
        represents.append(cost.uses_representatives)
        assert cost.cpu_cores == pytest.approx(share)
    return flush_s, represents, said


def test_it_slows_down_above_the_budget_and_back_far_below_it():
    flush_s, represents, said = after([0.1, 0.3, 0.3, 0.15, 0.04, 0.04, 0.04])
    assert flush_s == [1.0, 2.0, 2.5, 2.5, 1.25, 1.0, 1.0]
    assert [bool(sentence) for sentence in said] == [False, True, True, False, False, False, False]
    assert not any(represents)


def test_it_uses_representatives_only_where_longer_flushes_do_not_suffice_and_stops_that_first():
    flush_s, represents, said = after([0.3, 0.3, 0.3, 0.3, 0.15, 0.04, 0.04, 0.04])
    assert represents == [False, False, True, True, True, False, False, False]
    assert flush_s == [2.0, 2.5, 2.5, 2.5, 2.5, 2.5, 1.25, 1.0]
    assert [bool(sentence) for sentence in said] == [True, True, True, False, False, False, False, False]


def test_it_is_never_quicker_than_asked_nor_slower_than_a_host_may_be_silent():
    assert after([0.0, 0.9, 0.9], flush_s=8.0)[0] == [8.0, 8.0, 8.0]


def test_an_agent_above_its_budget_says_less_often_where_its_host_stands(run: AgentRun) -> None:
    run.ring(0).group([0])

    def promises(n_seconds: int, cores: float) -> int:
        before = len(run.receiver.of(Progress))
        for _ in range(5 * n_seconds):
            run.cpu_ns += round(cores * 200 * MS)
            run.step(200)
        return len(run.receiver.of(Progress)) - before

    cheap = promises(20, 0.1)
    promises(25, 0.5)
    assert promises(20, 0.1) <= cheap // 2
    promises(25, 0.0)
    assert promises(20, 0.0) == pytest.approx(cheap, abs=1)


def test_an_agent_above_its_budget_sends_one_row_for_a_round_and_its_reader_has_them_all(tmp_path: Path) -> None:
    run = AgentRun(tmp_path, "agent.flush_s=2.5")
    rings = [run.ring(rank, capacity=4_096) for rank in range(4)]
    for ring in rings:
        ring.group([0, 1, 2, 3])
    seq = 0

    def work(n_seconds: int, cores: float, calls: int = 4) -> int:
        """Each rank makes so many calls in a tenth of a second, alike to within 20 us; the bytes that this takes."""
        nonlocal seq
        before = sum(map(len, run.receiver.messages))
        for _ in range(10 * n_seconds):
            run.cpu_ns += round(cores * 100 * MS)
            for number in range(calls):
                launch_ns = run.now_ns + number * 14 * MS
                for rank, ring in enumerate(rings):
                    late_ns = 1_000 * (7 * seq + 5 * rank) % 20_000
                    ring.done(seq, launch_ns + late_ns, launch_ns + 40_000)
                seq += 1
            run.step(100)
        return sum(map(len, run.receiver.messages)) - before

    full = work(10, 0.1)
    work(15, 0.5, calls=1)
    assert work(10, 0.1) < full / 2
    work(25, 0.0, calls=1)
    assert work(10, 0.0) > 0.8 * full
    run.end()
    run.step(1_000)
    run.step(1_000)
    rows = run.receiver.rows()
    assert sorted((row["rank"], row["seq"]) for row in rows) == [(rank, n) for rank in range(4) for n in range(seq)]
    assert sum(batch.dropped for batch in run.receiver.of(CallBatch)) == 0
    last = run.receiver.of(Progress)[-1]
    assert [(p.last_launched, p.last_completed) for p in last.ranks] == [(seq - 1, seq - 1)] * 4
    assert max(batch.within_ns for batch in run.receiver.of(CallBatch)) <= 20_000


def test_memory_is_what_the_kernel_says():
    assert 10 << 20 < resident_bytes() < 16 << 30
