"""Markers of a training loop: optimizer steps, checkpoints, evaluation phases."""

from __future__ import annotations

import functools
import io
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from pacehound.instrument import layout
from pacehound.instrument.iteration_ends import IterationEnds
from pacehound.instrument.recorder import Recorder
from pacehound.trainer import own
from pacehound.trainer.connecting import connected
from pacehound.trainer.control import Control

_NO_HANDLE = bytes(16)


def _connected() -> Control:
    return connected(os.environ)


class Markers:
    """Writes the markers of this process.

    `step` counts the iterations that have ended before the marker. `settle` writes the ends of calls that are over when
    a step is.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._ends = IterationEnds()
        self._evaluating = False
        self._is_saving = False
        self.settle: Callable[[int], None] = lambda now_ns: None

    def optimizer_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Torch's global hook after each step of any optimizer."""
        if not self._recorder.is_on:
            return
        now_ns = time.monotonic_ns()
        try:
            self.evaluation(begins=False)
            self.settle(now_ns)
            step = self._ends.number(optimizer)
            if step is not None:
                self._write(now_ns, layout.OPTIMIZER_STEP, step)
                own.at_step(step + 1, _connected)
        except Exception as error:
            self._recorder.fail("the optimizer's hook", error)

    def saving(self, function: Any) -> Any:
        """`function` with a marker before and after it.

        Only on the main thread (a checkpoint written in the background is no pause), only the outermost (a
        distributed checkpoint saves its parts with torch.save), and not into memory.
        """

        @functools.wraps(function)
        def save(*args: Any, **kwargs: Any) -> Any:
            if (
                not self._recorder.is_on
                or self._is_saving
                or threading.get_ident() != threading.main_thread().ident
                or any(isinstance(value, io.BytesIO) for value in (*args[1:2], kwargs.get("f")))
            ):
                return function(*args, **kwargs)
            self._is_saving = True
            self._mark(layout.CHECKPOINT_BEGIN)
            try:
                return function(*args, **kwargs)
            finally:
                self._is_saving = False
                self._mark(layout.CHECKPOINT_END)

        return save

    def evaluation(self, *, begins: bool) -> None:
        """An evaluation phase begins, or ends; the next optimizer step ends it at the latest."""
        if self._evaluating != begins:
            self._evaluating = begins
            self._mark(layout.EVALUATION_BEGIN if begins else layout.EVALUATION_END)

    def switching(self, train: Any) -> Any:
        """`DistributedDataParallel.train` with markers.

        Only of the data-parallel wrapper: it is the top of a model, where `eval()` of any other module may be for
        good (a frozen teacher). Only after a first step, so that building a model is no evaluation.
        """

        @functools.wraps(train)
        def switch(module: Any, mode: bool = True) -> Any:
            result = train(module, mode)
            if self._recorder.is_on and self._ends.count:
                self.evaluation(begins=not mode)
            return result

        return switch

    def _mark(self, marker: int) -> None:
        if not self._recorder.is_on:
            return
        try:
            self._write(time.monotonic_ns(), marker, self._ends.count)
        except Exception as error:
            self._recorder.fail("a marker", error)

    def _write(self, now_ns: int, marker: int, step: int) -> None:
        self._recorder.write(layout.MARKER_RECORD, layout.MARKER, _NO_HANDLE, now_ns, step, marker, 0)
