"""nanoGPT and its relatives: `iter K: loss …, time Tms`."""

from __future__ import annotations

import re

from collector.importers.step_logs.lines import label
from collector.importers.step_logs.rows import Rows, SkippedLines, by_rank
from pacehound.model.step_log import StepLog

# A comma or the end of the line has to follow: the number of a line that was cut short would be too small.
_ITERATION = re.compile(r"\biter (\d+): loss [-+\w.]+, time (\d+\.?\d*(?:e[-+]?\d+)?)ms[ \t]*[,\n]", re.IGNORECASE)
_EVALUATION = re.compile(r"\bstep (\d+): train loss ")


class NanogptReader:
    r"""Takes the lines of a log, keeps its iterations.

    A line tells the time of one iteration, also where only every tenth has a line. An evaluation lies within the
    iteration of its number.

    Examples
    --------
    >>> reader = NanogptReader()
    >>> reader.take(1, "iter 20: loss 3.1416, time 250.00ms, mfu 31.20%\n")
    >>> log, = reader.logs("train.log")
    >>> log.step.tolist(), log.step_time_s.tolist(), log.n_steps.tolist()
    ([20], [0.25], [1])
    """

    format = "nanogpt"
    about = "nanoGPT (iter K: loss …, time Tms)"

    def __init__(self) -> None:
        self._series: dict[int | None, Rows] = {}
        self._evaluated: dict[int | None, int] = {}
        self._skipped = SkippedLines()
        self.is_recognised = False

    def take(self, number: int, line: str) -> None:
        """Look at the next line."""
        if "step " in line and (evaluation := _EVALUATION.search(line)) is not None:
            self._evaluated[label(line)] = int(evaluation[1])
            return
        if "iter " not in line or "loss" not in line:
            return
        iteration = _ITERATION.search(line)
        if iteration is None:
            if self.is_recognised:
                self._skipped.count("an iteration could not be read", number)
            return
        self.is_recognised = True
        rank, step = label(line), int(iteration[1])
        planned = "evaluation" if self._evaluated.pop(rank, None) == step else ""
        try:
            self._series.setdefault(rank, Rows()).add(step, float(iteration[2]) / 1e3, n_steps=1, planned=planned)
        except ValueError:
            self._skipped.count("an iteration could not be read", number)

    def logs(self, path: str) -> list[StepLog]:
        """One log, or one per rank where several have written."""
        notes = self._skipped.notes()
        return [rows.log(path, self.format, rank=rank, notes=notes) for rank, rows in by_rank(self._series)]

    def refusal(self) -> str:
        """Why there is no step time in what was recognised."""
        return "a log of nanoGPT in which no line tells both an iteration and its time"
