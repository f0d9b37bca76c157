"""Operations of sampled training steps, for what-if: computes of micro-batches, sends and receives, the optimizer.

A script stays as it is. Where it has a pipeline schedule of `torch.distributed.pipelining`, its stages say which
micro-batch they compute, and its schedule which tensors it sends: both are wrapped. Where it has none, each backward
pass is seen at `torch.autograd.backward`, and what lies between two of them (or before the first one) counts as
forward: data loading is in it. Collectives are seen as calls already (`torch_c10d`), and joined to these operations
by the streams.

FSDP2 (`fully_shard`) gathers parameters and scatters gradients within the passes: what a pass is held up by that is
recorded with the pass's micro-batch, for the streams to take it out again. FSDP1 and FSDP within a pipeline are not
recorded.

On a CPU times are those of the host's clock, on a GPU those of events of CUDA, told some steps later (`cuda_times`);
which it is, the parameters of the optimizer say. A step with a backward pass that its schedule splits in two (zero
bubble) is not recorded.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pacehound.instrument.cuda_times import MOST_EVENTS, CudaClock, clock_of
from pacehound.instrument.iteration_ends import IterationEnds
from pacehound.instrument.recorded_steps import (
    BACKWARD,
    BACKWARD_RECV,
    BACKWARD_SEND,
    FORWARD,
    FORWARD_RECV,
    FORWARD_SEND,
    GRADS_SCATTER,
    OPTIMIZER,
    PARAMS_GATHER,
    Op,
    RecordedStep,
    why_no_clock,
)
from pacehound.instrument.recorder import Recorder
from pacehound.instrument.step_times import HostTimes, StepTimes
from pacehound.instrument.torch_marks import place_of

MOST_WAITING = 4
"""Recorded steps that the device has not ended; while there are so many, no other step is recorded."""
SELDOM_NS = 8_000_000_000
"""Stretches of steps whose beginnings lie closer are more than anybody looks at: to tell of them, to price and to store
them took 1.3 % of a processor where steps take 10 ms (docs/adr/0035-a-quiet-job-says-less.md)."""
_LOOKS_AT_A_STEP = 512  # at instants of a step that waits, at each hook of an optimizer

_left_to_the_parent: list[Any] = []  # a child that let go of events of CUDA would destroy them


class StepOperations:
    """Records one in so many steps of this process.

    Parameters
    ----------
    every
        One step in so many is recorded.
    in_a_row
        So many of them at a time, and never the first so many of a process, which set things up.
    device_clock
        Gives the clock of a CUDA device.
    is_asked
        Somebody wants it: steps on a GPU are recorded too, what cannot be is noted, and short steps are recorded as
        often as long ones. Errors of ours are noted in any case.
    now_ns
        A clock that goes on evenly.

    """

    def __init__(
        self,
        recorder: Recorder,
        every: int,
        device_clock: Callable[[Any], CudaClock] = clock_of,
        *,
        in_a_row: int = 1,
        is_asked: bool = True,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._recorder = recorder
        self._now_ns = now_ns
        self._every = every
        self._in_a_row = in_a_row
        self._is_asked = is_asked
        self._device_clock = device_clock
        self._clock: CudaClock | None = None
        self._waiting: deque[RecordedStep] = deque()
        self._noted: set[str] = set()
        self._is_in_due_stretch = False
        self._due_ns: int | None = None  # when a stretch was due last, whether it was recorded or not
        self._iterations = IterationEnds()
        self._is_refused = False
        self._thread = 0
        self._is_recording = False
        self._has_pipeline = False
        self._micro_batches = 0
        self._is_backward = False
        self._times: StepTimes = HostTimes()
        self._after = 0
        self._ops: list[Op] = []
        self._places: dict[int, tuple[int, int, int]] = {}
        self._asked: dict[int, tuple[Op, Any]] = {}
        self._awaited: dict[int, list[Op]] = {}

    # What is wrapped.

    def optimizers(self, module: Any) -> None:
        """Of `torch.optim.optimizer`: they end steps."""
        module.register_optimizer_step_pre_hook(self._before_optimizer)
        module.register_optimizer_step_post_hook(self._after_optimizer)

    def autograd(self, module: Any) -> None:
        """Of `torch.autograd`: backward passes of scripts without a pipeline."""
        module.backward = self._seeing(module.backward, self._backward)

    def stages(self, module: Any) -> None:
        """Of `torch.distributed.pipelining.stage`: computes, and which tensors are whose."""
        stage = module._PipelineStageBase
        stage.forward_one_chunk = self._seeing(stage.forward_one_chunk, self._stage_forward)
        stage.backward_one_chunk = self._seeing(stage.backward_one_chunk, self._stage_backward)
        for name, optype in (
            ("get_fwd_recv_ops", FORWARD_RECV),
            ("get_fwd_send_ops", FORWARD_SEND),
            ("get_bwd_recv_ops", BACKWARD_RECV),
            ("get_bwd_send_ops", BACKWARD_SEND),
        ):
            setattr(stage, name, self._seeing(getattr(stage, name), functools.partial(self._transfers, optype)))

    def schedules(self, module: Any) -> None:
        """Of `torch.distributed.pipelining.schedules`: when tensors are sent, and waited for."""
        module._batch_p2p = self._seeing(module._batch_p2p, self._launch)
        module._wait_batch_p2p = self._seeing(module._wait_batch_p2p, self._wait)
        schedule = module._PipelineSchedule
        schedule._maybe_compute_loss = self._seeing(schedule._maybe_compute_loss, self._loss)

    def sharding(self, module: Any) -> None:
        """Of `torch.distributed.fsdp._fully_shard._fsdp_param_group`: what holds a pass up."""
        group = module.FSDPParamGroup
        for name, optype in (
            ("unshard", PARAMS_GATHER),
            ("wait_for_unshard", PARAMS_GATHER),
            ("post_backward", GRADS_SCATTER),
        ):
            sync = functools.partial(self._sync, optype)
            setattr(group, name, self._seeing(getattr(group, name), sync, in_backward=True))

    def sharding_ends(self, module: Any) -> None:
        """Of `torch.distributed.fsdp._fully_shard._fsdp_state`: on a device, it is only there that a pass waits."""
        state = module.FSDPState
        ends = functools.partial(self._sync_of_device, GRADS_SCATTER)
        state._end_backward_iteration = self._seeing(state._end_backward_iteration, ends, in_backward=True)

    def flat_sharding(self, module: Any) -> None:
        """Of `torch.distributed.fsdp._runtime_utils`, which is FSDP1."""
        module._pre_forward = self._seeing(module._pre_forward, self._flat)

    def after_fork(self) -> None:
        """In a forked child: the steps are the parent's, and so are the events of its device."""
        _left_to_the_parent.append((self._clock, self._times, tuple(self._waiting)))
        self._clock = None
        self._waiting.clear()
        self._forget()

    def leave(self) -> None:
        """The process ends: what its device has not done by now is not told."""
        if self._recorder.is_on:
            self._tell(MOST_EVENTS)
        if self._waiting:
            self._note_once("the last step recorded for what-if is not told: the process ended before its device did")
        self._waiting.clear()

    def _seeing(self, function: Any, ours: Any, *, in_backward: bool = False) -> Any:
        """`function`, handed to `ours` in steps that are recorded. What fails in `ours` must not fail in the script.

        With `in_backward`, also on the thread that autograd has for a device, while this one waits for it.
        """

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_ours = threading.get_ident() == self._thread or (in_backward and self._is_backward)
            if not self._is_recording or not is_ours or not self._recorder.is_on:
                return function(*args, **kwargs)
            return ours(function, *args, **kwargs)

        return call

    # Computes.

    def _stage_forward(self, function: Any, stage: Any, micro_batch: int, *args: Any, **kwargs: Any) -> Any:
        op = self._begin(FORWARD, stage, micro_batch) if stage.has_backward else None
        result = function(stage, micro_batch, *args, **kwargs)
        self._end(op)
        return result

    def _stage_backward(self, function: Any, stage: Any, micro_batch: int, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("full_backward", True):
            self._refuse("the pipeline's schedule splits its backward passes; what-if has no model of that")
            return function(stage, micro_batch, *args, **kwargs)
        op = self._begin(BACKWARD, stage, micro_batch)
        self._has_pipeline = True
        result = function(stage, micro_batch, *args, **kwargs)
        self._end(op)
        return result

    def _loss(self, function: Any, schedule: Any, stage: Any, *args: Any, **kwargs: Any) -> Any:
        """The loss is part of the last stage's forward pass: what makes that stage the slow one, often."""
        result = function(schedule, stage, *args, **kwargs)
        if stage.is_last and self._ops and self._ops[-1].optype == FORWARD:
            self._end(self._ops[-1])
        return result

    def _backward(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """A backward pass outside of any pipeline, and the forward pass before it."""
        if self._has_pipeline:  # it is a stage's, and seen there
            return function(*args, **kwargs)
        place = (0, 0, self._recorder.rank)
        forward = Op(FORWARD, place, self._micro_batches, self._after)
        self._end(forward)
        backward = Op(BACKWARD, place, self._micro_batches, forward.end)
        self._ops += [forward, backward]
        self._micro_batches += 1
        self._is_backward = True
        result = function(*args, **kwargs)
        self._is_backward = False
        self._end(backward)
        self._after = backward.end
        return result

    def _begin(self, optype: int, stage: Any, micro_batch: int) -> Op | None:
        try:
            op = Op(optype, self._place(stage), micro_batch, self._times.now())
        except Exception as error:
            self._fail("an operation", error)
            return None
        self._ops.append(op)
        return op

    def _end(self, op: Op | None) -> None:
        if op is not None:
            op.end = self._times.now()

    def _place(self, stage: Any) -> tuple[int, int, int]:
        place = self._places.get(id(stage))
        if place is None:
            place = self._places[id(stage)] = place_of(stage)
        return place

    # Parameters and gradients in shards.

    def _sync(self, optype: int, function: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
        micro_batch = self._micro_batches - 1 if self._is_backward else self._micro_batches
        op = Op(optype, (0, 0, self._recorder.rank), micro_batch, self._times.now())
        result = function(group, *args, **kwargs)
        self._end(op)
        self._ops.append(op)
        return result

    def _sync_of_device(self, optype: int, function: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._times.is_device:
            return function(state, *args, **kwargs)
        return self._sync(optype, function, state, *args, **kwargs)

    def _flat(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        self._refuse("FSDP1 gathers parameters within its passes, which is seen of FSDP2 (fully_shard) alone")
        return function(*args, **kwargs)

    # Sends and receives.

    def _transfers(self, optype: int, function: Any, stage: Any, micro_batch: int) -> Any:
        """The schedule asks a stage what to send or to receive for a micro-batch: soon it will."""
        p2p_ops = function(stage, micro_batch)
        try:
            if p2p_ops:
                op = Op(optype, self._place(stage), micro_batch, 0)
                for one in p2p_ops:
                    self._asked[id(one)] = op, one  # kept alive, or its id would be somebody else's
        except Exception as error:
            self._fail("a transfer", error)
        return p2p_ops

    def _launch(self, function: Any, p2p_ops: list[Any], *args: Any, **kwargs: Any) -> Any:
        if len({id(one.group) for one in p2p_ops}) != 1:
            return function(p2p_ops, *args, **kwargs)  # none, or it calls itself with one group at a time
        now = self._times.now()
        works = function(p2p_ops, *args, **kwargs)
        try:
            if why := self._times.cannot_see(p2p_ops[0]):
                self._refuse(why)
                return works
            is_each = len(works) == len(p2p_ops)  # else they were coalesced into one
            for at, one in enumerate(p2p_ops):
                op = self._asked.pop(id(one), (None, None))[0]
                if op is None:
                    continue
                if not op.start:
                    op.start = now
                    self._ops.append(op)
                op.n_open += 1
                self._awaited.setdefault(id(works[at if is_each else 0]), []).append(op)
        except Exception as error:
            self._fail("a launch", error)
        return works

    def _wait(self, function: Any, works: list[Any]) -> Any:
        for work in works:
            function([work])
            for op in self._awaited.pop(id(work), ()):
                op.n_open -= 1
                op.end = self._times.transferred(work, op.optype)

    # Steps.

    def _before_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._waiting and self._recorder.is_on:
            self._tell()
        if not (self._is_recording and self._recorder.is_on):
            return
        try:
            last = next((op for op in reversed(self._ops) if op.optype == BACKWARD), None)
            if last is not None and self._iterations.leads(optimizer):
                place = (last.stage, last.chunk, last.pipeline)
                self._ops.append(Op(OPTIMIZER, place, -1, self._times.now()))
        except Exception as error:
            self._fail("the beginning of an optimizer's step", error)

    def _after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self._recorder.is_on:
            return
        try:
            going_on = self._iterations.count
            ended = self._iterations.number(optimizer)
            if ended is None:
                return
            if self._is_recording and ended == going_on:  # and not several, when another optimizer takes the lead
                if self._ops:
                    self._end(self._ops[-1])
                self._close(ended)
            self._tell()
            self._forget()
            if not self._is_refused and self._is_due():
                self._begin_step(optimizer)
        except Exception as error:
            self._fail("the end of a step", error)

    def _is_due(self) -> bool:
        """Whether the next step is to be recorded: one stretch of steps in `every`, of short ones one in 2, 4, … times
        as many.

        Each rank sees for itself how long steps take. Ranks that see it differently still share every stretch of
        whoever records fewest, and a stretch that not all have recorded is none for the streams.
        """
        stretch, at = divmod(self._iterations.count, self._in_a_row)
        if self._due_ns is None:
            self._due_ns = self._now_ns()
        if at == 0:
            due, left = divmod(stretch, self._every)
            self._is_in_due_stretch = left == 0 and due % self._one_in() == 0
        return self._is_in_due_stretch

    def _one_in(self) -> int:
        """Of the stretches that are due; asked at the beginning of each."""
        before_ns, self._due_ns = self._due_ns or 0, self._now_ns()
        one_in = 1
        while not self._is_asked and one_in * max(self._due_ns - before_ns, 1) < SELDOM_NS:
            one_in *= 2
        return one_in

    def _begin_step(self, optimizer: Any) -> None:
        devices = {p.device for group in optimizer.param_groups for p in group["params"][:1]}
        if why := why_no_clock(devices):
            self._refuse(why)
            return
        if len(self._waiting) >= MOST_WAITING:
            self._note_once(f"a step was not recorded for what-if: its device has yet to end {MOST_WAITING} others")
            return
        (device,) = devices
        if device.type != "cpu":
            if not self._is_asked:  # events of CUDA in somebody's stream, which no GPU has been seen to bear yet
                self._refuse("the parameters are on a GPU, where steps are recorded for who asks for it")
                return
            if self._clock is None:
                self._clock = self._device_clock(device)
                atexit.register(self.leave)  # the last step is told then, before the rings are closed
            if (current := self._clock.cuda.current_device()) != device.index:
                self._refuse(f"the parameters are on {device}, and the current device is {current}")
                return
            self._times = self._clock.begin(self._fail)
        self._thread = threading.get_ident()
        self._is_recording = True
        self._after = self._times.now()

    def _close(self, number: int) -> None:
        """The step of this number is over for the host."""
        if self._is_refused:  # by an error in its last event
            return
        if self._has_pipeline and any(op.optype in (PARAMS_GATHER, GRADS_SCATTER) for op in self._ops):
            self._refuse("FSDP within a pipeline holds up its passes; what-if has no model of that")
            return
        self._waiting.append(RecordedStep(number, self._ops, self._times))

    def _tell(self, at_most: int = _LOOKS_AT_A_STEP) -> None:
        """Write the steps that are over for the device as well, in order."""
        try:
            while self._waiting:
                step = self._waiting[0]
                if not step.times.look(at_most) or self._is_refused:  # by an error in that look
                    return
                self._waiting.popleft()
                if not step.times.spoilt:
                    step.write(self._recorder)
                elif step.ops:
                    self._note_once(f"a step was not recorded for what-if: {step.times.spoilt}")
        except Exception as error:
            self._fail("the telling of a step", error)

    def _forget(self) -> None:
        self._is_recording = False
        self._has_pipeline = False
        self._micro_batches = 0
        self._is_backward = False
        self._times = HostTimes()
        self._after = 0
        self._ops = []
        self._places = {}
        self._asked = {}
        self._awaited = {}

    def _refuse(self, why: str, *, is_ours: bool = False) -> None:
        """Record nothing any more, and say why; the calls are seen all the same."""
        self._forget()
        self._waiting.clear()
        self._is_refused = True
        if self._is_asked or is_ours:
            self._recorder.note(f"no operations for what-if: {why}")

    def _note_once(self, what: str) -> None:
        if self._is_asked and what not in self._noted:
            self._noted.add(what)
            self._recorder.note(what)

    def _fail(self, where: str, error: BaseException) -> None:
        self._refuse(f"error of ours in {where}: {type(error).__name__}: {error}", is_ours=True)
