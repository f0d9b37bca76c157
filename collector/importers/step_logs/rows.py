"""Rows of one series of step times as they are read, and what was wrong with those left out."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

import numpy as np

from pacehound.model.step_log import FloatArray, Int64Array, StepLog

UNKNOWN = 0
"""For `n_steps`: as many as the rows of this log usually cover."""

_LARGEST = 2**62


class SkippedLines:
    """Counts what could not be used, by reason, and where it was first seen.

    >>> skipped = SkippedLines()
    >>> skipped.count("could not be read", 17), skipped.count("could not be read", 90)
    (None, None)
    >>> skipped.notes()
    ('could not be read: 2 lines (the first is line 17)',)
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[int]] = {}

    def count(self, reason: str, line_number: int) -> None:
        """One more line for this reason."""
        seen = self._seen.setdefault(reason, [0, line_number])
        seen[0] += 1

    def notes(self) -> tuple[str, ...]:
        """One sentence per reason."""
        return tuple(
            f"{reason}: 1 line (line {first})" if n == 1 else f"{reason}: {n} lines (the first is line {first})"
            for reason, (n, first) in self._seen.items()
        )


class Rows:
    """The rows of one series, in the order of the steps.

    A step that was there before is left out: after a restart the steps since the last checkpoint are done again, and
    two ranks may write the same line. The first telling counts, so that a log that is still growing keeps saying the
    same about its beginning.

    >>> rows = Rows()
    >>> for step in (1, 2, 3, 2, 3, 4):
    ...     rows.add(step, 0.5)
    >>> log = rows.log("a.log", "csv", rank=None)
    >>> log.step.tolist(), log.notes
    ([1, 2, 3, 4], ('2 rows repeat steps that the log had told before (the first: step 2 after step 3); left out',))
    """

    def __init__(self) -> None:
        self._step = array("q")
        self._n_steps = array("q")
        self._time_ns = array("q")
        self._step_time_s = array("d")
        self._work: dict[str, array[float]] = {}
        self._planned: dict[int, str] = {}
        self._repeated = 0
        self._first_repeated = (0, 0)

    def __len__(self) -> int:
        return len(self._step)

    def add(
        self,
        step: int,
        step_time_s: float,
        *,
        time_ns: int = 0,
        n_steps: int = UNKNOWN,
        work: Mapping[str, float] | None = None,
        planned: str = "",
    ) -> None:
        """Take one row.

        Raises
        ------
        ValueError
            A number does not fit 64 bits.

        """
        if not -_LARGEST < step < _LARGEST or not -_LARGEST < time_ns < _LARGEST:
            raise ValueError(f"step {step} or time {time_ns} is no number that a log would hold")
        if self._step and step <= self._step[-1]:
            if not self._repeated:
                self._first_repeated = (step, self._step[-1])
            self._repeated += 1
            return
        for name in work or {}:
            if name not in self._work:
                self._work[name] = array("d", [math.nan]) * len(self._step)
        for name, column in self._work.items():
            column.append((work or {}).get(name, math.nan))
        if planned:
            self._planned[len(self._step)] = planned
        self._step.append(step)
        self._n_steps.append(n_steps)
        self._time_ns.append(time_ns)
        self._step_time_s.append(step_time_s)

    def log(self, path: str, format_name: str, *, rank: int | None, notes: tuple[str, ...] = ()) -> StepLog:
        """All of them, as columns."""
        if self._repeated:
            step, after = self._first_repeated
            rows = "1 row repeats a step" if self._repeated == 1 else f"{self._repeated} rows repeat steps"
            notes = (
                *notes,
                f"{rows} that the log had told before (the first: step {step} after step {after}); left out",
            )
        steps = np.array(self._step, np.int64)
        n_steps = np.array(self._n_steps, np.int64)
        return StepLog(
            path=path,
            format=format_name,
            rank=rank,
            step=steps,
            n_steps=np.where(n_steps == UNKNOWN, usual_cover(steps), n_steps),
            time_ns=np.array(self._time_ns, np.int64),
            step_time_s=np.array(self._step_time_s, np.float64),
            work={name: np.array(column, np.float64) for name, column in self._work.items()},
            planned=dict(self._planned),
            notes=notes,
        )


def usual_cover(steps: Int64Array) -> Int64Array:
    """How many steps each row covers where a row is written every so many steps.

    The usual distance of two rows; less where a row follows closer than that (after a restart), never more, for a
    line that is missing does not make the next one cover its steps.

    >>> usual_cover(np.array([50, 100, 150, 250, 270])).tolist()
    [50, 50, 50, 50, 20]
    """
    if len(steps) < 2:
        return np.ones(len(steps), np.int64)
    usual = most_common_difference(steps)
    return np.minimum(np.diff(steps, prepend=steps[0] - usual), usual)


def most_common_difference(steps: Int64Array) -> int:
    """The distance that most neighbours have, the smaller of equals.

    >>> most_common_difference(np.array([0, 64, 128, 256]))
    64
    """
    values, counts = np.unique(np.diff(steps), return_counts=True)
    return int(values[np.argmax(counts)])


def by_rank(series: Mapping[int | None, Rows]) -> list[tuple[int | None, Rows]]:
    """Series that have rows, in order of their ranks; a single one speaks for the whole job.

    >>> rows = Rows()
    >>> rows.add(1, 0.5)
    >>> [rank for rank, _ in by_rank({3: rows, 1: rows})], [rank for rank, _ in by_rank({0: rows, 1: Rows()})]
    ([1, 3], [None])
    """
    told = [(rank, rows) for rank, rows in series.items() if len(rows)]
    if len(told) == 1:
        return [(None, told[0][1])]
    return sorted(told, key=lambda item: -1 if item[0] is None else item[0])


def finite_median(values: FloatArray) -> float:
    """The median of what is finite; NaN of nothing."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else math.nan
