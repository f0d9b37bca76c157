"""What ranks get of their host's processors, from recorded trees and from a real kernel."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from collector.host.processes import read_stat
from collector.host.rank_process import RankProcess
from collector.host.vitals.processors import SWEEP_EVERY, Processors, are_waits_counted
from pacehound.model.events import HostProcessors, RankProcessors
from tests.fakes.proc_tree import ProcTree, process

STAT = """cpu  {user} 5 20 900 30 1 2 {steal} 0 0
cpu0 1 2 3 4 5 6 7 8 0 0
cpu1 1 2 3 4 5 6 7 8 0 0
cpuidle 9
ctxt 123
"""
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def threads(tree: ProcTree, pid: int, **counts: str) -> None:
    """Set the counts of some threads: `t101="ran waited"`."""
    for name, text in counts.items():
        folder = tree.root / str(pid) / "task" / name[1:]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"{text} 7\n")


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


def test_the_host_is_busy_and_stolen_from_since_the_first_look(tree: ProcTree, tmp_path: Path) -> None:
    tree.root.mkdir()
    (tree.root / "stat").write_text(STAT.format(user=100, steal=40))
    processors = Processors(tree.root, tmp_path / "sys")
    assert processors.host() == HostProcessors(count=2)
    (tree.root / "stat").write_text(STAT.format(user=170, steal=43))
    assert processors.host() == HostProcessors(count=2, busy_ns=70 * TICK_NS, stolen_ns=3 * TICK_NS)


@pytest.mark.parametrize("text", ["", "cpu  1 2 3\n", "cpu  a b c d e f g h\n"])
def test_a_kernel_that_tells_otherwise_is_not_guessed_at(tree: ProcTree, tmp_path: Path, text: str) -> None:
    tree.root.mkdir()
    (tree.root / "stat").write_text(text)
    assert Processors(tree.root, tmp_path / "sys").host() is None
    assert Processors(tree.root / "nowhere", tmp_path / "sys").host() is None


def test_a_rank_has_what_all_its_threads_had_those_that_left_too(tree: ProcTree, tmp_path: Path) -> None:
    tree.put(101)
    threads(tree, 101, t101="1000 10", t102="500 5")
    processors = Processors(tree.root, tmp_path / "sys")
    assert processors.look([process(1)]) == (RankProcessors(rank=1, pid=101, ran_ns=1500, waited_ns=15),)
    (tree.root / "101" / "task" / "102" / "schedstat").unlink()
    threads(tree, 101, t101="1800 30", t103="50 100")
    assert processors.look([process(1)]) == (RankProcessors(rank=1, pid=101, ran_ns=2350, waited_ns=135),)
    threads(tree, 101, t103="40 90")  # another thread, with the same number
    (reading,) = processors.look([process(1)])
    assert (reading.ran_ns, reading.waited_ns) == (2350, 135)  # never less


def test_threads_that_do_nothing_are_seldom_read_and_nothing_of_theirs_is_lost(tree: ProcTree, tmp_path: Path) -> None:
    tree.put(101)
    threads(tree, 101, t101="1000 10", t102="500 5")
    processors = Processors(tree.root, tmp_path / "sys")
    ran_ns = []
    for number in range(4 * SWEEP_EVERY):
        threads(tree, 101, t101=f"{1000 * (number + 1)} 10")
        if number == 2 * SWEEP_EVERY:
            threads(tree, 101, t102="900 5")
        (reading,) = processors.look([process(1)])
        ran_ns.append(reading.ran_ns - 1000 * (number + 1))
    assert set(ran_ns) == {500, 900}
    assert 500 in ran_ns[2 * SWEEP_EVERY :]  # it was idle, and not read at once
    assert ran_ns == sorted(ran_ns)
    assert set(ran_ns[3 * SWEEP_EVERY :]) == {900}


def test_a_kernel_that_does_not_count_and_a_process_that_is_gone_tell_nothing(tree: ProcTree, tmp_path: Path) -> None:
    tree.put(101)
    threads(tree, 101, t101="0 0")
    assert Processors(tree.root, tmp_path / "sys").look([process(1), process(2)]) == ()
    assert not are_waits_counted(tree.root)


@pytest.mark.parametrize(
    ("line", "file", "unit_ns", "text"),
    [
        ("0::/pod/ranks", "sys/fs/cgroup/pod/cpu.stat", 1000, "usage_usec 1\nnr_throttled 4\nthrottled_usec {}\n"),
        ("0::/", "sys/fs/cgroup/cpu.stat", 1000, "throttled_usec {}\n"),
        ("3:cpu,cpuacct:/pod", "sys/fs/cgroup/cpu/pod/cpu.stat", 1, "nr_periods 9\nthrottled_time {}\n"),
    ],
)
def test_quotas_are_used_up_since_the_first_look_in_the_group_or_above_it(
    tree: ProcTree, tmp_path: Path, line: str, file: str, unit_ns: int, text: str
) -> None:
    tree.put(101)
    tree.say(101, cgroup=f"1:name=systemd:/\n{line}\n")
    threads(tree, 101, t101="1000 10")
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text.format(70))
    processors = Processors(tree.root, tmp_path / "sys")
    assert [one.throttled_ns for one in processors.look([process(1)])] == [0]
    path.write_text(text.format(95))
    assert [one.throttled_ns for one in processors.look([process(1)])] == [25 * unit_ns]


def test_this_kernel_counts_what_this_process_runs() -> None:
    stat = read_stat(os.getpid())
    assert stat is not None
    own = RankProcess(attempt=0, rank=0, pid=os.getpid(), start_ticks=stat.start_ticks)
    processors = Processors()
    (before,) = processors.look([own])
    began_s = time.process_time()
    while time.process_time() - began_s < 0.1:
        pass
    (after,) = processors.look([own])
    assert after.ran_ns - before.ran_ns >= 90_000_000
    assert are_waits_counted()
