"""Step times as a table: a header with `step` and `step_time_s`, maybe `time_ns`, `rank`, `global_batch_size`."""

from __future__ import annotations

import csv
import math

from collector.importers.step_logs.rows import Rows, SkippedLines
from pacehound.model.step_log import StepLog

_DELIMITERS = ",;\t"
_NEEDED = ("step", "step_time_s")
_WORK = ("global_batch_size", "sequence_length")


class CsvReader:
    r"""Takes the lines of a table; each rank in it is a series of its own.

    The first line that is neither empty nor a comment (`#`) has to be the header. Fields are separated by commas,
    semicolons or tabs; columns of other names are passed over.

    Examples
    --------
    >>> reader = CsvReader()
    >>> for number, line in enumerate(("step,step_time_s,rank\n", "7,0.5,0\n", "7,0.6,1\n")):
    ...     reader.take(number, line)
    >>> [(log.rank, log.step.tolist(), log.step_time_s.tolist()) for log in reader.logs("steps.csv")]
    [(0, [7], [0.5]), (1, [7], [0.6])]
    """

    format = "csv"
    about = "CSV (a header with step and step_time_s)"

    def __init__(self) -> None:
        self._columns: dict[str, int] | None = None
        self._delimiter = ","
        self._missing: list[str] = []
        self._series: dict[int | None, Rows] = {}
        self._skipped = SkippedLines()
        self.is_recognised = False

    def take(self, number: int, line: str) -> None:
        """Look at the next line."""
        if self._columns is None:
            self._take_header(line)
        elif self.is_recognised and not self._missing and (text := line.strip()) and not text.startswith("#"):
            self._take_row(number, text)

    def _take_header(self, line: str) -> None:
        text = line.strip()
        if not text or text.startswith("#"):
            return
        self._delimiter = max(_DELIMITERS, key=text.count)
        names = [name.strip().strip('"').lower() for name in text.split(self._delimiter)]
        self._columns = {name: place for place, name in enumerate(names)}
        self._missing = [name for name in _NEEDED if name not in self._columns]
        self.is_recognised = len(names) > 1 and len(self._missing) < len(_NEEDED)

    def _take_row(self, number: int, text: str) -> None:
        columns = self._columns or {}
        try:
            fields = [field.strip() for field in next(csv.reader([text], delimiter=self._delimiter))]
            if fields[columns["step"]].lower() == "step":  # tables were joined, headers and all
                return
            rank = whole(fields[columns["rank"]]) if "rank" in columns else None
            time_text = fields[columns["time_ns"]] if "time_ns" in columns else ""
            work = {name: number_or_nan(fields[columns[name]]) for name in _WORK if name in columns}
            step, step_time_s = whole(fields[columns["step"]]), float(fields[columns["step_time_s"]])
            rows = self._series.setdefault(rank, Rows())
            rows.add(step, step_time_s, time_ns=whole(time_text) if time_text else 0, work=work)
        except (ValueError, IndexError, OverflowError, csv.Error):
            self._skipped.count("a row could not be read", number)

    def logs(self, path: str) -> list[StepLog]:
        """One log per rank; one for the whole job where the table has no ranks."""
        notes = self._skipped.notes()
        ranks = sorted((rank for rank, rows in self._series.items() if len(rows)), key=lambda r: -1 if r is None else r)
        return [self._series[rank].log(path, self.format, rank=rank, notes=notes) for rank in ranks]

    def refusal(self) -> str:
        """Why there is no step time in what was recognised."""
        if self._missing:
            return f"a table whose header has no column {' and '.join(self._missing)}"
        return "a table of step times in which no row can be read"


def whole(text: str) -> int:
    """A whole number, also as some tools write them.

    >>> whole("12"), whole("12.0"), whole("1e3")
    (12, 12, 1000)
    """
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise ValueError(f"{text!r} is no whole number") from None
        return int(value)


def number_or_nan(text: str) -> float:
    """A number, NaN where there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
