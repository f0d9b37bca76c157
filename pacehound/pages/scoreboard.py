"""`pacehound evaluate`: scores as rows, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case and how it went; `None` where a figure means nothing (DESIGN section 10).

    Attributes
    ----------
    delay_iterations
        Median over the found faults.

    """

    suite: str
    case: str
    expected: int
    found: int
    precision: float | None
    recall: float | None
    delay_iterations: float | None
    false_alarms: int
    culprit_accuracy: float | None


def scoreboard_answer(rows: Sequence[Row]) -> dict[str, Any]:
    """What `--json` prints."""
    return {"schema": 1, "rows": msgspec.to_builtins(rows)}


def print_scoreboard(console: Console, rows: Sequence[Row]) -> None:
    """The same as a table."""
    table = Table(box=None, pad_edge=False)
    table.add_column("suite")
    table.add_column("case", overflow="fold")
    for name in ("found", "false", "precision", "recall", "delay", "culprits"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.suite,
            row.case,
            f"{row.found}/{row.expected}",
            str(row.false_alarms),
            _number(row.precision),
            _number(row.recall),
            "–" if row.delay_iterations is None else f"{row.delay_iterations:.0f}",
            _number(row.culprit_accuracy),
        )
    console.print(table)
    console.print("\nfalse: alarms about nothing; delay: median, in iterations; culprits: share of")
    console.print("the found faults with known culprits that are blamed on exactly these")


def _number(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"
