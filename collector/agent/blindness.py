"""Processes in which a library communicates and none of whose calls are seen: who cannot be watched must be told so.

NCCL that is linked statically, or called through pointers that somebody got from dlsym, goes past the shim; a job that
does not use torch.distributed goes past the hooks. What such a process maps into its memory shows it all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from collector.calls.communicators import BACKENDS
from collector.host.evidence import libraries
from collector.host.processes import PROC, address_space
from collector.host.rank_process import RankProcess

LOOK_EVERY_NS = 15_000_000_000
"""A map of 2,000 lines takes some milliseconds, so it is read again where the process maps more or less than it did."""
SURE_AFTER_NS = 90_000_000_000
"""How long a library is at work before it is said: with the time between looks less than two minutes."""

_Read = tuple[int | None, tuple[str, ...]]
"""How many pages a process mapped, and which libraries communicate in it."""

Callers = Mapping[tuple[int, int], Collection[int]]


def unheard_of(at_work: Collection[str], backends: Collection[str]) -> tuple[str, ...]:
    """Which libraries that are at work in a process nothing is heard of.

    NCCL is heard of when a call on one of its communicators was seen. What the other libraries do is in nobody's
    sight, which matters where nothing else of the process is seen either: elsewhere it is told with a hang.

    >>> unheard_of(("mpi", "nccl"), {"gloo"}), unheard_of(("mpi", "nccl"), {"nccl"}), unheard_of(("mpi",), set())
    (('nccl',), (), ('mpi',))
    """
    return tuple(sorted(name for name in at_work if (name not in backends if name == "nccl" else not backends)))


class BlindWatch:
    """Follows what the processes of a host have loaded; the time is an argument.

    Parameters
    ----------
    proc
        Where /proc is.

    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._next_look_ns = 0
        self._since_ns: dict[tuple[int, int, str], int] = {}
        self._said: dict[int, tuple[str, ...]] = {}
        self._read: dict[tuple[int, int], _Read] = {}  # by pid and when it began

    def look(
        self, alive: Sequence[RankProcess], callers: Callable[[], Callers], now_ns: int
    ) -> Mapping[int, tuple[str, ...]]:
        """By pid: the libraries of which nothing has been heard for `SURE_AFTER_NS`.

        Parameters
        ----------
        alive
            The ranks' processes.
        callers
            Gives, by (attempt, rank), the backends on which a call was seen.
        now_ns
            Monotonic time.

        """
        if now_ns < self._next_look_ns:
            return self._said
        self._next_look_ns = now_ns + LOOK_EVERY_NS
        seen = callers()
        since_ns: dict[tuple[int, int, str], int] = {}
        said: dict[int, tuple[str, ...]] = {}
        self._read = {(one.pid, one.start_ticks): read for one in alive if (read := self._at_work(one)) is not None}
        for process in alive:
            _, at_work = self._read.get((process.pid, process.start_ticks), (None, ()))
            backends = {
                BACKENDS[code] for code in seen.get((process.attempt, process.rank), ()) if code < len(BACKENDS)
            }
            for name in unheard_of(at_work, backends):
                key = (process.pid, process.start_ticks, name)
                since_ns[key] = self._since_ns.get(key, now_ns)
                if now_ns - since_ns[key] >= SURE_AFTER_NS:
                    said[process.pid] = (*said.get(process.pid, ()), name)
        self._since_ns, self._said = since_ns, said
        return said

    def _at_work(self, process: RankProcess) -> _Read | None:
        """What was read last, where it maps as much as it did then; `None` where its map cannot be read."""
        pages = address_space(process.pid, self._proc)
        known = self._read.get((process.pid, process.start_ticks))
        if known is not None and pages is not None and known[0] == pages:
            return known
        at_work = libraries.at_work(process.pid, self._proc)
        return None if at_work is None else (pages, at_work)
