"""Logs with a running training clock (modded-nanogpt): `step:K/N … train_time:Tms`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from collector.importers.step_logs.lines import label
from collector.importers.step_logs.rows import Rows, SkippedLines, by_rank
from pacehound.model.step_log import StepLog

_STEP = re.compile(r"\bstep:(\d+)(?:/\d+)?\s")
_CLOCK = re.compile(r"\btrain_time:([-+]?\d+\.?\d*(?:e[-+]?\d+)?)(ms|s)(?=\s|$)", re.IGNORECASE)
_SECONDS = {"ms": 1e-3, "s": 1.0}


@dataclass(slots=True)
class _Series:
    rows: Rows = field(default_factory=Rows)
    reading: tuple[int, float] | None = None  # the clock at the first line of the latest step


class TrainTimeReader:
    r"""Takes the lines of a log, keeps the differences of its clock.

    A step is often told twice, the second time after an evaluation. What the clock gains between the two is the end
    of the step's own work on the device, for which the evaluation has to wait; the difference between the first lines
    of two steps is the time of a step. Where the clock is set back (after a warm-up, or a restart), the time of the
    step in which that happened is not known and the step is left out.

    Examples
    --------
    >>> reader = TrainTimeReader()
    >>> for number, total_ms in enumerate((0, 250, 500)):
    ...     reader.take(number, f"step:{number}/9 train_time:{total_ms}ms step_avg:1.0ms\n")
    >>> log, = reader.logs("run.txt")
    >>> log.step.tolist(), log.step_time_s.tolist()
    ([1, 2], [0.25, 0.25])
    """

    format = "train_time"
    about = "modded-nanogpt (step:K/N … train_time:Tms)"

    def __init__(self) -> None:
        self._series: dict[int | None, _Series] = {}
        self._skipped = SkippedLines()
        self.is_recognised = False

    def take(self, number: int, line: str) -> None:
        """Look at the next line."""
        if "train_time:" not in line or "step:" not in line:
            return
        step_match, clock = _STEP.search(line), _CLOCK.search(line)
        if step_match is None or clock is None:
            if self.is_recognised:  # before that it is as likely the script itself, which such logs begin with
                self._skipped.count("a step could not be read", number)
            return
        self.is_recognised = True
        series = self._series.setdefault(label(line), _Series())
        step, total_s = int(step_match[1]), float(clock[1]) * _SECONDS[clock[2].lower()]
        before = series.reading
        if before is not None and step == before[0]:
            return
        series.reading = (step, total_s)
        if before is None or step < before[0]:
            return
        if total_s < before[1]:
            self._skipped.count("the clock was set back, so that the time of a step is not known; left out", number)
            return
        n_steps = step - before[0]
        try:
            series.rows.add(step, (total_s - before[1]) / n_steps, n_steps=n_steps)
        except ValueError:
            self._skipped.count("a step could not be read", number)

    def logs(self, path: str) -> list[StepLog]:
        """One log, or one per rank where several have written."""
        notes = self._skipped.notes()
        series = by_rank({rank: series.rows for rank, series in self._series.items()})
        return [rows.log(path, self.format, rank=rank, notes=notes) for rank, rows in series]

    def refusal(self) -> str:
        """Why there is no step time in what was recognised."""
        return "a log with a training clock of which fewer than two steps are told"
