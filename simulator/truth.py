"""What a perfect observer would find in a job: from its faults and from what they did to its iterations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pacehound.model.events import Cause, Instant
from simulator.faults import (
    DeadDevice,
    EveryNth,
    ExitRank,
    ExpectedFinding,
    Fault,
    HiddenLateness,
    Pause,
    RandomPauses,
    SilentHost,
    SlowCompute,
    SlowLink,
    StopRank,
    StuckRanks,
    SymmetricHang,
    Truth,
    WrongCall,
)
from simulator.observed import Observed
from simulator.spec import JobSpec, ends_job
from simulator.timing import Timeline

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def iteration_times(timeline: Timeline) -> FloatArray:
    """Seconds between the ends of neighbouring iterations, over all ranks; incomplete ones are left out."""
    ends = timeline.step_end_s.max(axis=1)
    times: FloatArray = np.diff(ends[np.isfinite(ends)], prepend=0.0)
    return times


def truth_of(spec: JobSpec, timeline: Timeline, observed: Observed) -> Truth:
    """The findings that the faults of a job deserve; a single spike deserves none."""
    times = iteration_times(timeline)
    affected = {fault: _affected_steps(fault, len(times)) for fault in spec.faults}
    is_quiet = np.ones(len(times), bool)
    for steps in affected.values():
        is_quiet[steps] = False
    quiet_s = float(times[is_quiet].mean()) if is_quiet.any() else float("nan")
    findings = []
    for fault, steps in affected.items():
        found = _expected(spec, timeline, observed, fault)
        if found is None:
            continue
        if len(steps) and found.kind not in ("hang", "exit"):
            found = replace(found, magnitude=float(times[steps].mean()) / quiet_s - 1.0)
        if len(steps):
            found = replace(found, excess_s=float((times[steps] - quiet_s).sum()))
        findings.append(found)
    return Truth(findings=tuple(sorted(findings, key=lambda f: f.onset.time_ns)))


def _affected_steps(fault: Fault, n_steps: int) -> Int64Array:
    """Completed steps whose time a fault changed."""
    steps: Int64Array = np.arange(n_steps)
    match fault:
        case SlowCompute() | SlowLink():
            to_step = n_steps if fault.to_step is None else fault.to_step
            is_affected = (steps >= fault.from_step) & (steps < to_step)
        case RandomPauses():
            is_affected = steps >= fault.from_step
        case HiddenLateness():
            is_affected = np.zeros(n_steps, bool)
        case EveryNth():
            is_affected = (steps + 1) % fault.every_steps == 0
        case Pause():  # it lies between the end of one step and the end of the next
            is_affected = (steps > 0) & (steps % fault.every_steps == 0)
        case _:
            is_affected = steps == fault.step
    return steps[is_affected]


def _expected(spec: JobSpec, timeline: Timeline, observed: Observed, fault: Fault) -> ExpectedFinding | None:
    n_begun = len(timeline.begin_s)
    world = range(spec.layout.world_size)

    def others(ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(rank for rank in world if rank not in ranks)

    def at(step: int, time_s: float | None = None) -> Instant:
        begin_s = float(timeline.begin_s[step].min()) if time_s is None else time_s
        return Instant(step=step, time_ns=spec.start_unix_ns + round(begin_s * 1e9))

    def until(step: int | None) -> Instant | None:
        return at(step) if step is not None and step < n_begun else None

    match fault:
        case SlowCompute() if fault.from_step < n_begun:
            return ExpectedFinding(
                kind="slow",
                cause="S1",
                culprits=fault.ranks,
                victims=others(fault.ranks),
                onset=at(fault.from_step),
                relief=until(fault.to_step),
            )
        case SlowLink() if fault.from_step < n_begun:
            is_down = ends_job(fault)
            return ExpectedFinding(
                kind="hang" if is_down else "slow",
                cause="H3" if is_down else "S2",
                links=(fault.link,),
                victims=tuple(world),
                onset=at(fault.from_step, observed.finish_s - spec.hang_s if is_down else None),
                relief=until(fault.to_step),
            )
        case StopRank() | ExitRank():
            changes = [c for c in observed.changes if c.rank == fault.rank and c.state in ("stopped", "exited")]
            resumed = [c for c in observed.changes if c.rank == fault.rank and c.state == "running"]
            if fault.step >= n_begun:
                return None
            is_stop = isinstance(fault, StopRank)
            return ExpectedFinding(
                kind="hang" if is_stop else "exit",
                cause="H1" if is_stop else None,
                culprits=(fault.rank,),
                victims=others((fault.rank,)),
                onset=at(fault.step, changes[0].time_s),
                relief=at(fault.step, resumed[0].time_s) if resumed else None,
            )
        case RandomPauses() if fault.from_step < n_begun:
            return ExpectedFinding(kind="slow", cause=None, onset=at(fault.from_step))
        case StuckRanks() | SilentHost() | WrongCall() | DeadDevice() | SymmetricHang() if observed.was_killed:
            culprits = _guilty(spec, fault)
            return ExpectedFinding(
                kind="hang",
                cause=_CAUSES[type(fault)],
                culprits=culprits,
                victims=others(culprits) if culprits else tuple(world),
                onset=at(fault.step, observed.finish_s - spec.hang_s),
            )
        case Pause() if timeline.pauses:
            first = next(p for p in timeline.pauses if p.kind == fault.kind)
            return ExpectedFinding(
                kind="planned",
                cause=None,
                onset=at(first.after_step + 1, float(first.begin_s.min())),
                pages=False,
            )
        case EveryNth() if fault.every_steps <= n_begun:
            return ExpectedFinding(
                kind="intermittent",
                cause=None,
                culprits=fault.ranks,
                victims=others(fault.ranks) if fault.ranks else (),
                onset=at(fault.every_steps - 1),
                pages=False,
            )
        case _:
            return None


_CAUSES: dict[type[Fault], Cause] = {
    StuckRanks: "H1",
    SilentHost: "H1",
    WrongCall: "H2",
    DeadDevice: "H3",
    SymmetricHang: "H3",
}


def _guilty(spec: JobSpec, fault: Fault) -> tuple[int, ...]:
    match fault:
        case StuckRanks():
            return tuple(sorted(fault.ranks))
        case SilentHost():
            return spec.hosts[fault.host]
        case WrongCall() | DeadDevice():
            return (fault.rank,)
        case _:
            return ()
