"""NCCL shim and profiler plugin: nanoseconds that they add to a call, what a ring carries, what the agent costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collector.agent.control_block import ControlBlock, TimingPhase
from collector.calls.rings import RingReader
from pacehound.clock import ClockPair
from pacehound.instrument import profiler, shim

SOURCES = Path(__file__).with_name("native_calls")
CALLS, REPEATS = 200_000, 15
RANKS, CALLS_PER_S, AGENT_S = 8, 1_000, 10
TIMED_CALLS, TIMED_REPEATS = 400, 100
"""Fewer calls in a row than there are pairs of events."""
PATIENCE_S = 30.0
NCCL_VERSION = 22907


def run() -> list[dict[str, Any]]:
    """One row per case and figure; none where there is no compiler."""
    if shim.reason_unavailable():
        print(f"bench: no NCCL shim: {shim.reason_unavailable()}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        program = _build(Path(folder))
        return [
            *_added(program, Path(folder)),
            *_timed(program, Path(folder)),
            *_plugin(Path(folder)),
            *_throughput(program, Path(folder)),
            *_agent(program, Path(folder)),
        ]


def _build(folder: Path) -> Path:
    compiler = shim.compiler()
    assert compiler is not None
    common = [compiler, "-std=gnu11", "-O2", f"-I{shim.SOURCES}"]
    nccl, with_driver, program = folder / "libnccl.so.2", folder / "driver" / "libnccl.so.2", folder / "calls"
    with_driver.parent.mkdir()
    nothing = [*common, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", str(SOURCES / "nothing.c"), "-o"]
    for command in (
        [*nothing, str(nccl)],
        [*nothing, str(with_driver), "-DDRIVER"],
        [*common, str(SOURCES / "calls.c"), str(nccl), "-Wl,-rpath,$ORIGIN", "-o", str(program)],
        [*common, "-rdynamic", str(SOURCES / "plugin.c"), "-o", str(folder / "plugin"), "-ldl"],
    ):
        subprocess.run(command, check=True)
    return program


def _environment(run_dir: Path | None, **more: str) -> dict[str, str]:
    folder = {} if run_dir is None else {"PACEHOUND_RUN_DIR": str(run_dir), "PACEHOUND_JOB": "bench"}
    return {**os.environ, **folder, **more}


def _measured(program: Path, environ: Mapping[str, str]) -> dict[str, float]:
    command = [str(program), str(CALLS), str(REPEATS)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _added(program: Path, folder: Path) -> list[dict[str, Any]]:
    library = shim.build()
    run_dir = folder / "run"
    run_dir.mkdir()
    bare = _measured(program, _environment(None))
    idle = _measured(program, shim.preloaded(_environment(None), library))
    watched = _measured(program, shim.preloaded(_environment(run_dir), library))
    rows = []
    for figure in ("a call", "a group of two calls"):
        for case, measured in (("bare", bare), ("loaded, not asked to write", idle), ("watched", watched)):
            value = measured[figure] - (0.0 if case == "bare" else bare[figure])
            said = figure if case == "bare" else f"{figure}, added"
            rows.append({"case": case, "figure": said, "value": value, "unit": "ns"})
    rows.append({"case": "of which", "figure": "reading the clock", "value": watched["the clock"], "unit": "ns"})
    (path,) = (run_dir / "rings").iterdir()
    reader = RingReader(path)
    calls, took_ns = reader.measured()
    reader.close()
    said = "a call, with one more reading of the clock"
    rows.append({"case": "as the shim measures itself", "figure": said, "value": took_ns / calls, "unit": "ns"})
    return rows


def _timed(program: Path, folder: Path) -> list[dict[str, Any]]:
    """What timing on the device adds, apart from what the driver takes: this one does nothing."""
    library = shim.build()
    run_dir, off_dir, ready = folder / "timed", folder / "off", folder / "ready"
    run_dir.mkdir()
    off_dir.mkdir()
    driver = {"LD_LIBRARY_PATH": str(folder / "driver")}
    bare = _measured(program, _environment(None, **driver))
    off = _measured(program, shim.preloaded(_environment(off_dir, **driver), library))
    command = [str(program), str(TIMED_CALLS), str(TIMED_REPEATS), "0", "1", "0", str(ready)]
    environ = shim.preloaded(_environment(run_dir, **driver), library)
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            block = _wait_until_timed(run_dir / "control" / f"{process.pid}.control")
            ready.touch()
            said, _ = process.communicate()
        finally:
            process.kill()
    timing = block.timing(1)
    if process.returncode or timing.untimed:
        raise RuntimeError(f"the timed calls ended with {process.returncode}; {timing.untimed} were not timed")
    on = json.loads(said)
    return [
        {"case": case, "figure": f"{figure}, added", "value": measured[figure] - bare[figure], "unit": "ns"}
        for figure in ("a call", "a group of two calls")
        for case, measured in (("with a driver, timing off", off), ("with a driver, timed", on))
    ]


def _wait_until_timed(path: Path) -> ControlBlock:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} is not there after {PATIENCE_S} s")
        time.sleep(0.01)
    block = ControlBlock(path)
    block.time_calls(1, until_ns=time.monotonic_ns() + 10**11, cap=0.1)
    while block.timing(1).phase != TimingPhase.ON:
        if time.monotonic() > deadline:
            raise RuntimeError(f"timing is {block.timing(1)} after {PATIENCE_S} s")
        time.sleep(0.01)
    return block


def _plugin(folder: Path) -> list[dict[str, Any]]:
    """What NCCL spends in the plugin on one all-reduce of so many channels, all of its callbacks together."""
    run_dir = folder / "plugin-run"
    run_dir.mkdir()
    rows = []
    for channels in (1, 8):
        command = [str(folder / "plugin"), str(profiler.build()), str(CALLS // 10), str(REPEATS), str(channels)]
        environ = _environment(run_dir, HOST_NCCL_VERSION=str(NCCL_VERSION), RANK="0", WORLD_SIZE="1")
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        case = f"profiler plugin, {channels} channel{'s' if channels > 1 else ''}"
        rows.append({"case": case, "figure": "a call", "value": float(done.stdout), "unit": "ns"})
    return rows


def _throughput(program: Path, folder: Path) -> list[dict[str, Any]]:
    (path,) = (folder / "run" / "rings").iterdir()
    best_s, records = float("inf"), 0
    for _ in range(REPEATS):
        reader = RingReader(path)
        begun = time.perf_counter()
        records = len(reader.read().records)
        best_s = min(best_s, time.perf_counter() - begun)
        reader.close()
    return [{"case": "a full ring", "figure": "read", "value": records / best_s, "unit": "records/s"}]


def _agent(program: Path, folder: Path) -> list[dict[str, Any]]:
    """CPU and memory of an agent, in a process of its own, that reads 8 ranks of 1,000 calls a second each."""
    run_dir = folder / "agent"
    run_dir.mkdir()
    clock = ClockPair.read()
    job = {"job": "bench", "host": "bench", "clock": {"monotonic_ns": clock.monotonic_ns, "unix_ns": clock.unix_ns}}
    (run_dir / "job.json").write_text(json.dumps(job))
    command = [str(program), str(CALLS_PER_S * (AGENT_S + 3)), "1", str(1_000_000 // CALLS_PER_S), str(RANKS)]
    ranks = []
    for rank in range(RANKS):
        environ = _environment(run_dir, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
        ranks.append(subprocess.Popen([*command, str(rank)], env=shim.preloaded(environ, shim.build())))
    try:
        watch = [sys.executable, "-m", "bench.native_calls.agent", str(run_dir), str(AGENT_S)]
        done = subprocess.run(watch, capture_output=True, text=True, check=True)
    finally:
        for process in ranks:
            process.wait()
    figures = json.loads(done.stdout)
    case = f"agent, {RANKS} ranks x {CALLS_PER_S} calls/s"
    return [
        {"case": case, "figure": "CPU", "value": figures["cpu_share"] * 100, "unit": "% of a core"},
        {"case": case, "figure": "memory", "value": figures["memory_bytes"] / 1e6, "unit": "MB"},
        {"case": case, "figure": "calls sent", "value": figures["calls_per_s"], "unit": "calls/s"},
    ]
