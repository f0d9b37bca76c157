"""A whole trace -> whether its job straggles, window by window, as it would be said of the live job."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from pacehound.errors import InvalidInput
from pacehound.model.events import Finding
from streams.whatif.analysis import analyse_table
from streams.whatif.price_watch import window_price
from streams.whatif.reader import OpTable
from streams.whatif.straggling import Straggling, priced_window
from streams.whatif.tensor_groups import NO_GROUPS, TensorGroups
from streams.whatif.thresholds import WINDOWS_IN_A_ROW


def straggling_in(
    table: OpTable, path: Path, window_steps: int, meta_file: Path | None = None, groups: TensorGroups = NO_GROUPS
) -> list[Finding]:
    """The last version of each finding; `path` names the job, as for `analyse_table`.

    A trace of fewer steps than that makes as many shorter windows; of a window that makes no sense nothing is said, as
    of a live one.
    """
    steps = np.unique(table.step)
    size = min(window_steps, len(steps) // WINDOWS_IN_A_ROW)
    if not size:
        return []
    straggling, latest = Straggling(path.name, 0), dict[str, Finding]()
    for first in range(0, len(steps) - size + 1, size):
        window = _only(table, np.isin(table.step, steps[first : first + size]))
        try:
            found, built = analyse_table(window, path, meta_file)
        except InvalidInput:
            continue
        began_ns, ended_ns = _span_ns(window)
        price = window_price(built, found, path.name, 0, ended_ns, built.meta.world_size, groups)
        for finding in straggling.on_window(priced_window(price, found.patterns, groups, began_ns)):
            latest[finding.id] = replace(finding, source=str(path))
    return list(latest.values())


def _only(table: OpTable, is_row: np.ndarray) -> OpTable:
    columns = {one.name: getattr(table, one.name) for one in fields(table)}
    chosen = {name: column[is_row] for name, column in columns.items() if isinstance(column, np.ndarray)}
    return replace(table, **chosen)


def _span_ns(table: OpTable) -> tuple[int, int]:
    """From the first start to the last end."""
    ends_s = table.start_s + table.duration_s
    return round(float(np.nanmin(table.start_s)) * 1e9), round(float(np.nanmax(ends_s)) * 1e9)
