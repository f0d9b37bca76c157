"""What is measured, stage by stage; each says what it saw, and whether that is as it should be, and ends no other."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.on_gpu.rig import Rig, Watched
from collector.calls.frames import FrameReader, UnreadableFrame
from pacehound.instrument import profiler

STEPS, REPEATS = 150, 2
PROFILE_S = 10
RECORDED_EVERY, PRICED_S = 4, 20
SLOW_RANK, SLOW_FROM, STUCK_AT = 2, 300, 150
KERNELS = {profiler.KERNELS: "1"}
"""Kernel events also from versions of which a report says that they cost."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that was looked at; `is_right` is empty where there is nothing that it should be."""

    what: str
    value: str
    is_right: bool | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Part of the measurement.

    Attributes
    ----------
    budget_s
        What it takes, about.
    needs_nccl
        It cannot be rehearsed on the CPU.

    """

    name: str
    does: str
    budget_s: int
    act: Callable[[Rig], Iterator[Seen]]
    needs_nccl: bool = False


def _cost(rig: Rig) -> Iterator[Seen]:
    cases: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {"hooks": ((), {})}
    if rig.backend == "nccl":
        cases |= {
            "hooks, shim": (("shim",), {}),
            "hooks, plugin": (("profiler",), {}),
            "hooks, plugin with kernel events": (("profiler",), KERNELS),
            "hooks, shim, plugin": (("shim", "profiler"), {}),
        }
    steps_s: dict[str, list[float]] = {"nothing": [], **{name: [] for name in cases}}
    for _ in range(REPEATS):
        steps_s["nothing"].append(rig.step_s(STEPS, is_watched=False))
        for name, (routes, env) in cases.items():
            steps_s[name].append(rig.step_s(STEPS, *routes, env=env))
    bare_s = statistics.mean(steps_s["nothing"])
    for name, times_s in steps_s.items():
        each = ", ".join(f"{time_s * 1e3:.3f}" for time_s in times_s)
        yield Seen(f"step with {name}", f"{statistics.mean(times_s) / bare_s - 1:+.2%} (ms: {each})")


def _live(rig: Rig) -> Iterator[Seen]:
    """Hooks alone: what they see without the shim."""
    job = rig.watched()
    gpus = job.value("SELECT count() FROM host_vitals WHERE kind = 'gpu' AND notEmpty(ranks)") if _on_gpu(rig) else 0
    if _on_gpu(rig):
        yield Seen("NVML: readings of a GPU with its ranks", f"{gpus:.0f}", gpus > 0)
    yield from _tried("timed on demand", _timed(job, "c10d"))
    yield from _tried("held (trap)", _held(job))
    yield from _tried("measured beside the held ranks", _measured(job, rig))
    yield from _counted(job, "c10d")


def _shim(rig: Rig) -> Iterator[Seen]:
    job = rig.watched("shim", "profiler")
    yield from _tried("timed on demand", _timed(job, "shim"))
    yield from _counted(job, "shim")
    launches = job.value("SELECT count() FROM calls WHERE source IN ('profiler', 'profiler_launches')")
    yield Seen("calls that the plugin told of beside the shim", f"{launches:.0f}", launches == 0)


def _plugin(rig: Rig) -> Iterator[Seen]:
    job = rig.watched("profiler", env=KERNELS)
    frames = list(Path("/dev/shm").glob("pacehound*/*/frames/*.frame"))
    kept = 0
    for _ in range(200):
        kept += sum(map(_has_blocks, frames))
        time.sleep(0.005)
    yield Seen(
        "probing frames", f"{len(frames)} files; a running call in {kept} of {200 * len(frames)} looks", kept > 0
    )
    yield from _counted(job, "profiler")
    ends = "countIf(end_ns > start_ns AND start_ns > 0) / count()"
    ended = job.value(f"SELECT {ends} FROM calls WHERE source = 'profiler'")
    yield Seen("calls with start and end by kernel events", f"{ended:.1%}", ended > 0.9)
    counts = job.value("SELECT countIf(send_count > 0) / count() FROM calls WHERE source = 'profiler'")
    yield Seen("calls with transfers of the network proxy (none are expected on one host)", f"{counts:.1%}")


def _slow(rig: Rig) -> Iterator[Seen]:
    routes = ("shim",) if _on_gpu(rig) else ()
    job = rig.watched(*routes, arguments=("--slow-rank", SLOW_RANK, "--slow-from", SLOW_FROM))
    if _on_gpu(rig):
        job.command("profile", "--for", "60s")
    named, words, _ = _named(job, rig, 60)
    job.end()
    is_right = named == [SLOW_RANK] if _on_gpu(rig) else None  # on the CPU the ranks take each other's processors
    yield Seen(f"ranks named where rank {SLOW_RANK} multiplies five times as often", f"{named} ({words})", is_right)


def _price(rig: Rig) -> Iterator[Seen]:
    """What the slow rank of a model under DDP costs, by the times of the device."""
    own = () if _on_gpu(rig) else ("--batch", 8)
    arguments = ("--slow-rank", SLOW_RANK, *own)
    job = rig.model(RECORDED_EVERY, *(("profiler",) if _on_gpu(rig) else ()), arguments=arguments, env=KERNELS)
    time.sleep(PRICED_S)
    recorded = job.value("SELECT count() FROM operations")
    yield Seen("operations recorded", f"{recorded:.0f}", recorded > 0)
    try:
        answer = json.loads(job.command("whatif", "--json"))
    finally:
        job.stop.touch()
        job.run.wait(60)
    workers = {one["rank"]: one["slowdown"] for one in answer["workers"]}
    yield Seen("how many times longer its steps are than without stragglers", f"{answer['blocking_slowdown']:.3f}")
    # On the CPU the ranks take each other's processors.
    is_named = max(workers, key=workers.__getitem__) == SLOW_RANK if _on_gpu(rig) else None
    yield Seen("and with each rank's operations alone as they are", json.dumps(workers), is_named)
    away = answer["discrepancy"]
    is_trusted = away["trusted"] if _on_gpu(rig) else None
    yield Seen("the simulation differs from what was recorded by", f"{away['value']:.1%}", is_trusted)


def _hang(rig: Rig) -> Iterator[Seen]:
    """A rank that calls nothing any more, and one whose device is what stands still."""
    cases: list[tuple[str, tuple[str, ...]]] = [("host", ())]
    if _on_gpu(rig):
        cases += [("device", ("shim",)), ("device", ("profiler",))]
    for where, routes in cases:
        yield from _tried(f"stuck on the {where}", _stuck(rig, where, routes))
        rig.stop_all()


def _stuck(rig: Rig, where: str, routes: tuple[str, ...]) -> Iterator[Seen]:
    job = rig.watched(*routes, arguments=("--stuck-rank", SLOW_RANK, "--stuck-at", STUCK_AT, "--stuck-on", where))
    named, words, after_s = _named(job, rig, 45)
    what = f"ranks named where rank {SLOW_RANK} is stuck on the {where}, with {' and '.join(('hooks', *routes))}"
    yield Seen(what, f"{named} after {after_s:.0f} s ({words})", named == [SLOW_RANK])


def _named(job: Watched, rig: Rig, within_s: float) -> tuple[list[int], str, float]:
    """Who is named within this time, in which words, and after how long."""
    began_s = time.monotonic()
    deadline_s = began_s + min(within_s, rig.left_s() - 20)
    told: list[dict[str, Any]] = []
    while time.monotonic() < deadline_s and not any(finding["culprits"] for finding in told):
        time.sleep(2)
        told = [finding for incident in job.run.incidents() for finding in incident["findings"]]
    named = sorted({rank for finding in told for rank in finding["culprits"]})
    words = "; ".join(f"{finding['kind']}, {finding['verdict']}, {finding['cause']}" for finding in told)
    return named, words, time.monotonic() - began_s


def _tried(what: str, part: Iterator[Seen]) -> Iterator[Seen]:
    """A part whose failure is something seen: the parts after it are looked at all the same."""
    try:
        yield from part
    except Exception as error:
        yield Seen(what, f"failed: {type(error).__name__}: {str(error)[-300:]}", is_right=False)


def _timed(job: Watched, source: str) -> Iterator[Seen]:
    job.command("profile", "--for", f"{PROFILE_S}s")
    time.sleep(PROFILE_S + 5)
    where = f"FROM calls WHERE source = '{source}' AND end_ns > 0 AND start_ns > 0"
    timed = job.value(f"SELECT count() {where}")
    yield Seen(f"calls timed on demand ({source})", f"{timed:.0f}", timed > 0)
    if timed:
        took_ms = job.value(f"SELECT median(end_ns - start_ns) / 1e6 {where}")
        yield Seen(f"their median duration ({source})", f"{took_ms:.3f} ms", took_ms > 0)
        early = job.value(f"SELECT countIf(start_ns < launch_ns OR end_ns < start_ns) {where}")
        yield Seen(f"of these, with times that cannot be ({source})", f"{early:.0f}", early == 0)


def _held(job: Watched) -> Iterator[Seen]:
    said = job.command("pause", "--for", "3s")
    yield Seen("trap: what `pacehound pause` said", " ".join(said.split())[:200])
    before = job.value("SELECT max(step) FROM iterations")
    time.sleep(5)
    after = job.value("SELECT max(step) FROM iterations")
    yield Seen("steps in the five seconds after it", f"{after - before:.0f}", after > before)


def _measured(job: Watched, rig: Rig) -> Iterator[Seen]:
    answer = json.loads(job.command("validate", "--json", timeout_s=min(180.0, max(rig.left_s(), 30.0))))
    for name in sorted({one["test"] for one in answer["ranks"]}):
        of_test = [one for one in answer["ranks"] if one["test"] == name]
        values = ", ".join(f"{one['value']:.4g}" for one in of_test)
        yield Seen(f"GEMM and memory beside the held ranks: {name}", f"{values} {of_test[0]['unit']}")
    yield Seen("the ranks were held for", f"{answer['held_s']:.1f} s", answer["held_s"] < 30)


def _counted(job: Watched, source: str) -> Iterator[Seen]:
    """As many calls as the script has made, on each rank, none twice."""
    made = job.end()
    where = f"FROM calls WHERE source = '{source}' AND op = 'all_reduce'"
    rows = job.rows(
        f"SELECT rank, count() AS n, uniqExact(communicator, seq) AS once {where} GROUP BY rank ORDER BY rank"
    )
    seen = [int(row["n"]) for row in rows]
    is_right = seen == [made["calls"]] * made["ranks"] and all(row["n"] == row["once"] for row in rows)
    yield Seen(f"calls seen per rank, of {made['calls']} made ({source})", ", ".join(map(str, seen)), is_right)


def _has_blocks(path: Path) -> bool:
    try:
        reader = FrameReader(path)
        try:
            look = reader.look()
            return bool(look and look.running)
        finally:
            reader.close()
    except (OSError, UnreadableFrame):
        return False


def _on_gpu(rig: Rig) -> bool:
    return rig.backend == "nccl"


STAGES = (
    Stage("hooks", "torch's hooks alone: calls counted, timed on demand, held (trap), NVML, GEMM beside the held ranks",
          80, _live),
    Stage("shim", "shim and plugin at once: calls counted once, timed on demand by events", 50, _shim, needs_nccl=True),
    Stage("plugin", "the plugin with kernel events: probing frame, starts and ends", 40, _plugin, needs_nccl=True),
    Stage("slow rank", f"rank {SLOW_RANK} multiplies five times as often: who is named, by device times", 70, _slow),
    Stage("hang", f"rank {SLOW_RANK} goes no further, on the host and on the device: who is named", 120, _hang),
    Stage("price", f"a model under DDP, rank {SLOW_RANK} with three times the batch: what it costs", 50, _price),
    Stage("cost", f"a step with each of them against none, {REPEATS} times in turn", 190, _cost),
)  # fmt: skip
