"""torchtitan: `[titan] TIME - root - INFO - step: K  loss: …  tps: …`, whose step times are those between its lines."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field

from collector.importers.step_logs.lines import label
from collector.importers.step_logs.rows import Rows, SkippedLines, by_rank
from pacehound.model.step_log import StepLog

_STEP = re.compile(r"\bstep:\s*(\d+)\s+loss:\s")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[.,](\d{3,6})")


@dataclass(slots=True)
class _Series:
    rows: Rows = field(default_factory=Rows)
    reading: tuple[int, int] | None = None  # the step and the time of the line before


class TitanReader:
    r"""Takes the lines of a log, keeps the time between them.

    A line every N steps gives their mean, with all that lay between: a checkpoint is in it. A job that was started
    again begins anew at its first line. Time stamps are read as UTC; where they go back, nothing is known.

    Examples
    --------
    >>> reader = TitanReader()
    >>> at = "[rank0]:[titan] 2025-01-01 00:00:0{},500 - root - INFO - step: {}  loss:  7.1  tps: 900  mfu: 30.00%\n"
    >>> for second, step in ((1, 10), (6, 20)):
    ...     reader.take(step, at.format(second, step))
    >>> log, = reader.logs("train.log")
    >>> log.step.tolist(), log.step_time_s.tolist(), log.n_steps.tolist()
    ([20], [0.5], [10])
    """

    format = "torchtitan"
    about = "torchtitan (time stamp … step: K  loss: …)"

    def __init__(self) -> None:
        self._series: dict[int | None, _Series] = {}
        self._skipped = SkippedLines()
        self.is_recognised = False

    def take(self, number: int, line: str) -> None:
        """Look at the next line."""
        if "step:" not in line or "loss:" not in line:
            return
        step_match, stamp = _STEP.search(line), _TIMESTAMP.search(line)
        if step_match is None or stamp is None or stamp.start() > step_match.start():
            return
        series = self._series.setdefault(label(line), _Series())
        step = int(step_match[1])
        try:
            time_ns = _time_ns(*stamp.groups())
        except ValueError:
            self._skipped.count("a time stamp could not be read", number)
            return
        self.is_recognised = True
        before, series.reading = series.reading, (step, time_ns)
        if before is None or step <= before[0]:
            return
        if time_ns <= before[1]:
            self._skipped.count("the clock was set back, so that the time of a step is not known; left out", number)
            return
        n_steps = step - before[0]
        try:
            series.rows.add(step, (time_ns - before[1]) / 1e9 / n_steps, time_ns=time_ns, n_steps=n_steps)
        except ValueError:
            self._skipped.count("a step could not be read", number)

    def logs(self, path: str) -> list[StepLog]:
        """One log, or one per rank where several have written."""
        notes = (*self._skipped.notes(), "its time stamps name no zone; they are read as UTC")
        series = by_rank({rank: one.rows for rank, one in self._series.items()})
        return [rows.log(path, self.format, rank=rank, notes=notes) for rank, rows in series]

    def refusal(self) -> str:
        """Why there is no step time in what was recognised."""
        return "a log of torchtitan of which fewer than two steps are told"


def _time_ns(day: str, clock: str, fraction: str) -> int:
    moment = datetime.datetime.fromisoformat(f"{day}T{clock}.{fraction.ljust(6, '0')}+00:00")
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
