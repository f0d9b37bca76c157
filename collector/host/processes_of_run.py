"""Processes of a run that have written nothing yet: found by their environment, as a launcher has set it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from collector.host.processes import PROC, read_stat
from collector.host.rank_process import RankProcess


def ranks_of_run(run_dir: Path, proc: Path = PROC) -> list[RankProcess]:
    """The process of each rank that a launcher has begun for a run, which is known by the folder that it is given.

    What a rank has begun itself has its environment, too: of such processes the first Python one is the rank's. Ranks
    that are forks of one process have that one's environment, and are not found.
    """
    folder, found = str(run_dir.absolute()), {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and (environ := _environ(entry)).get("PACEHOUND_RUN_DIR") == folder:
            with contextlib.suppress(KeyError, ValueError, OSError):
                found[int(entry.name)] = _attempt(environ), int(environ["RANK"]), _parent(entry), _is_python(entry)
    ranks = []
    for pid, (attempt, rank, parent, is_python) in sorted(found.items()):
        above = found.get(parent)
        if not is_python or (above is not None and above[:2] == (attempt, rank) and above[3]):
            continue
        stat = read_stat(pid, proc)
        if stat is not None and stat.state != "exited":
            ranks.append(RankProcess(attempt=attempt, rank=rank, pid=pid, start_ticks=stat.start_ticks))
    return ranks


def _environ(process: Path) -> dict[str, str]:
    """That with which it was begun; nothing where it is somebody else's, or gone."""
    try:
        entries = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}


def _attempt(environ: Mapping[str, str]) -> int:
    """As the process will say it (`pacehound/instrument/recorder.py`)."""
    return int(environ.get("PACEHOUND_ATTEMPT", 0)) + int(environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def _parent(process: Path) -> int:
    return int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def _is_python(process: Path) -> bool:
    return "python" in os.path.basename(os.readlink(process / "exe"))
