"""A stopped process of a rank goes on when it is told to, and no other one is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from collector.agent.waking import wake
from collector.host.processes import read_stat
from collector.host.rank_process import RankProcess
from pacehound.model.orders import Wake


def test_a_stopped_process_goes_on_and_another_of_that_number_is_let_be() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        found = read_stat(process.pid)
        assert found is not None
        rank = RankProcess(attempt=0, rank=3, pid=process.pid, start_ticks=found.start_ticks)
        later = RankProcess(attempt=0, rank=3, pid=process.pid, start_ticks=found.start_ticks + 1)
        (other,) = wake(Wake(processes=((3, process.pid + 1),)), [rank])
        (gone,) = wake(Wake(processes=((3, process.pid),)), [later])
        assert [one.state for one in (other, gone)] == ["refused", "refused"]
        assert "by now" in other.why
        assert wake(Wake(processes=((4, process.pid),)), [rank]) == ()
        stopped = read_stat(process.pid)
        assert stopped is not None
        assert stopped.state == "stopped"
        (answer,) = wake(Wake(processes=((3, process.pid),)), [rank])
        assert answer.state == "running"
        os.waitid(os.P_PID, process.pid, os.WCONTINUED)
    finally:
        process.kill()
        process.communicate()
