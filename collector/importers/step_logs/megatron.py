"""Megatron-LM and its relatives (Megatron-DeepSpeed): `iteration … | elapsed time per iteration (ms): …`."""

from __future__ import annotations

import datetime
import re

from collector.importers.step_logs.lines import label
from collector.importers.step_logs.rows import Rows, SkippedLines, by_rank
from pacehound.model.step_log import StepLog

_ITERATION = re.compile(r"iteration\s+(\d+)\s*/\s*\d+")
# A bar or the end of the line has to follow: the number of a line that was cut short would be too small.
_ELAPSED = re.compile(
    r"elapsed time per iteration \((ms|s)\):\s*([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))[ \t]*[|\n]", re.IGNORECASE
)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\s*(Z|[+-]\d\d:?\d\d)?")
_WORK = {
    "global_batch_size": re.compile(r"global batch size:\s*(\d+)[ \t]*[|\n]"),
    "sequence_length": re.compile(r"(?:curriculum seqlen|sequence length|seqlen):\s*(\d+)[ \t]*[|\n]"),
}
_CONSUMED = re.compile(r"consumed samples:\s*(\d+)[ \t]*[|\n]")
_SECONDS = {"ms": 1e-3, "s": 1.0}


class MegatronReader:
    r"""Takes the lines of a log, keeps its iterations.

    With a log interval of N iterations a line tells their mean. Time stamps without a zone are read as UTC. Where a
    line has no global batch size, what it adds to the consumed samples says it.

    Examples
    --------
    >>> reader = MegatronReader()
    >>> line = " iteration  8/ 100 | consumed samples: 256 | elapsed time per iteration (ms): 250.0 | lr: 1.0E-4 |\n"
    >>> reader.take(1, line)
    >>> log, = reader.logs("train.log")
    >>> log.step.tolist(), log.step_time_s.tolist()
    ([8], [0.25])
    """

    format = "megatron"
    about = "Megatron (elapsed time per iteration)"

    def __init__(self) -> None:
        self._series: dict[int | None, Rows] = {}
        self._consumed: dict[int | None, tuple[int, int]] = {}
        self._skipped = SkippedLines()
        self.is_recognised = False
        self._without_zone = False

    def take(self, number: int, line: str) -> None:
        """Look at the next line."""
        if "elapsed time per iteration" not in line:
            return
        self.is_recognised |= _ITERATION.search(line) is not None
        elapsed = _ELAPSED.search(line)
        iterations = list(_ITERATION.finditer(line, 0, elapsed.start())) if elapsed else []
        if elapsed is None or not iterations:
            if self.is_recognised:
                self._skipped.count("an iteration could not be read", number)
            return
        # Two writers may have got into one line: the iteration that stands nearest is the one that is told.
        iteration = iterations[-1]
        rank, step = label(line), int(iteration[1])
        work = {name: float(found[1]) for name, pattern in _WORK.items() if (found := pattern.search(line))}
        if (consumed := _CONSUMED.search(line)) is not None:
            last = self._consumed.get(rank)
            self._consumed[rank] = (step, int(consumed[1]))
            if "global_batch_size" not in work and last is not None and step > last[0]:
                work["global_batch_size"] = (int(consumed[1]) - last[1]) / (step - last[0])
        rows = self._series.setdefault(rank, Rows())
        try:
            rows.add(
                step,
                float(elapsed[2]) * _SECONDS[elapsed[1].lower()],
                time_ns=self._time_ns(line[: iteration.start()]),
                work=work,
            )
        except ValueError:
            self._skipped.count("an iteration could not be read", number)

    def _time_ns(self, before: str) -> int:
        """The last time stamp in what stands before an iteration."""
        stamps = list(_TIMESTAMP.finditer(before))
        if not stamps:
            return 0
        day, clock, fraction, zone = stamps[-1].groups()
        text = f"{day}T{clock}.{(fraction or '0').ljust(6, '0')}"
        try:
            moment = datetime.datetime.fromisoformat(text + (zone or "+00:00"))
        except ValueError:
            return 0
        self._without_zone |= zone is None
        since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000

    def logs(self, path: str) -> list[StepLog]:
        """One log, or one per rank where several have written."""
        notes = self._skipped.notes()
        if self._without_zone:
            notes = (*notes, "its time stamps name no zone; they are read as UTC")
        return [rows.log(path, self.format, rank=rank, notes=notes) for rank, rows in by_rank(self._series)]

    def refusal(self) -> str:
        """Why there is no step time in what was recognised."""
        return "a Megatron log in which no line tells both an iteration and its elapsed time"
