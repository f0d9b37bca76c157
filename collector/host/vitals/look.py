"""One look at everything that a host's hardware says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collector.host.kernel_log import KernelLog
from collector.host.processes import PROC
from collector.host.rank_process import RankProcess
from collector.host.vitals.gpus import Gpus
from collector.host.vitals.nics import SYS, Nics
from collector.host.vitals.oom import OomKills
from collector.host.vitals.processors import Processors
from collector.host.vitals.sockets import Sockets
from pacehound.model.events import HostVitals


class VitalsReader:
    """Reads the vitals of one host; what is not there is not told, and is no error.

    Parameters
    ----------
    job, host
        As in the events.
    kernel_log
        Says which GPUs have had an XID error.
    proc, sys
        Where /proc and /sys are.

    """

    def __init__(self, job: str, host: str, kernel_log: KernelLog, proc: Path = PROC, sys: Path = SYS) -> None:
        self._job, self._host = job, host
        self._kernel_log = kernel_log
        self._sockets = Sockets(proc)
        self._nics = Nics(sys)
        self._gpus = Gpus()
        self._processors = Processors(proc, sys)
        self._oom_kills = OomKills(proc, sys)

    def look(self, attempt: int, ranks: Sequence[RankProcess], now_unix_ns: int) -> HostVitals:
        """What it says now of the ranks of an attempt."""
        return HostVitals(
            job=self._job,
            attempt=attempt,
            time_ns=now_unix_ns,
            host=self._host,
            sockets=self._sockets.look(ranks),
            nics=self._nics.look(),
            gpus=self._gpus.look(ranks, self._kernel_log.xids()),
            processors=self._processors.host(),
            rank_processors=self._processors.look(ranks),
            oom_kills=self._oom_kills.look(ranks),
        )
