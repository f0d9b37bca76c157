"""Lets stopped processes of ranks go on: a SIGCONT to just that process, by a handle that cannot become another's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

from collector.host.processes import read_stat
from collector.host.rank_process import RankProcess
from pacehound.model.events.control import RankAnswer
from pacehound.model.orders import Wake


def wake(what: Wake, processes: Iterable[RankProcess]) -> tuple[RankAnswer, ...]:
    """What became of each that is on this host: `running`, or `refused` and why."""
    pids = dict(what.processes)
    return tuple(_woken(one, pids[one.rank]) for one in processes if one.rank in pids)


def _woken(process: RankProcess, pid: int) -> RankAnswer:
    why = _not_woken(process, pid)
    return RankAnswer(rank=process.rank, state="refused" if why else "running", why=why)


def _not_woken(process: RankProcess, pid: int) -> str:
    """Why it was not told to go on; empty where it was."""
    if pid != process.pid:
        return f"rank {process.rank} is process {process.pid} by now, and not {pid}"
    try:
        handle = os.pidfd_open(pid)
        try:
            stat = read_stat(pid)
            if stat is None or stat.start_ticks != process.start_ticks:
                return f"process {pid} has ended"
            if stat.state == "stopped":
                signal.pidfd_send_signal(handle, signal.SIGCONT)
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        return f"process {pid} cannot be told to go on: {error}"
    return ""
