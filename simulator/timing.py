"""When every call of a simulated job happens: each waits for its peers, so that one rank's delay reaches others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.faults import (
    EveryNth,
    ExitRank,
    HiddenLateness,
    Pause,
    RandomPauses,
    SilentHost,
    SlowCompute,
    SlowLink,
    Spike,
    StopRank,
    StuckRanks,
)
from simulator.links import TransferTimes, transfer_times
from simulator.load import expert_load, length_of_step, rank_pace, sequence_load
from simulator.program import Action, Slot, StageProgram, Step, build
from simulator.spec import JobSpec
from simulator.stuck_step import LastStep, Play

FloatArray = npt.NDArray[np.float64]

_END_SPREAD_S = 2e-6  # ranks of one collective notice its end this far apart
_TRANSFER_JITTER = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A process that is stopped, or gone, in the middle of a computation.

    `slot` is the first call behind it; `until_s` is infinite where it never goes on.
    """

    rank: int
    step: int
    slot: int
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPause:
    """One checkpoint or evaluation: when each rank began and ended it; shapes `(world_size,)`."""

    kind: str
    after_step: int
    begin_s: FloatArray
    end_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The truth about a job, in seconds since its start; what never happened is infinite."""

    programs: list[StageProgram]
    # per stage, shape `(n_steps, n_slots, dp, tp)`: when a rank was ready for a call, and when the call ended
    arrival_s: list[FloatArray]
    end_s: list[FloatArray]
    # shape `(n_steps, world_size)`: when a rank began an iteration, and when its optimizer step was done
    begin_s: FloatArray
    step_end_s: FloatArray
    load: FloatArray  # what the experts of each rank had to do, 1 on average; shape `(n_steps, world_size)`
    pauses: list[PlannedPause]
    holds: list[Hold]


def run(spec: JobSpec) -> Timeline:
    """Execute the program of a job, iteration by iteration, until its end or until nobody goes on."""
    layout = spec.layout
    rng = np.random.default_rng(spec.seed)
    programs, steps = build(layout, spec.work)
    grid = (layout.dp, layout.tp)
    arrival = [np.full((spec.iterations, len(p.slots), *grid), np.inf) for p in programs]
    end = [np.full((spec.iterations, len(p.slots), *grid), np.inf) for p in programs]
    begin = np.full((spec.iterations, layout.world_size), np.inf)
    step_end = np.full((spec.iterations, layout.world_size), np.inf)
    load = expert_load(spec)
    pace = rank_pace(spec)
    pauses: list[PlannedPause] = []
    holds: list[tuple[StopRank | ExitRank, int]] = []
    stuck: list[Hold] = []
    now = np.zeros((layout.pp, *grid))
    links: dict[frozenset[SlowLink], TransferTimes] = {}
    n_steps = 0
    for step in range(spec.iterations):
        slow_links = frozenset(f for f in spec.faults if isinstance(f, SlowLink) and is_active(f, step))
        if slow_links not in links:
            links[slow_links] = transfer_times(
                layout,
                spec.network,
                [(f.link, f.bandwidth_factor) for f in sorted(slow_links, key=lambda f: f.link)],
                ep=spec.ep,
                is_tree=spec.algorithm == "tree",
            )
        begin[step] = now.ravel()
        for rank in _never_begin(spec, step):
            stuck.append(Hold(rank=rank, step=step, slot=0, from_s=float(begin[step, rank]), until_s=np.inf))
            tp_index, dp_index, stage = layout.position(rank)
            now[stage, dp_index, tp_index] = np.inf
        step_load = load[step].reshape(layout.pp, *grid)
        compute = _computations(spec, programs, step, step_load, pace[step].reshape(layout.pp, *grid), rng, holds)
        iteration = _Iteration(spec, programs, links[slow_links], rng, now, step_load)
        last = next((f for f in spec.faults if isinstance(f, LastStep) and f.step == step), None)
        iteration.run(steps, compute, [a[step] for a in arrival], [e[step] for e in end], last)
        now = iteration.now
        n_steps += 1
        if not np.isfinite(now).all():
            break
        now = now + spec.optimizer_s * _jitter(rng, spec.jitter, now.shape)
        step_end[step] = now.ravel()
        for fault in spec.faults:
            if isinstance(fault, Pause) and (step + 1) % fault.every_steps == 0:
                until = now + fault.duration_s * _jitter(rng, spec.jitter, now.shape)
                pauses.append(PlannedPause(kind=fault.kind, after_step=step, begin_s=now.ravel(), end_s=until.ravel()))
                now = until
    timeline = Timeline(
        programs=programs,
        arrival_s=[a[:n_steps] for a in arrival],
        end_s=[e[:n_steps] for e in end],
        begin_s=begin[:n_steps],
        step_end_s=step_end[:n_steps],
        load=load[:n_steps],
        pauses=pauses,
        holds=stuck,
    )
    timeline.holds.extend(_hold(spec, timeline, fault, index) for fault, index in holds)
    return timeline


class _Iteration:
    """One pass over the program; `now` is when each rank is ready to go on, shape `(pp, dp, tp)`."""

    def __init__(
        self,
        spec: JobSpec,
        programs: list[StageProgram],
        transfers: TransferTimes,
        rng: np.random.Generator,
        now: FloatArray,
        load: FloatArray,
    ) -> None:
        self._spec = spec
        self._programs = programs
        self._transfers = transfers
        self._rng = rng
        self._load = load
        self.now = now

    def run(
        self,
        steps: list[Step],
        compute: list[FloatArray],
        arrival: list[FloatArray],
        end: list[FloatArray],
        last: LastStep | None,
    ) -> None:
        """Fill `arrival` and `end`, per stage of shape `(n_slots, dp, tp)`; nobody gets beyond a step of `last`."""
        layout, rng = self._spec.layout, self._rng
        noise = [_jitter(rng, _TRANSFER_JITTER, (len(p.slots), layout.dp, 1)) for p in self._programs]
        spread = [rng.random(a.shape) * _END_SPREAD_S for a in arrival]
        if last is None:
            self._run_together(steps, compute, arrival, end, noise, spread)
            return
        transfer_s = [self._transfer_s(stage, noise[stage]) for stage in range(layout.pp)]
        Play(self._spec, self._programs, steps, last, self.now, compute, transfer_s, arrival, end).run()
        self.now = np.full_like(self.now, np.inf)

    def _transfer_s(self, stage: int, noise: FloatArray) -> FloatArray:
        """How long each call of a stage takes from its last arrival on, shape `(n_slots, dp, tp)`."""
        layout, transfers = self._spec.layout, self._transfers
        transfer_s = np.zeros((len(noise), layout.dp, layout.tp))
        for index, slot in enumerate(self._programs[stage].slots):
            if slot.kind == "tp":
                transfer_s[index] = transfers.ring_s(slot.op, slot.size_bytes, layout.tp, transfers.tp[stage])[:, None]
            elif slot.kind == "dp":
                transfer_s[index] = self._gradients_s(slot, stage)
            elif slot.kind == "ep":
                transfer_s[index] = self._tokens_s(stage)
            elif slot.kind == "pp":
                peer = stage + slot.peer_offset
                transfer_s[index] = slot.size_bytes * transfers.forward[min(stage, peer)] + transfers.latency_s
            else:
                transfer_s[index] = transfers.ring_s(slot.op, slot.size_bytes, layout.world_size, transfers.world)
        return transfer_s * noise

    def _gradients_s(self, slot: Slot, stage: int) -> FloatArray:
        dp, transfers = self._spec.layout.dp, self._transfers
        if self._spec.algorithm == "tree" and slot.op == "all_reduce":
            return transfers.tree_s(slot.size_bytes, dp, transfers.dp[stage])
        return transfers.ring_s(slot.op, slot.size_bytes, dp, transfers.dp[stage])

    def _tokens_s(self, stage: int) -> FloatArray:
        """An exchange of tokens takes as long as its busiest rank; shape `(dp, tp)`."""
        layout, ep = self._spec.layout, self._spec.ep
        busiest = self._load[stage].reshape(layout.dp // ep, ep, layout.tp).max(axis=1)
        took = self._transfers.ring_s("all_to_all", self._spec.ep_bytes, ep, self._transfers.ep[stage]) * busiest
        return np.repeat(took, ep, axis=0)

    def _run_together(
        self,
        steps: list[Step],
        compute: list[FloatArray],
        arrival: list[FloatArray],
        end: list[FloatArray],
        noise: list[FloatArray],
        spread: list[FloatArray],
    ) -> None:
        layout, transfers, rng = self._spec.layout, self._transfers, self._rng
        now = [stage.copy() for stage in self.now]
        pp_s = self._spec.pp_bytes * transfers.forward + transfers.latency_s
        tp_s = transfers.ring_s("all_reduce", self._spec.tp_bytes, layout.tp, transfers.tp)
        tokens_s = [self._tokens_s(stage) for stage in range(layout.pp)] if self._spec.ep > 1 else []
        sent_until = [stage.copy() for stage in now]
        exchanged_until = [np.full_like(stage, -np.inf) for stage in now]
        for step in steps:
            stage, index = step.stage, step.index
            if step.action is Action.COMPUTE:
                now[stage] = now[stage] + compute[stage][index]
                continue
            arrival[stage][index] = now[stage]
            if step.action is Action.TP:
                latest = now[stage].max(axis=1, keepdims=True)
                now[stage] = latest + tp_s[stage][:, None] * noise[stage][index] + spread[stage][index]
                end[stage][index] = now[stage]
            elif step.action is Action.EP:
                latest = _latest_of_experts(now[stage], self._spec.ep)
                now[stage] = latest + tokens_s[stage] * noise[stage][index] + spread[stage][index]
                end[stage][index] = now[stage]
            elif step.action is Action.DP:
                # On a stream of its own: it begins behind the bucket before it, and the rank computes on.
                began = np.maximum(now[stage].max(axis=0), exchanged_until[stage].max(axis=0))
                dp_s = self._gradients_s(self._programs[stage].slots[index], stage)
                ended = began + dp_s * _jitter(rng, _TRANSFER_JITTER, (layout.tp,)) + spread[stage][index]
                end[stage][index] = exchanged_until[stage] = ended
            elif step.action is Action.RECV:
                # A send waits for its receive, but its rank does not wait for the send until the pipeline is flushed.
                both = np.maximum(now[stage], arrival[step.peer][step.peer_slot])
                now[stage] = both + pp_s[min(stage, step.peer)] * noise[stage][index]
                end[stage][index] = now[stage]
                end[step.peer][step.peer_slot] = now[stage]
                sent_until[step.peer] = np.maximum(sent_until[step.peer], now[stage])
        for stage, program in enumerate(self._programs):
            now[stage] = np.maximum(np.maximum(now[stage], sent_until[stage]), exchanged_until[stage])
            for index in program.tail:
                dp_s = self._gradients_s(program.slots[index], stage)
                arrival[stage][index] = now[stage]
                # One factor per group: the groups of a stage lie along the tensor axis here.
                dp_noise = _jitter(rng, _TRANSFER_JITTER, (layout.tp,))
                now[stage] = now[stage].max(axis=0) + dp_s * dp_noise + spread[stage][index]
                end[stage][index] = now[stage]
        world_s = float(transfers.ring_s("all_reduce", 8, layout.world_size, transfers.world))
        done = max(float(stage.max()) for stage in now) + world_s
        for stage, program in enumerate(self._programs):
            last = len(program.slots) - 1
            arrival[stage][last] = now[stage]
            end[stage][last] = done + spread[stage][last]
            now[stage] = end[stage][last]
        self.now = np.stack(now)


def _computations(
    spec: JobSpec,
    programs: list[StageProgram],
    step: int,
    load: FloatArray,
    pace: FloatArray,
    rng: np.random.Generator,
    holds: list[tuple[StopRank | ExitRank, int]],
) -> list[FloatArray]:
    """Duration of every computation of an iteration, per stage of shape `(n_computations, dp, tp)`."""
    layout = spec.layout
    grid = (layout.dp, layout.tp)
    compute = []
    for program in programs:
        nominal = np.array(program.compute_s)[:, None, None]
        compute.append(nominal * _jitter(rng, spec.jitter, (len(program.compute_s), *grid)))
    if spec.ep > 1:
        for index, program in enumerate(programs):
            compute[index][np.array(program.is_expert)] *= load[index]
    for index, work in enumerate(spec.stage_work):
        compute[index] *= work
    if spec.device_spread > 0 or spec.wandering > 0:
        for index in range(layout.pp):
            compute[index] *= pace[index]
    if spec.sequence_spread > 0:
        loads = sequence_load(spec, step)
        for index, program in enumerate(programs):
            compute[index] *= loads[program.micro_batch][:, :, None]
    if spec.step_spread > 0:
        length = length_of_step(spec, step)
        for stage in compute:
            stage *= length
    if spec.spike_probability > 0:
        for stage in compute:
            stage[0] += spec.spike_s * (rng.random(grid) < spec.spike_probability)
    for fault in spec.faults:
        match fault:
            case SlowCompute() if is_active(fault, step):
                for rank in fault.ranks:
                    tp_index, dp_index, pp_index = layout.position(rank)
                    compute[pp_index][:, dp_index, tp_index] *= fault.factor
            case RandomPauses() if fault.from_step <= step:
                for of_stage in compute:
                    of_stage[0] += fault.extra_s * (rng.random(grid) < fault.probability)
            case HiddenLateness() if fault.from_step <= step:
                tp_index, dp_index, pp_index = layout.position(fault.rank)
                own = compute[pp_index][:, dp_index, tp_index]
                moved = fault.share * own[-1]
                own[programs[pp_index].last_backward] += moved
                own[-1] -= moved
            case EveryNth() if (step + 1) % fault.every_steps == 0:
                for rank in fault.ranks or range(layout.world_size):
                    _lose(compute, spec, rank, 0, fault.extra_s)
            case Spike() if fault.step == step:
                for rank in fault.ranks:
                    _lose(compute, spec, rank, 0, fault.extra_s)
            case StopRank() | ExitRank() if fault.step == step:
                middle = len(programs[layout.position(fault.rank)[2]].compute_s) // 2
                resume_after_s = fault.resume_after_s if isinstance(fault, StopRank) else None
                _lose(compute, spec, fault.rank, middle, np.inf if resume_after_s is None else resume_after_s)
                holds.append((fault, middle))
            case _:
                pass
    return compute


def _never_begin(spec: JobSpec, step: int) -> tuple[int, ...]:
    """Ranks that do not begin this step."""
    ranks: set[int] = set()
    for fault in spec.faults:
        if isinstance(fault, StuckRanks) and fault.step == step:
            ranks.update(fault.ranks)
        elif isinstance(fault, SilentHost) and fault.is_gone and fault.step == step:
            ranks.update(spec.hosts[fault.host])
    return tuple(sorted(ranks))


def _latest_of_experts(now: FloatArray, ep: int) -> FloatArray:
    """When the last rank of each rank's group of experts is ready, shape `(dp, tp)`."""
    dp, tp = now.shape
    latest = now.reshape(dp // ep, ep, tp).max(axis=1)
    return np.repeat(latest, ep, axis=0)


def _lose(compute: list[FloatArray], spec: JobSpec, rank: int, index: int, seconds: float) -> None:
    tp_index, dp_index, pp_index = spec.layout.position(rank)
    compute[pp_index][index, dp_index, tp_index] += seconds


def _hold(spec: JobSpec, timeline: Timeline, fault: StopRank | ExitRank, index: int) -> Hold:
    """When a stopped process stood still: from half-way through a computation."""
    tp_index, dp_index, pp_index = spec.layout.position(fault.rank)
    program = timeline.programs[pp_index]
    slot = program.slot_after[index]
    previous = slot - 1
    if previous < 0:
        begin_s = float(timeline.begin_s[fault.step, fault.rank])
    else:
        times = timeline.arrival_s if program.slots[previous].op == "send" else timeline.end_s
        begin_s = float(times[pp_index][fault.step, previous, dp_index, tp_index])
    from_s = begin_s + program.compute_s[index] / 2
    resume_after_s = fault.resume_after_s if isinstance(fault, StopRank) else None
    until_s = np.inf if resume_after_s is None else from_s + resume_after_s
    return Hold(rank=fault.rank, step=fault.step, slot=slot, from_s=from_s, until_s=float(until_s))


def is_active(fault: SlowCompute | SlowLink, step: int) -> bool:
    """Whether a slow rank or link is slow in this step."""
    return fault.from_step <= step and (fault.to_step is None or step < fault.to_step)


def _jitter(rng: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> FloatArray:
    """Factors around 1 that are never negative."""
    return np.exp(deviation * rng.standard_normal(shape))
