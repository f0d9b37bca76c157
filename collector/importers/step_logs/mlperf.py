"""MLPerf training logs: `:::MLLOG` and a JSON object per line."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collector.importers.step_logs.lines import label
from collector.importers.step_logs.rows import (
    UNKNOWN,
    Rows,
    SkippedLines,
    by_rank,
    finite_median,
    most_common_difference,
)
from pacehound.model.step_log import FloatArray, Int64Array, StepLog

_MARK = ":::MLLOG"
_WORK = {"global_batch_size": "global_batch_size", "max_sequence_length": "sequence_length"}
_DECODER = json.JSONDecoder()
_MIN_OVERLAP = 0.01  # of a row's time; less is the rounding of its milliseconds


@dataclass(slots=True)
class _Stats:
    """The `tracked_stats` of one kind: those with the same fields."""

    first_line: int
    step: array[float] = field(default_factory=lambda: array("d"))
    time_ms: array[float] = field(default_factory=lambda: array("d"))
    value_s: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class _RankStats:
    """What one rank has written."""

    kinds: dict[tuple[str, ...], _Stats] = field(default_factory=dict)
    stepless: int = 0


class MlperfReader:
    """Takes the lines of a log, keeps its `tracked_stats`.

    v5.x: `train_step_time` is the time of a step in seconds. Summaries of a block carry that field too, among other
    fields; of all kinds of rows (the same fields are a kind) the most numerous is the one that tells the steps. The
    step field may count samples: then it grows by the global batch at each row while the clock grows by one step
    time, and it is divided.

    MaskRCNN: `time` is a running average since the start, so that differences of `time_ms` over differences of the
    step are used; the first row is the average itself.

    Rows are put in order of `time_ms` where the file does not have the steps in order. A row in whose time an
    evaluation was running says so (`planned`).

    Examples
    --------
    >>> reader = MlperfReader()
    >>> for step in (1, 2):
    ...     stats = {"time_ms": 1000 * step, "key": "tracked_stats", "value": {"train_step_time": 1.0}}
    ...     reader.take(step, ":::MLLOG " + json.dumps(stats | {"metadata": {"step": step}}))
    >>> log, = reader.logs("result_0.txt")
    >>> log.step.tolist(), log.step_time_s.tolist(), log.time_ns.tolist()
    ([1, 2], [1.0, 1.0], [1000000000, 2000000000])
    """

    format = "mlperf"
    about = "MLPerf (:::MLLOG)"

    def __init__(self) -> None:
        self._told: dict[int | None, _RankStats] = {}
        self._evaluations: list[list[float]] = []
        self._work: dict[str, list[tuple[float, float]]] = {}
        self._skipped = SkippedLines()
        self.is_recognised = False

    def take(self, number: int, line: str) -> None:
        """Look at the next line."""
        at = line.find(_MARK)
        if at < 0:
            return
        text = line[at + len(_MARK) :].lstrip()
        self.is_recognised |= text.startswith("{")
        if not self.is_recognised:
            return
        try:
            event, _ = _DECODER.raw_decode(text)
            key, time_ms, value = event["key"], float(event["time_ms"]), event["value"]
            metadata = event.get("metadata") or {}
            if not -9e12 < time_ms < 9e12:
                raise ValueError(f"time_ms is {time_ms}")
            if key == "tracked_stats":
                self._take_stats(number, label(line[:at] + _MARK), time_ms, value, metadata)
            elif key in _WORK:
                self._work.setdefault(_WORK[key], []).append((time_ms, float(value)))
            elif key == "eval_start":
                self._evaluations.append([time_ms, math.nan])
            elif key == "eval_stop":
                self._end_evaluation(time_ms)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            self._skipped.count("an event could not be read", number)

    def _take_stats(
        self, number: int, rank: int | None, time_ms: float, value: dict[str, Any], metadata: dict[str, Any]
    ) -> None:
        names = tuple(sorted(value))
        which = "train_step_time" if "train_step_time" in value else "time" if "time" in value else ""
        if not which:
            return
        told = self._told.setdefault(rank, _RankStats())
        if "step" not in metadata:
            told.stepless += 1
            return
        step, value_s = float(metadata["step"]), float(value[which])
        if not abs(step) < 2**53:
            raise ValueError(f"step is {step}")
        stats = told.kinds.setdefault((which, *names), _Stats(first_line=number))
        stats.step.append(step)
        stats.time_ms.append(time_ms)
        stats.value_s.append(value_s)

    def _end_evaluation(self, time_ms: float) -> None:
        for evaluation in self._evaluations:
            if math.isnan(evaluation[1]):
                evaluation[1] = time_ms
                return

    def logs(self, path: str) -> list[StepLog]:
        """One log, or one per rank where several have written."""
        notes: dict[int | None, tuple[str, ...]] = {}
        series: dict[int | None, Rows] = {}
        for rank, told in self._told.items():
            if told.kinds:
                series[rank], notes[rank] = self._rows(told)
        found = by_rank(series)
        if len(found) == 1:
            notes[None] = next(notes[rank] for rank, rows in series.items() if len(rows))
        return [
            rows.log(path, self.format, rank=rank, notes=(*self._skipped.notes(), *notes[rank])) for rank, rows in found
        ]

    def _rows(self, told: _RankStats) -> tuple[Rows, tuple[str, ...]]:
        kind, stats = max(told.kinds.items(), key=lambda item: (len(item[1].step), -item[1].first_line))
        step, time_ms, value_s = (np.array(c, np.float64) for c in (stats.step, stats.time_ms, stats.value_s))
        notes = []
        if (np.diff(step) <= 0).any():
            order = np.argsort(time_ms, kind="stable")
            step, time_ms, value_s = step[order], time_ms[order], value_s[order]
            notes.append("its rows are not in order of their steps; they were put in order of their times")
        others = told.stepless + sum(len(s.step) for k, s in told.kinds.items() if k != kind)
        if others:
            rows = "1 row that sums" if others == 1 else f"{others} rows that sum"
            notes.append(f"{rows} up a block of steps or an evaluation left out")
        steps = step.astype(np.int64)
        if kind[0] == "time":
            columns = _from_running_average(steps, time_ms, value_s)
        else:
            divisor = _samples_per_step(steps, time_ms, value_s)
            columns = (steps // divisor, time_ms, value_s, np.full(len(steps), UNKNOWN))
            if divisor > 1:
                notes.append(f"its step field counts samples; {divisor} of them are one step")
        return self._as_rows(*columns), tuple(notes)

    def _as_rows(self, step: Int64Array, time_ms: FloatArray, step_time_s: FloatArray, n_steps: Int64Array) -> Rows:
        work = {name: _in_force(sorted(said), time_ms) for name, said in self._work.items()}
        planned = self._planned(time_ms, step_time_s * np.maximum(n_steps, 1) * 1e3)
        rows = Rows()
        for i in range(len(step)):
            rows.add(
                int(step[i]),
                float(step_time_s[i]),
                time_ns=round(time_ms[i] * 1e3) * 1000,
                n_steps=int(n_steps[i]),
                work={name: float(column[i]) for name, column in work.items()},
                planned="evaluation" if planned[i] else "",
            )
        return rows

    def _planned(self, end_ms: FloatArray, span_ms: FloatArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether an evaluation ran within the `span_ms` before `end_ms`, shape `(n,)`."""
        planned = np.zeros(len(end_ms), bool)
        span_ms = np.nan_to_num(np.maximum(span_ms, 0.0), nan=0.0, posinf=0.0)
        for start_ms, stop_ms in self._evaluations:
            overlap_ms = np.minimum(end_ms, stop_ms) - np.maximum(end_ms - span_ms, start_ms)
            planned |= overlap_ms > _MIN_OVERLAP * span_ms  # false where the evaluation has no end
        return planned

    def refusal(self) -> str:
        """Why there is no step time in what was recognised."""
        return "an MLPerf log without step times: no tracked_stats with a step and train_step_time or time"


