"""Processes of a run that have written nothing yet: found by their environment, as a launcher has set it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from collector.host.processes import PROC, ProcessStat, pids, read_stat, variables_of
from collector.host.rank_process import RankProcess


def ranks_of_run(run_dir: Path, proc: Path = PROC) -> list[RankProcess]:
    """The process of each rank that a launcher has begun for a run, which is known by the folder that it is given.

    What a rank has begun itself has its environment, too: of such processes the first Python one is the rank's. Ranks
    that are forks of one process have that one's environment, and are not found.
    """
    folder = str(run_dir.absolute())
    found: dict[int, tuple[int, int, ProcessStat]] = {}
    for pid in pids(proc):
        environ = variables_of(pid, proc)
        if environ.get("PACEHOUND_RUN_DIR") != folder:
            continue
        with contextlib.suppress(KeyError, ValueError, OSError):
            stat = read_stat(pid, proc)
            if stat is not None and _is_python(proc / str(pid)):
                found[pid] = _attempt(environ), int(environ["RANK"]), stat
    return [
        RankProcess(attempt=attempt, rank=rank, pid=pid, start_ticks=stat.start_ticks)
        for pid, (attempt, rank, stat) in sorted(found.items())
        if stat.state != "exited" and (stat.parent not in found or found[stat.parent][:2] != (attempt, rank))
    ]


def _attempt(environ: Mapping[str, str]) -> int:
    """As the process will say it (`pacehound/instrument/recorder.py`)."""
    return int(environ.get("PACEHOUND_ATTEMPT", 0)) + int(environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def _is_python(process: Path) -> bool:
    return "python" in os.path.basename(os.readlink(process / "exe"))
