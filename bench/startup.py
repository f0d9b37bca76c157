"""Starting: how long a command takes from the shell's Enter to its end, and what of that is processor time.

Medians of several runs, each in a process of its own; what a machine does beside them shows in the wall clock, so hold
the processor time against a change. The first use has an empty cache: what a command compiles, it compiles then.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.recordings import SHARED

TRACE = SHARED / "data" / "whatif" / "trace-AR.parquet"
RUNS = 7
FIRST_RUNS = 1
_LOG_STEPS = 200


def run() -> list[dict[str, Any]]:
    """Wall and processor seconds of each command, the latter also in starts of a bare interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        log, store = Path(folder) / "steps.csv", Path(folder) / "store"
        log.write_text("step,step_time_s\n" + "".join(f"{i},0.{100 + i % 7}\n" for i in range(_LOG_STEPS)))
        commands: dict[str, Sequence[str]] = {
            "version": ("version",),
            "--help": ("--help",),
            f"analyze, {_LOG_STEPS} steps": ("analyze", str(log)),
            "incidents, empty store": ("incidents", "--store", str(store)),
            "sql": ("sql", "SELECT 1", "--store", str(store)),
        }
        if TRACE.is_file():
            commands["whatif, trace AR"] = ("whatif", str(TRACE))
        bare_s = _median([sys.executable, "-c", "pass"], RUNS, os.environ)[1]
        rows = [{"case": "bare interpreter", "figure": "processor", "value": bare_s, "unit": "s"}]
        for case, arguments in commands.items():
            command = [sys.executable, "-m", "pacehound", *arguments]
            _seconds(command, os.environ)  # makes the store, and what is kept from one run to the next
            wall_s, busy_s = _median(command, RUNS, os.environ)
            rows += _rows(case, wall_s, busy_s, bare_s)
        for case in (f"analyze, {_LOG_STEPS} steps", "whatif, trace AR"):
            if case not in commands:
                continue
            empty = {**os.environ, "XDG_CACHE_HOME": str(Path(folder) / case.split(",")[0])}
            wall_s, busy_s = _median([sys.executable, "-m", "pacehound", *commands[case]], FIRST_RUNS, empty)
            rows += _rows(f"{case}, first use", wall_s, busy_s, bare_s)
        return rows


def _rows(case: str, wall_s: float, busy_s: float, bare_s: float) -> list[dict[str, Any]]:
    return [
        {"case": case, "figure": "wall", "value": wall_s, "unit": "s"},
        {"case": case, "figure": "processor", "value": busy_s, "unit": "s"},
        {"case": case, "figure": "processor, over a bare interpreter", "value": busy_s / bare_s, "unit": "x"},
    ]


def _median(command: Sequence[str], runs: int, environ: Mapping[str, str]) -> tuple[float, float]:
    """Wall and processor seconds, each the median of so many runs."""
    measured = [_seconds(command, environ) for _ in range(runs)]
    return statistics.median(wall for wall, _ in measured), statistics.median(busy for _, busy in measured)


def _seconds(command: Sequence[str], environ: Mapping[str, str]) -> tuple[float, float]:
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=dict(environ), stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed with {process.returncode}: {said.read().decode()[-2000:]}")
    return wall_s, used.ru_utime + used.ru_stime
