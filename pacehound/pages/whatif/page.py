"""What was found as a page for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from pacehound.model.events import Finding
from pacehound.model.whatif_result import MOST_DISCREPANCY, STRAGGLING, Blame, Pattern, Remedy, WhatIf
from pacehound.pages.analysis.scale import time_words
from pacehound.pages.incidents import print_parts

FloatArray = npt.NDArray[np.float64]

_MOST_ROWS = 12
_CELL = 5
_REDS = ("#fff5f0", "#fdd0bc", "#fc9474", "#f14432", "#c2161b", "#67000d")
"""From a slowdown of 1 to HOTTEST, as in the picture."""
HOTTEST = 1.5
_BARS = "_▁▂▃▄▅▆▇█"
_MOST_STRIPS = 8


def print_whatif(console: Console, found: WhatIf, findings: Sequence[Finding] = ()) -> None:
    """The whole page; `findings` are what would be said of the job while it runs."""
    parts: list[RenderableType] = [_title(found), *_damage(found), _figures(found), _blames(found)]
    parts += [_heat_map(found, console.width), _strips(found, console.width), _slowest_steps(found)]
    parts += [_patterns(found), *_fixes(found)]
    parts += [Text(f"While it runs this is an incident: {one.evidence[0].words}", style="bold") for one in findings]
    print_parts(console, parts)


def _title(found: WhatIf) -> Text:
    meta, n_steps = found.meta, len(found.steps)
    text = Text(f"{meta.trial_name}: x{found.slowdown:.3f} slower than without stragglers", style="bold")
    gpus = meta.tp_size * meta.dsp_size
    chunks = f", {meta.vpp_size} virtual stages" if meta.vpp_size > 1 else ""
    return text.append(
        f"\n{n_steps} steps of {meta.world_size} GPUs: DP {meta.dp_size} x PP {meta.pp_size}{chunks}, "
        f"{gpus} GPU{'' if gpus == 1 else 's'} a worker",
        style="not bold",
    )


def _damage(found: WhatIf) -> list[RenderableType]:
    lines = [Text(f"damaged: {defect}", style="yellow") for defect in found.defects]
    if not found.is_trusted:
        lines.append(
            Text(
                f"do not rely on this: the simulation is {found.discrepancy:.1%} off what was recorded "
                f"(limit {MOST_DISCREPANCY:.0%}); something that was not recorded delays launches",
                style="bold red",
            )
        )
    return [Group(*lines)] if lines else []


def _figures(found: WhatIf) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    table.add_row("step, recorded", time_words(float(found.recorded_s.mean())))
    table.add_row("step, simulated", f"{time_words(float(found.original_s.mean()))} ({found.discrepancy:.2%} off)")
    table.add_row("step, ideal", time_words(float(found.ideal_s.mean())))
    table.add_row("GPU-hours wasted", f"{found.waste:.1%}")
    table.add_row("slowest 3 % of workers", f"explain {_percent(found.slowest_workers.removed)} of the slowdown (M_W)")
    table.add_row("last stage", f"explains {_percent(found.last_stage.removed)} of the slowdown (M_S)")
    return table


def _percent(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "nothing"


def _blames(found: WhatIf) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("slowdown by itself", "", "wastes", "", "DP rank", "", "stage", ""):
        table.add_column(heading, justify="right" if not heading or heading == "wastes" else "left")
    types, ranks, stages = (_sorted(blame) for blame in (found.by_optype, found.by_dp_rank, found.by_stage))
    for row in range(min(max(map(len, (types, ranks, stages))), _MOST_ROWS)):
        cells: list[str] = []
        if row < len(types):
            cells += [types[row][0], f"{types[row][1]:.3f}", f"{1 - 1 / types[row][1]:.1%}", ""]
        else:
            cells += ["", "", "", ""]
        for column in (ranks, stages):
            cells += [column[row][0], f"{column[row][1]:.3f}"] if row < len(column) else ["", ""]
        table.add_row(*cells)
    return table


def _sorted(blame: Blame) -> list[tuple[str, float]]:
    order = np.argsort(-blame.slowdown, kind="stable")
    return [(blame.names[i], float(blame.slowdown[i])) for i in order]


def _heat_map(found: WhatIf, width: int) -> Group:
    """Stages down, DP ranks across; of many DP ranks those whose workers are slowest."""
    cells = found.by_worker
    most = max(1, (width - 8) // _CELL)
    shown = np.arange(cells.shape[1])
    title = "Each worker by itself (stage down, DP rank across)"
    if len(shown) > most:
        shown = np.sort(np.argsort(-cells.max(axis=0), kind="stable")[:most])
        title += f", the {most} DP ranks with the slowest of {cells.shape[1]}"
    lines = [Text(title, style="bold")]
    lines.append(Text("     " + "".join(f"{dp:>{_CELL}}" for dp in shown), style="dim"))
    for stage in range(cells.shape[0]):
        line = Text(f"{stage:>4} ", style="dim")
        for dp in shown:
            line.append(f"{cells[stage, dp]:>{_CELL}.2f}", style=_heat(float(cells[stage, dp])))
        lines.append(line)
    return Group(*lines)


def _heat(slowdown: float) -> Style:
    share = _share(slowdown)
    colour = _REDS[round(share * (len(_REDS) - 1))]
    return Style(bgcolor=colour, color="#ffffff" if share > 0.5 else "#000000")


def _strips(found: WhatIf, width: int) -> Group:
    """One line per worker, of the slowest ones, and one bar per step or run of steps (the slowest of it)."""
    n_steps, _, n_dp = found.by_worker_per_step.shape
    rows = found.by_worker_per_step.reshape(n_steps, -1)
    shown = np.sort(np.argsort(-rows.mean(axis=0), kind="stable")[:_MOST_STRIPS])
    bounds = np.unique(np.linspace(0, n_steps, min(n_steps, width - 18) + 1).astype(int))
    title = f"Each worker in each step (_ is x1, {_BARS[-1]} is x{HOTTEST} and beyond)"
    if rows.shape[1] > len(shown):
        title += f", the {len(shown)} slowest of {rows.shape[1]}"
    lines = [Text(title, style="bold")]
    for worker in shown:
        stage, dp = divmod(int(worker), n_dp)
        line = Text(f"  dp {dp:<4} pp {stage:<2} ", style="dim")
        for first, last in pairwise(bounds.tolist()):
            slowdown = float(rows[first:last, worker].max())
            line.append(_BARS[round(_share(slowdown) * (len(_BARS) - 1))], style="not dim")
        lines.append(line)
    return Group(*lines)


def _share(slowdown: float) -> float:
    """How far from 1 to HOTTEST."""
    return min(max((slowdown - 1) / (HOTTEST - 1), 0.0), 1.0)


def _slowest_steps(found: WhatIf) -> Group:
    """The slowest steps: how slow, and which worker is slowest in each."""
    lines = [Text("Slowest steps", style="bold")]
    for i in np.argsort(-found.step_slowdown, kind="stable")[:5]:
        of_step = found.by_worker_per_step[i]
        stage, dp = np.unravel_index(int(of_step.argmax()), of_step.shape)
        lines.append(
            Text(
                f"  {found.steps[i]}: x{found.step_slowdown[i]:.3f}, {time_words(float(found.recorded_s[i]))}; slowest "
                f"worker dp {dp} stage {stage}, x{of_step[stage, dp]:.3f} by itself"
            )
        )
    return Group(*lines)


def _patterns(found: WhatIf) -> RenderableType:
    if found.slowdown < STRAGGLING:
        return Text(f"Not straggling: below x{STRAGGLING}", style="green")
    return Group(*(_pattern(pattern) for pattern in found.patterns))


def _pattern(pattern: Pattern) -> RenderableType:
    parts: list[RenderableType] = [Text(f"Cause: {pattern.name}", style="bold")]
    parts += [Padding(Text(f"- {piece.words}"), (0, 0, 0, 2)) for piece in pattern.evidence]
    parts += [Padding(Text(f"> {remedy_words(remedy)}", style="bold"), (0, 0, 0, 2)) for remedy in pattern.remedies]
    return Group(*parts)


def remedy_words(remedy: Remedy) -> str:
    """What to do and what it brings.

    >>> remedy_words(Remedy(action="do this", step_time_s=1.5, gain=0.25))
    'do this: steps of 1.5 s, 25.0% shorter'
    """
    if not math.isfinite(remedy.gain):
        return remedy.action
    return f"{remedy.action}: steps of {time_words(remedy.step_time_s)}, {remedy.gain:.1%} shorter"


def _fixes(found: WhatIf) -> Sequence[RenderableType]:
    if not found.fixes:
        return ()
    lines = [Text("What if this were ideal", style="bold")]
    for one in found.fixes:
        lines.append(
            Text(
                f"  {one.what}: steps of {time_words(one.step_time_s)} (x{one.slowdown:.3f}); "
                f"{_percent(one.removed)} of the slowdown goes"
            )
        )
    return (Group(*lines),)
