"""Rows of an answer, for people and for scripts."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from typing import Any, TextIO

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from pacehound.model.plain import plain
from pacehound.pages.terminal import PlainConsole

_MOST_ROWS = 1000
_GAP = 2


def rows_answer(table: pa.Table) -> dict[str, Any]:
    """What `pacehound sql --json` prints: names, and rows as lists (times as ISO 8601, bytes as base64)."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return {"schema": 1, "columns": table.column_names, "rows": [list(row) for row in zip(*columns, strict=True)]}


def print_rows(table: pa.Table, file: TextIO) -> None:
    """Tab-separated lines with a header; on a terminal a table, or a record a block where its lines do not fit."""
    console = PlainConsole(file)
    columns = [[_text(value) for value in column.to_pylist()] for column in table.columns]
    if not console.is_terminal:
        file.write("\t".join(table.column_names) + "\n")
        for row in zip(*columns, strict=True):
            file.write("\t".join(row) + "\n")
        return
    shown = list(zip(*columns, strict=True))[:_MOST_ROWS]
    widths = [max(map(cell_len, (name, *cells))) for name, *cells in zip(table.column_names, *shown, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) <= console.width:
        grid = Table(*table.column_names, box=None, header_style="bold", pad_edge=False)
        for row in shown:
            grid.add_row(*row)
        console.print(grid)
    else:
        _print_blocks(console, table.column_names, shown)
    if table.num_rows > _MOST_ROWS:
        console.print(f"… {table.num_rows - _MOST_ROWS} more rows (--json has them all)")


def _print_blocks(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Each value on a line of its own, behind its name."""
    for number, row in enumerate(rows, 1):
        console.print(f"{'' if number == 1 else chr(10)}row {number} of {len(rows)}", style="bold")
        grid = Table(box=None, show_header=False, pad_edge=False)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in zip(names, row, strict=True):
            grid.add_row(name, value)
        console.print(grid)


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
