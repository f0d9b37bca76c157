"""What the hosts see of a timeline: launches of a host that runs ahead, process states, and when each row is final."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pacehound.model.events import RunState
from simulator.faults import ExitRank, SilentHost, StuckRanks, WrongCall
from simulator.program import Slot
from simulator.source import HOST_OVERHEAD_S, launch_times
from simulator.spec import JobSpec
from simulator.stuck_step import slot_of
from simulator.timing import Hold, Timeline

FloatArray = npt.NDArray[np.float64]

SIGKILL = 9
_PEER_EXIT_SPREAD_S = 0.02  # peers of a rank that left notice it this far apart


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A process that enters a state."""

    time_s: float
    rank: int
    state: RunState
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The calls of a job as its hosts see them, in seconds of true time since its start."""

    # per stage, shape `(n_steps, n_slots, dp, tp)`; infinite where it never happened
    launch_s: list[FloatArray]
    start_s: list[FloatArray]
    end_s: list[FloatArray]
    # when a rank's open calls are given up, shape `(world_size,)`: at its exit, or when the job is killed
    given_up_s: FloatArray
    finish_s: float  # when the job ended, or was killed
    stuck_s: float  # when a hang began that nobody got out of; infinite where there was none
    silent_s: FloatArray  # when each host's agent fell silent, shape `(n_hosts,)`; infinite where it never did
    was_killed: bool  # the job did not come to its end
    changes: tuple[StateChange, ...]  # states of processes, in order of time, besides `running` at the start


def observe(spec: JobSpec, timeline: Timeline) -> Observed:
    """Pass the truth through the model of the source."""
    held = _held_until(timeline, spec)
    launch, start, end = [], [], []
    for stage, program in enumerate(timeline.programs):
        arrival, ends = timeline.arrival_s[stage], timeline.end_s[stage]
        shape = (len(arrival), spec.layout.pp, spec.layout.dp, spec.layout.tp)
        begin = timeline.begin_s.reshape(shape)[:, stage]
        launches = [
            launch_times(spec.source, arrival[step], ends[step], begin[step], held.get((stage, step)))
            for step in range(len(arrival))
        ]
        launch.append(np.stack(launches))
        start.append(_starts(arrival, ends, program.slots))
        end.append(ends.copy())
    for fault in spec.faults:
        if isinstance(fault, WrongCall) and fault.what in ("skip", "order") and fault.step < len(timeline.begin_s):
            _launch_in_own_order(spec, timeline, fault, launch)
    holds = [_as_host_sees(spec, hold, launch) for hold in timeline.holds]
    finish_s, was_killed = _finish(spec, timeline, holds)
    given_up = np.full(spec.layout.world_size, finish_s)
    changes = []
    busy = {
        rank
        for fault in spec.faults
        if isinstance(fault, StuckRanks) and fault.doing != "stopped"
        for rank in fault.ranks
    }
    busy |= {rank for f in spec.faults if isinstance(f, SilentHost) and f.is_gone for rank in spec.hosts[f.host]}
    for hold in holds:
        if hold.rank in busy:
            continue  # its process runs, or nobody is there to say that it does not
        exited = next((f for f in spec.faults if isinstance(f, ExitRank) and f.rank == hold.rank), None)
        if exited is not None and np.isinf(hold.until_s):
            given_up[hold.rank] = hold.from_s
            changes.append(
                StateChange(
                    time_s=hold.from_s,
                    rank=hold.rank,
                    state="exited",
                    exit_code=exited.exit_code,
                    signal=exited.signal,
                )
            )
            if exited.peers_fail_after_s is not None:
                peers = [rank for rank in range(spec.layout.world_size) if rank != hold.rank]
                for order, rank in enumerate(peers):
                    given_up[rank] = hold.from_s + exited.peers_fail_after_s + order * _PEER_EXIT_SPREAD_S
                    changes.append(
                        StateChange(
                            time_s=float(given_up[rank]),
                            rank=rank,
                            state="exited",
                            exit_code=1,
                            detail=f"RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.{hold.rank}]:29500",
                        )
                    )
                finish_s = float(given_up.max()) + _PEER_EXIT_SPREAD_S
            continue
        changes.append(StateChange(time_s=hold.from_s, rank=hold.rank, state="stopped"))
        if np.isfinite(hold.until_s):
            changes.append(StateChange(time_s=hold.until_s, rank=hold.rank, state="running"))
    for rank in np.flatnonzero(given_up >= finish_s).tolist():
        code, signal = (None, SIGKILL) if was_killed else (0, None)
        changes.append(StateChange(time_s=finish_s, rank=rank, state="exited", exit_code=code, signal=signal))
    given_up_grid = given_up.reshape(spec.layout.pp, spec.layout.dp, spec.layout.tp)
    for stage, ends in enumerate(end):
        # Nobody sees how a call ends whose rank is gone.
        ends[np.isfinite(ends) & (ends > given_up_grid[stage])] = np.inf
    return Observed(
        launch_s=launch,
        start_s=start,
        end_s=end,
        given_up_s=given_up,
        finish_s=finish_s,
        stuck_s=finish_s - spec.hang_s if was_killed else np.inf,
        silent_s=_silences(spec, timeline),
        was_killed=was_killed,
        changes=tuple(sorted(changes, key=lambda c: (c.time_s, c.rank))),
    )


def _starts(arrival: FloatArray, end: FloatArray, slots: list[Slot]) -> FloatArray:
    """A call starts when its rank is ready and the one before it on the same channel has ended."""
    start = arrival.copy()
    previous: dict[tuple[str, int], int] = {}
    for index, slot in enumerate(slots):
        if slot.op == "send" or slot.kind == "dp":  # nobody waits for these, so that they may queue up
            channel = (slot.kind, slot.peer_offset)
            if channel in previous:
                start[:, index] = np.maximum(arrival[:, index], end[:, previous[channel]])
            previous[channel] = index
    return start


def _launch_in_own_order(spec: JobSpec, timeline: Timeline, fault: WrongCall, launch: list[FloatArray]) -> None:
    """A rank that leaves out a call, or makes its last two in the other order, launches the others as ever."""
    tp_index, dp_index, stage = spec.layout.position(fault.rank)
    program = timeline.programs[stage]
    wrong = slot_of(program, fault.kind, fault.nth)
    order = np.arange(len(program.slots))
    if fault.what == "skip":
        order = np.delete(order, wrong)
        launch[stage][fault.step, wrong, dp_index, tp_index] = np.inf
    else:
        order[[wrong, -1]] = order[[-1, wrong]]
    arrival = timeline.arrival_s[stage][fault.step, order, dp_index, tp_index]
    ends = timeline.end_s[stage][fault.step, order, dp_index, tp_index]
    begin = timeline.begin_s[fault.step, fault.rank]
    launch[stage][fault.step, order, dp_index, tp_index] = launch_times(spec.source, arrival, ends, begin, None)


def _silences(spec: JobSpec, timeline: Timeline) -> FloatArray:
    silent_s = np.full(len(spec.hosts), np.inf)
    for fault in spec.faults:
        if isinstance(fault, SilentHost) and fault.step < len(timeline.begin_s):
            silent_s[fault.host] = timeline.begin_s[fault.step, list(spec.hosts[fault.host])].min()
    return silent_s


def _held_until(timeline: Timeline, spec: JobSpec) -> dict[tuple[int, int], FloatArray]:
    """For each (stage, step) with a stopped process: the earliest launch of its calls."""
    held: dict[tuple[int, int], FloatArray] = {}
    for hold in timeline.holds:
        tp_index, dp_index, stage = spec.layout.position(hold.rank)
        earliest = held.setdefault((stage, hold.step), np.full(timeline.arrival_s[stage].shape[1:], -np.inf))
        column = earliest[hold.slot :, dp_index, tp_index]
        np.maximum(column, hold.until_s, out=column)
    return held


def _as_host_sees(spec: JobSpec, hold: Hold, launch: list[FloatArray]) -> Hold:
    """A host that runs ahead was stopped before its device came to a stand."""
    if spec.source.run_ahead_calls == 0 or hold.slot == 0:
        return hold
    tp_index, dp_index, stage = spec.layout.position(hold.rank)
    before_s = float(launch[stage][hold.step, hold.slot - 1, dp_index, tp_index])
    return replace(hold, from_s=min(hold.from_s, before_s + HOST_OVERHEAD_S / 2))


def _finish(spec: JobSpec, timeline: Timeline, holds: list[Hold]) -> tuple[float, bool]:
    if np.isfinite(timeline.step_end_s).all():
        last = [float(timeline.step_end_s[-1].max())] + [float(p.end_s.max()) for p in timeline.pauses]
        return max(last), False
    endless = [hold.from_s for hold in holds if np.isinf(hold.until_s)]
    # A dead link stops nobody by itself: the hang begins when the first call cannot end.
    onset_s = min(endless) if endless else _first_stuck(timeline)
    return onset_s + spec.hang_s, True


def _first_stuck(timeline: Timeline) -> float:
    stuck = [
        float(arrival[-1][np.isfinite(arrival[-1]) & np.isinf(end[-1])].min(initial=np.inf))
        for arrival, end in zip(timeline.arrival_s, timeline.end_s, strict=True)
    ]
    return min(stuck)
