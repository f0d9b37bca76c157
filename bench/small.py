"""What a small job pays for being watched on one machine: processor time and memory of the head and of the agent.

Four gloo ranks (`PACEHOUND_BENCH_RANKS`) under `pacehound run`, steps of 100, 10 and 2 ms, and ranks that make no call;
each is followed for `PACEHOUND_BENCH_SECONDS` (600, in which a head writes once what it writes each ten minutes) once
its first half minute is over: what a head takes to start is not what it takes. The figures are processor time, which
others on the machine change little, and what /proc says of memory. It takes three quarters of an hour and runs when it
is named: `python -m bench small`.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.rig import realjob

STEPS_MS = {"steps of 100 ms": 100.0, "steps of 10 ms": 10.0, "steps of 2 ms": 2.0, "no calls": 3.6e6}
WARM_S = 30.0
LOOK_S = 10.0
"""Between two looks at memory: a head maps more of the engine's code for ten seconds when it writes."""
_TICKS_S = os.sysconf("SC_CLK_TCK")


def run() -> list[dict[str, Any]]:
    """One row per job, process and figure."""
    seconds = float(os.environ.get("PACEHOUND_BENCH_SECONDS", "600"))
    ranks = int(os.environ.get("PACEHOUND_BENCH_RANKS", "4"))
    asked = os.environ.get("PACEHOUND_BENCH_CASES", "")
    cases = [case for case in STEPS_MS if not asked or case in asked.split(",")]
    return [row for case in cases for row in _follow(case, STEPS_MS[case], seconds, ranks)]


def _follow(case: str, step_ms: float, seconds: float, ranks: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        options = ("--iterations", 10**9, "--step-time-ms", step_ms)
        watched = realjob.start(Path(name), realjob.forked(*options, ranks=ranks))
        try:
            head = int(realjob.until("the head", lambda: _helper(watched, b"up"), 60, 0.2))
            agent = int(realjob.until("the agent", lambda: _helper(watched, b"agent"), 60, 0.2))
            realjob.until("its ranks", lambda: _n_forks(watched) > ranks, 120)
            time.sleep(WARM_S)
            before_s, began = {pid: cpu_s(pid) for pid in (head, agent)}, time.monotonic()
            resident_mb: dict[int, list[float]] = {head: [], agent: []}
            while (took := time.monotonic() - began) < seconds:
                for pid, seen_mb in resident_mb.items():
                    seen_mb.append(memory_mb(pid, "Rss"))
                time.sleep(min(LOOK_S, seconds - took))
            rows = []
            for who, pid in (("head", head), ("agent", agent)):
                figures = {
                    "processor": ((cpu_s(pid) - before_s[pid]) / took, "cores"),
                    "resident, median": (statistics.median(resident_mb[pid]), "MB"),
                    "resident at most": (max(resident_mb[pid]), "MB"),
                    "of its own (PSS)": (memory_mb(pid, "Pss"), "MB"),
                    "threads": (float(len(os.listdir(f"/proc/{pid}/task"))), ""),
                }
                rows += [
                    {"case": case, "figure": f"{who}, {figure}", "value": value, "unit": unit}
                    for figure, (value, unit) in figures.items()
                ]
            return rows
        finally:
            watched.process.send_signal(signal.SIGTERM)
            watched.stop()


def _helper(watched: realjob.Run, command: bytes) -> int | None:
    """The pid of `pacehound up` or `pacehound agent` of a run."""
    below = realjob.descendants(watched.process.pid)
    return next((pid for pid in below if command in realjob.words_of(pid, "cmdline")), None)


def _n_forks(watched: realjob.Run) -> int:
    """Processes of the job: its launcher and what it has forked."""
    script = str(realjob.FORKED).encode()
    return sum(script in realjob.words_of(pid, "cmdline") for pid in realjob.descendants(watched.process.pid))


def cpu_s(pid: int) -> float:
    """Processor seconds of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def memory_mb(pid: int, what: str) -> float:
    """`Rss` or `Pss`, in MB (10^6 bytes)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))
    return kib * 1024 / 1e6
