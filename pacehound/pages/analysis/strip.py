"""A series of step times drawn with characters, for a terminal of 80 columns; readable without colour."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from pacehound.model.events import Finding
from pacehound.model.step_log import StepLog
from pacehound.pages.analysis.scale import time_words, visible_range

MARKS = {"planned": "·", "change": "c", "intermittent": "i", "slow": "S"}
"""What stands under the steps of a finding of each kind, the more important later; others are `x`."""

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 6
_BEYOND = "▲"
_MARGIN = 10
_SPIKE = 1.5  # of the median: a column with a step beyond this and the scale is marked


def drawing(log: StepLog, found: Sequence[Finding], *, width: int = 80) -> list[str]:
    r"""The lines of the drawing: columns of medians, what lies beyond the top, and findings under their steps.

    Parameters
    ----------
    log
        The series. Each column is the median of as many rows as it takes to fit the width.
    found
        Findings, planned ones too, to be marked.
    width
        Characters per line at most.

    Returns
    -------
    list of str
        Nothing where no row has a time to draw.

    Examples
    --------
    >>> ones = np.ones(40, np.int64)
    >>> log = StepLog(path="a", format="csv", step=np.arange(40), n_steps=ones, time_ns=ones,
    ...     step_time_s=np.where(np.arange(40) < 30, 1.0, 2.0))
    >>> print("\n".join(drawing(log, (), width=50)))
       2.0 s ┤                              ██████████
             │                              ██████████
             │                              ██████████
             │                              ██████████
             │                              ██████████
       1.0 s ┤████████████████████████████████████████
              step 0                           step 39
    """
    is_told = np.isfinite(log.step_time_s) & (log.step_time_s > 0)
    if not is_told.any():
        return []
    margin = _MARGIN
    n_columns = min(width - margin, len(log))
    edges = np.linspace(0, len(log), n_columns + 1).astype(int)
    medians, peaks = np.full((2, n_columns), np.nan)
    for column, (first, last) in enumerate(itertools.pairwise(edges)):
        times_s = log.step_time_s[first:last][is_told[first:last]]
        if len(times_s):
            medians[column], peaks[column] = np.median(times_s), times_s.max()
    low_s, high_s = visible_range(medians[np.isfinite(medians)])
    names = time_words(high_s), time_words(low_s)
    beyond_s = max(high_s, _SPIKE * float(np.nanmedian(medians)))
    eighths = [_eighths(value_s, low_s, high_s) for value_s in medians]
    lines = []
    if any(peak > beyond_s for peak in peaks):
        above = "".join(_BEYOND if peak > beyond_s else " " for peak in peaks)
        most = int(np.nanargmax(np.where(is_told, log.step_time_s, np.nan)))
        lines.append(
            f"{'':>{margin}}{_BEYOND} single steps, up to {time_words(log.step_time_s[most])} at step {log.step[most]}"
        )
        lines.append(f"{'':>{margin}}{above}".rstrip())
    for row in range(_HEIGHT - 1, -1, -1):
        name = names[0] if row == _HEIGHT - 1 else names[1] if row == 0 else ""
        bars = "".join(_EIGHTHS[min(max(value - 8 * row, 0), 8)] for value in eighths)
        lines.append(f"{name:>{margin - 2}} {'┤' if name else '│'}{bars}".rstrip())
    lines += _marks(log, found, edges, margin)
    return [*lines, _steps(log, n_columns, margin)]


def _eighths(value_s: float, low_s: float, high_s: float) -> int:
    """How high a column stands, in eighths of a character: at least one line, or nothing where nothing is known."""
    if math.isnan(value_s):
        return 0
    share = (min(value_s, high_s) - low_s) / (high_s - low_s)
    return 8 + round(max(share, 0.0) * 8 * (_HEIGHT - 1))


def _marks(
    log: StepLog, found: Sequence[Finding], edges: np.ndarray[tuple[int], np.dtype[np.int_]], margin: int
) -> list[str]:
    """A line that shows which columns lie in a finding, and what its letters mean."""
    line = [" "] * (len(edges) - 1)
    used = []
    for kind in dict.fromkeys((*MARKS, *(finding.kind for finding in found))):
        spans = [span for f in found if f.kind == kind and (span := rows_within(log, f)) is not None]
        mark = MARKS.get(kind, "x")
        for first, last in spans:
            column = np.flatnonzero((edges[1:] > first) & (edges[:-1] < last))
            for place in column:
                line[place] = mark
        if spans:
            used.append(f"{mark} {kind}")
    if not used:
        return []
    return ["".join((" " * margin, *line)).rstrip(), " " * margin + ", ".join(reversed(used))]


def rows_within(log: StepLog, finding: Finding) -> tuple[int, int] | None:
    """The first row of a finding and the first after it; `None` where it has no step."""
    if finding.onset is None or finding.onset.step is None:
        return None
    first = int(np.searchsorted(log.step, finding.onset.step))
    end = None if finding.relief is None else finding.relief.step
    last = len(log) if end is None else int(np.searchsorted(log.step, end))
    return first, max(last, first + 1)


def _steps(log: StepLog, n_columns: int, margin: int) -> str:
    left, right = f"step {log.step[0]}", f"step {log.step[-1]}"
    if n_columns < len(left) + len(right) + 1:
        return " " * margin + left
    return " " * margin + left + right.rjust(n_columns - len(left))
