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
    """What `pacehound sql --json` prints: names, and rows as lists (times as ISO 8601, bytes as base64).

    >>> times = pa.array([1_500_000_000_000_000_001], pa.timestamp("ns", "UTC"))
    >>> rows_answer(pa.table({"time": times}))["rows"]
    [['2017-07-14T02:40:00.000000001+00:00']]
    """
    columns = [_values(column) for column in table.columns]
    return {"schema": 1, "columns": table.column_names, "rows": [list(row) for row in zip(*columns, strict=True)]}


def print_rows(table: pa.Table, file: TextIO) -> None:
    """Tab-separated lines with a header; on a terminal a table, or a record a block where its lines do not fit."""
    console = PlainConsole(file)
    columns = [[_text(value) for value in _values(column)] for column in table.columns]
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


def _values(column: pa.ChunkedArray) -> list[Any]:
    """What JSON can hold of a column."""
    kind = column.type
    return [_plain(value, kind) for value in column.cast(_without_nanoseconds(kind)).to_pylist()]


def _without_nanoseconds(kind: pa.DataType) -> pa.DataType:
    """The same with text for times with nanoseconds: Python's have none, and Arrow asks pandas for them."""
    if _has_nanoseconds(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_nanoseconds(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_without_nanoseconds(kind.key_type), _without_nanoseconds(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_nanoseconds(field.type)) for field in kind])
    return kind


def _has_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if _has_nanoseconds(kind):
        return value.replace(" ", "T").replace("Z", "+00:00")
    if pa.types.is_map(kind):
        return [[_plain(name, kind.key_type), _plain(item, kind.item_type)] for name, item in value]
    if isinstance(value, list):  # of any kind of lists
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, dict):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return str(value)


def _text(value: Any) -> str:
    return "" if value is None else plain(str(value).replace("\t", " ").replace("\n", " "))
