"""`pacehound recover`: the plans that were compared, their prices, and why one of them was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pacehound.pages.incidents import print_parts

_MOST_ROWS = 10
_MOST_PIPELINES = 12


def print_recovery(console: Console, answer: dict[str, Any]) -> None:
    """The whole page, from the answer for a script."""
    before, plans = answer["before"], answer["plans"]
    head = Text(
        f"before: DP {before['dp']} x PP {before['pp']}, {before['throughput']:.3g} samples/s, "
        f"{sum(before['batches'])} micro-batches a step\nfailures: {answer['history']}"
    )
    parts: list[RenderableType] = [head]
    if plans:
        parts.append(_table(plans, before["throughput"]))
    if len(plans) > _MOST_ROWS:
        parts.append(Text(f"… and {len(plans) - _MOST_ROWS} that do less; --json has all", style="dim"))
    if answer["chosen"] is not None:
        parts.append(Text("\n".join(_pipelines(plans[answer["chosen"]]))))
    print_parts(console, [*parts, Text(answer["reason"], style="bold")])


def _table(plans: Sequence[dict[str, Any]], before: float) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("plan")
    for name in ("DP x PP", "samples/s", "of before", "down", "moves", "memory", "score"):
        table.add_column(name, justify="right")
    for plan in plans[:_MOST_ROWS]:
        shortest = min(map(len, plan["stages"]))
        lengths = str(plan["pp"]) if shortest == plan["pp"] else f"{shortest}-{plan['pp']}"
        table.add_row(
            plan["kind"],
            f"{plan['dp']} x {lengths}",
            f"{plan['throughput']:.3g}",
            f"{plan['throughput'] / before:.1%}",
            f"{plan['downtime_s']:.1f} s",
            _bytes(plan["moved_bytes"]),
            f"{plan['peak_bytes'] / 2**30:.1f} GiB",
            f"{plan['score']:.3g}",
        )
    return table


def _bytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n < 1e12 else f"{n / 1e12:.1f} TB"


def _pipelines(plan: dict[str, Any]) -> list[str]:
    """Equal ones in one line."""
    pairs = sorted(zip(plan["stages"], plan["batches"], strict=True), key=lambda pair: (-len(pair[0]), pair))
    lines = []
    for (stages, batch), same in groupby(pairs):
        n = sum(1 for _ in same)
        layers = " ".join(map(str, stages))
        each = f" pipeline{'s' if n > 1 else ''} with layers {layers}: {batch} micro-batches{' each' if n > 1 else ''}"
        lines.append(f"{n}{each}")
    if plan["kind"] == "reroute":
        lost = sum(node is None for nodes in plan["holders"] for node in nodes)
        lines.append(f"the peers of {lost} lost place{'s' if lost > 1 else ''} take the micro-batches")
    more = len(lines) - _MOST_PIPELINES
    return lines if more <= 0 else [*lines[:_MOST_PIPELINES], f"… and {more} more"]
