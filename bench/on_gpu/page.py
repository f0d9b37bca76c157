"""docs/measured-on-gpu.md, of what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.on_gpu.stages import STAGES, Seen, Stage

COMMAND = "make gpu"
_MARK = {True: "yes", False: "**no**", None: ""}


def plan(why_not: str) -> str:
    """What would be done, where it cannot be."""
    lines = [f"nothing is measured here: {why_not}.", f"On a machine with one GPU, `{COMMAND}` would do this:"]
    lines += [f"  {stage.name} ({stage.budget_s} s): {stage.does}" for stage in STAGES]
    lines.append(f"and write docs/measured-on-gpu.md; {sum(stage.budget_s for stage in STAGES)} s in all, about.")
    return "\n".join(lines) + "\n"


def page(machine: Mapping[str, str], date: str, seen: Sequence[tuple[Stage, Sequence[Seen], str]]) -> str:
    """The page; each stage comes with what it saw, and why it ended early (empty: it did not)."""
    lines = [
        "# Measured on one GPU",
        "",
        f"By `{COMMAND}` on {date}; several ranks share the GPU. It is written anew by each run.",
        "",
    ]
    lines += ["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in machine.items()), ""]
    for stage, found, why in seen:
        lines += [f"## {stage.name[0].upper()}{stage.name[1:]}", "", f"{stage.does[0].upper()}{stage.does[1:]}.", ""]
        if found:
            lines += ["| | seen | as it should be |", "|---|---|---|"]
            lines += [f"| {_cell(one.what)} | {_cell(one.value)} | {_MARK[one.is_right]} |" for one in found]
            lines.append("")
        if why:
            lines += [f"Not to its end: {_cell(why)}", ""]
    return "\n".join(lines)


def is_right(seen: Sequence[tuple[Stage, Sequence[Seen], str]]) -> bool:
    """Everything was looked at, and nothing was wrong."""
    return all(not why and all(one.is_right is not False for one in found) for _, found, why in seen)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")
