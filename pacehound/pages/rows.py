"""Rows of an answer, for people and for scripts."""

from __future__ import annotations

import base64
import datetime
from typing import Any, TextIO

import pyarrow as pa
from rich.table import Table

from pacehound.model.plain import plain
from pacehound.pages.terminal import PlainConsole

_MOST_ROWS = 1000


def rows_answer(table: pa.Table) -> dict[str, Any]:
    """What `pacehound sql --json` prints: names, and rows as lists (times as ISO 8601, bytes as base64)."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return {"schema": 1, "columns": table.column_names, "rows": [list(row) for row in zip(*columns, strict=True)]}


def print_rows(table: pa.Table, file: TextIO) -> None:
    """A table on a terminal, tab-separated lines with a header anywhere else."""
    console = PlainConsole(file)
    columns = [[_text(value) for value in column.to_pylist()] for column in table.columns]
    if not console.is_terminal:
        file.write("\t".join(table.column_names) + "\n")
        for row in zip(*columns, strict=True):
            file.write("\t".join(row) + "\n")
        return
    grid = Table(*table.column_names, box=None, header_style="bold", pad_edge=False)
    for row in list(zip(*columns, strict=True))[:_MOST_ROWS]:
        grid.add_row(*row)
    console.print(grid)
    if table.num_rows > _MOST_ROWS:
        console.print(f"… {table.num_rows - _MOST_ROWS} more rows (--json has them all)")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str, dict)) else str(value)


def _text(value: Any) -> str:
    shown = _plain(value)
    return "" if shown is None else plain(str(shown).replace("\t", " ").replace("\n", " "))
