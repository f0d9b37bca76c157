"""Dead letters for people."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pacehound.model.events import DeadLetter
from pacehound.runtime.dead_letter_queue import DeadLetterSummary, preview

_LONGEST_REASON = 60


def age_of(seconds: float) -> str:
    """How long ago, in one number.

    >>> age_of(4.4), age_of(150), age_of(7300), age_of(200_000)
    ('4 s', '2 min', '2 h', '2 d')
    """
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit_s * (2 if unit == "d" else 1):
            return f"{seconds / unit_s:.0f} {unit}" if unit != "min" else f"{int(seconds // unit_s)} {unit}"
    return f"{max(seconds, 0):.0f} s"


def print_dead_letters(console: Console, letters: Sequence[DeadLetterSummary], now_ns: int) -> None:
    """A line for each, the oldest first."""
    if not letters:
        console.print("no dead letter")
        return
    grid = Table("id", "age", "place", "error", "reason", "", box=None, header_style="bold", pad_edge=False)
    for one in letters:
        reason = one.reason if len(one.reason) <= _LONGEST_REASON else one.reason[: _LONGEST_REASON - 1] + "…"
        grid.add_row(
            one.id[:12],
            age_of((now_ns - one.time_ns) / 1e9),
            f"{one.source_topic}/{one.partition}@{one.offset}",
            one.error,
            Text(" ".join(reason.split())),
            "replayed" if one.replayed_ns else "",
        )
    console.print(grid)


def print_dead_letter(console: Console, letter: DeadLetter) -> None:
    """Everything about one, with its bytes."""
    at = datetime.datetime.fromtimestamp(letter.time_ns / 1e9, datetime.UTC).isoformat(timespec="seconds")
    console.print(f"DEAD LETTER {letter.identity()}", style="bold")
    for name, value in (
        ("place", f"{letter.source_topic}/{letter.partition} at offset {letter.offset}"),
        ("key", letter.key or "(none)"),
        ("set aside", at),
        ("error", letter.error),
        ("reason", letter.reason),
        ("payload", f"{len(letter.payload)} bytes"),
    ):
        console.print(f"  {name:<10} {value}")
    console.print(preview(letter.payload))
