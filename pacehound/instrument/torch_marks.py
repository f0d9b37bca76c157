"""Names the micro-batches of a pipeline in the traces that the script's own torch.profiler takes.

A trace says when kernels and operators ran, not which micro-batch they worked on. While the profiler records, each
forward and backward pass of a stage and each of its transfers stands in the trace as a range of its own, as
`pacehound whatif` reads them: `pacehound:forward-compute stage=0 chunk=0 mb=3 pipeline=0`. A transfer's range goes
from its launch to when somebody has waited for it. Nothing is done while no profiler runs.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any

PREFIX = "pacehound:"


def place_of(stage: Any) -> tuple[int, int, int]:
    """Stage, model chunk, and the lowest rank of the pipeline, by which pipelines are told from each other."""
    import torch.distributed as dist

    ranks = dist.get_process_group_ranks(stage.group or dist.group.WORLD)
    return stage.group_rank, stage.stage_index, min(ranks)


class ProfilerMarks:
    """Wraps what runs and sends micro-batches. An error of ours ends the marks, never the script's step."""

    def __init__(self) -> None:
        self._is_on = True
        self._asked: dict[int, tuple[str, Any]] = {}
        self._awaited: dict[int, list[_Transfer]] = {}

    def stages(self, module: Any) -> None:
        """Of `torch.distributed.pipelining.stage`: computes, and which tensors are whose."""
        stage = module._PipelineStageBase
        for name, optype in (("forward_one_chunk", "forward-compute"), ("backward_one_chunk", "backward-compute")):
            setattr(stage, name, self._seeing(getattr(stage, name), functools.partial(self._compute, optype)))
        for name, optype in (
            ("get_fwd_recv_ops", "forward-recv"),
            ("get_fwd_send_ops", "forward-send"),
            ("get_bwd_recv_ops", "backward-recv"),
            ("get_bwd_send_ops", "backward-send"),
        ):
            setattr(stage, name, self._seeing(getattr(stage, name), functools.partial(self._transfers, optype)))

    def schedules(self, module: Any) -> None:
        """Of `torch.distributed.pipelining.schedules`: the loss, and when tensors are sent and waited for."""
        module._batch_p2p = self._seeing(module._batch_p2p, self._launch)
        module._wait_batch_p2p = self._seeing(module._wait_batch_p2p, self._wait)
        schedule = module._PipelineSchedule
        schedule._maybe_compute_loss = self._seeing(schedule._maybe_compute_loss, self._loss)

    def _seeing(self, function: Any, ours: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not (self._is_on and (_is_profiling() or self._awaited)):
                return function(*args, **kwargs)
            return ours(function, *args, **kwargs)

        return call

    def _compute(self, optype: str, function: Any, stage: Any, micro_batch: int, *args: Any, **kwargs: Any) -> Any:
        is_split = not kwargs.get("full_backward", True)
        mark = self._begin("backward-input" if is_split else optype, stage, micro_batch)
        try:
            return function(stage, micro_batch, *args, **kwargs)
        finally:
            _end(mark)

    def _loss(self, function: Any, schedule: Any, stage: Any, output: Any, targets: Any, mb: int, *rest: Any) -> Any:
        """The loss is part of the last stage's forward pass: a second range of the same name."""
        mark = self._begin("forward-compute", stage, mb) if stage.is_last else None
        try:
            return function(schedule, stage, output, targets, mb, *rest)
        finally:
            _end(mark)

    def _transfers(self, optype: str, function: Any, stage: Any, micro_batch: int) -> Any:
        """The schedule asks a stage what to send or to receive for a micro-batch: soon it will."""
        p2p_ops = function(stage, micro_batch)
        try:
            for one in p2p_ops:
                self._asked[id(one)] = _name(optype, stage, micro_batch), one  # kept, or its id would be another's
        except Exception:
            self._stop()
        return p2p_ops

    def _launch(self, function: Any, p2p_ops: list[Any], *args: Any, **kwargs: Any) -> Any:
        if len({id(one.group) for one in p2p_ops}) != 1:
            return function(p2p_ops, *args, **kwargs)  # none, or it calls itself with one group at a time
        marks: dict[str, _Transfer] = {}
        names = []
        try:
            for one in p2p_ops:
                names.append(self._asked.pop(id(one), ("", None))[0])
                if names[-1] and names[-1] not in marks:
                    marks[names[-1]] = _Transfer(names[-1])
        except Exception:
            self._stop()
        works = function(p2p_ops, *args, **kwargs)
        try:
            is_each = len(works) == len(names)  # else they were coalesced into one
            for at, name in enumerate(names):
                if name in marks and works:
                    marks[name].n_open += 1
                    self._awaited.setdefault(id(works[at if is_each else 0]), []).append(marks[name])
        except Exception:
            self._stop()
        return works

    def _wait(self, function: Any, works: list[Any]) -> Any:
        for work in works:
            function([work])
            for mark in self._awaited.pop(id(work), ()):
                mark.has_come()
        if not _is_profiling():
            self._asked.clear()

    def _begin(self, optype: str, stage: Any, micro_batch: int) -> Any:
        try:
            return _begun(_name(optype, stage, micro_batch))
        except Exception:
            self._stop()
            return None

    def _stop(self) -> None:
        self._is_on = False
        self._asked.clear()
        self._awaited.clear()


class _Transfer:
    """A range that is open until all of its tensors have come."""

    __slots__ = ("_mark", "n_open")

    def __init__(self, name: str) -> None:
        self._mark = _begun(name)
        self.n_open = 0

    def has_come(self) -> None:
        self.n_open -= 1
        if not self.n_open:
            _end(self._mark)


def _is_profiling() -> bool:
    return bool(getattr(sys.modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False))


def _name(optype: str, stage: Any, micro_batch: int) -> str:
    at, chunk, pipeline = place_of(stage)
    return f"{PREFIX}{optype} stage={at} chunk={chunk} mb={micro_batch} pipeline={pipeline}"


def _begun(name: str) -> Any:
    from torch.autograd.profiler import record_function

    mark = record_function(name)
    mark.__enter__()
    return mark


def _end(mark: Any) -> None:
    if mark is not None:
        with contextlib.suppress(Exception):  # a profiler that is gone has taken the range with it
            mark.__exit__(None, None, None)
