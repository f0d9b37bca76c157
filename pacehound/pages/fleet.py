"""Statistics over all jobs, for people and for scripts."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TextIO

import pyarrow as pa

from pacehound.pages.rows import print_rows, rows_answer

_WHOLE_FROM = 100.0
"""From here on no decimals are shown."""


def fleet_answer(
    found: Mapping[str, pa.Table], about: Mapping[str, str], since_ns: int, until_ns: int
) -> dict[str, Any]:
    """What `pacehound fleet --json` prints: of each question what it is about, its columns and its rows."""
    queries = {}
    for name, table in found.items():
        answer = rows_answer(table)
        queries[name] = {"about": about[name], "columns": answer["columns"], "rows": answer["rows"]}
    return {"schema": 1, "since_ns": since_ns, "until_ns": until_ns, "queries": queries}


def print_fleet(found: Mapping[str, pa.Table], about: Mapping[str, str], file: TextIO) -> None:
    """A table for each question, with three digits of each number."""
    for number, (name, table) in enumerate(found.items()):
        file.write(f"{'' if number == 0 else chr(10)}{name}: {about[name]}\n")
        if table.num_rows:
            print_rows(_shown(table), file)
        else:
            file.write("nothing\n")


def _shown(table: pa.Table) -> pa.Table:
    """Its cells as text; a moment in ns as a date."""
    names = [name.removesuffix("_ns") for name in table.column_names]
    columns = [
        [_text(value, is_moment=name.endswith("_ns")) for value in table.column(name).to_pylist()]
        for name in table.column_names
    ]
    return pa.table([pa.array(column, pa.string()) for column in columns], names)


def _text(value: Any, *, is_moment: bool) -> str:
    if value is None:
        return ""
    if is_moment:
        return f"{datetime.datetime.fromtimestamp(value // 10**9, datetime.UTC):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= _WHOLE_FROM else f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
