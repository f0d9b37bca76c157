"""Real processes that sleep in a read, hold a lock, spin or are stopped: what is said that they do is what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from bench.rig import realjob
from collector.agent.background import ThreadTaskRunner
from collector.host.evidence import kernel_view, pyspy
from collector.host.evidence.collect import EvidenceCollector
from collector.host.evidence.stall import Stall
from collector.host.kernel_log import KernelLog
from collector.host.processes import read_stat
from collector.host.rank_process import RankProcess
from pacehound.errors import Unavailable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

CASES = {
    "storage": "import os, sys; f = os.open(sys.argv[1], os.O_RDWR); os.read(f, 1)",
    "lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "computing": "while True: pass",
    "stopped": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "unknown": "import time; time.sleep(600)",
}
LOADER = """
import time
from torch.utils.data import DataLoader
class Slow:
    def __len__(self): return 9
    def __getitem__(self, index): time.sleep(600)
next(iter(DataLoader(Slow())))
"""


@contextmanager
def rank(code: str, *arguments: object) -> Iterator[RankProcess]:
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])
    try:
        stat = read_stat(process.pid)
        assert stat is not None
        yield RankProcess(attempt=0, rank=1, pid=process.pid, start_ticks=stat.start_ticks)
    finally:
        process.kill()
        process.wait()


until = partial(realjob.until, timeout_s=60, poll_s=0.02)


def collector(*, py_spy: str | None) -> EvidenceCollector:
    return EvidenceCollector("j", "h", KernelLog(time.monotonic_ns()), py_spy=py_spy)


def has_settled(process: RankProcess, word: str) -> bool:
    """Whether it has come to where it stays."""
    reading = kernel_view.read(process.pid)
    if word == "computing":
        return reading.state == "R" and reading.thread_ticks > 20
    settled = {"storage": "read", "lock": "futex", "unknown": "clock_nanosleep"}
    return reading.state == "T" if word == "stopped" else reading.syscall == settled[word]


@pytest.fixture
def py_spy() -> str:
    program = pyspy.find()
    if program is None:
        pytest.skip("py-spy is not installed")
    try:
        pyspy.main_thread(program, os.getpid())
    except Unavailable as error:
        pytest.skip(str(error))
    return program


@pytest.mark.parametrize("word", CASES)
@pytest.mark.parametrize("by", ["proc", "py-spy"])
def test_what_a_real_process_does_is_said(tmp_path: Path, word: str, by: str, request: pytest.FixtureRequest) -> None:
    if by == "proc" and not kernel_view.read(os.getpid()).syscall and not Path("/proc/self/syscall").exists():
        pytest.skip("this kernel does not tell system calls")
    program = request.getfixturevalue("py_spy") if by == "py-spy" else None
    os.mkfifo(tmp_path / "file")
    with rank(CASES[word], tmp_path / "file") as process:
        until("where it stays", lambda: has_settled(process, word))
        stall = Stall(attempt=0, reason="a test", ranks=(1,), in_call=frozenset())
        neighbours = realjob.Neighbours()
        (stack,) = collector(py_spy=program).collect(stall, [process], 5).stacks
        assert (stack.rank, stack.pid, stack.taken_by) == (1, process.pid, by)
        # Whoever computes must get a processor to be seen to.
        with realjob.unless_disturbed(neighbours.disturbance if word == "computing" else lambda: ""):
            assert stack.doing == word
        if by == "py-spy":
            assert any("<module> (<string>" in frame for frame in stack.frames)
        state = read_stat(process.pid)
        assert state is not None
        assert state.state == ("stopped" if word == "stopped" else "running")  # as it was before


def test_a_loader_that_waits_is_known_by_its_frames(py_spy: str) -> None:
    with rank(LOADER) as process:
        until("the loader", lambda: kernel_view.read(process.pid).syscall == "clock_nanosleep")
        stall = Stall(attempt=0, reason="a test", ranks=(1,), in_call=frozenset())
        (stack,) = collector(py_spy=py_spy).collect(stall, [process], 5).stacks
    assert stack.doing == "data_loading"
    assert stack.frames[0].startswith("clock_nanosleep (kernel")


def test_a_reader_that_does_not_answer_costs_its_time_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o700)
    began_s = time.monotonic()
    with pytest.raises(Unavailable, match="timed out"):
        pyspy.main_thread(str(program), os.getpid(), time_limit_s=0.2)
    assert time.monotonic() - began_s < 10


def test_a_task_that_hangs_keeps_nobody_waiting_and_one_that_fails_is_forgotten() -> None:
    tasks: ThreadTaskRunner[int] = ThreadTaskRunner("a test")
    hangs = threading.Event()

    def fails() -> int:
        raise OSError("a driver that is gone")

    def waits() -> int:
        hangs.wait(60)
        return 7

    tasks.run(fails)
    until("the next", tasks.is_idle)
    tasks.run(waits)
    assert not tasks.is_idle()
    assert tasks.results() == []
    hangs.set()
    assert tasks.finished.wait(60)
    until("its result", lambda: tasks.results() == [7])
    tasks.close()


def test_a_stopped_process_is_not_set_going(py_spy: str) -> None:
    with rank(CASES["unknown"]) as process:
        until("where it stays", lambda: has_settled(process, "unknown"))
        os.kill(process.pid, signal.SIGSTOP)
        until("the stop", lambda: has_settled(process, "stopped"))
        assert pyspy.main_thread(py_spy, process.pid)
        assert has_settled(process, "stopped")