def _from_running_average(
    step: Int64Array, time_ms: FloatArray, average_s: FloatArray
) -> tuple[Int64Array, FloatArray, FloatArray, Int64Array]:
    """Steps, times, seconds per step and steps covered, from averages since the start."""
    is_new = np.append(True, step[1:] > np.maximum.accumulate(step)[:-1])
    step, time_ms, average_s = step[is_new], time_ms[is_new], average_s[is_new]
    n_steps = np.diff(step)
    step_time_s = np.diff(time_ms) / 1e3 / n_steps
    if len(step) > 1 and step[0] == most_common_difference(step):
        # The average since the start is that of the first row's steps, and tells what no difference can.
        return step, time_ms, np.append(average_s[0], step_time_s), np.append(step[0], n_steps)
    return step[1:], time_ms[1:], step_time_s, n_steps


def _samples_per_step(step: Int64Array, time_ms: FloatArray, step_time_s: FloatArray) -> int:
    """How much the step field grows in a step: 1, or the global batch where it counts samples.

    A row every N steps and a row that counts N samples look alike; the time between two rows tells them apart.

    >>> times_ms = np.arange(4.0) * 500
    >>> _samples_per_step(np.arange(4) * 64, times_ms, np.full(4, 0.5))
    64
    >>> _samples_per_step(np.arange(4) * 64, times_ms * 64, np.full(4, 0.5))
    1
    """
    if len(step) < 2 or (distance := most_common_difference(step)) <= 1:
        return 1
    between_s = finite_median(np.diff(time_ms)) / 1e3
    return distance if between_s < finite_median(step_time_s) * math.sqrt(distance) else 1


def _in_force(said: list[tuple[float, float]], time_ms: FloatArray) -> FloatArray:
    """The last value that was said by each time, shape `(n,)`; NaN before the first."""
    at = np.searchsorted([when for when, _ in said], time_ms, side="right")
    return np.array([math.nan, *(value for _, value in said)])[at]
