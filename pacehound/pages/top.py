"""`pacehound top`: what runs now and what is wrong with it, as one screen; pure.

In: the answers that the page gets (`web.answers`), the size of the screen, and what is chosen. Out: lines to be drawn.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pacehound.pages.analysis.scale import time_words
from pacehound.pages.incidents import seconds_words

Row = Mapping[str, Any]

_STATES = {"slow": "bold red", "running": "green", "silent": "yellow", "ended": "dim"}
_ORDER = {"slow": 0, "running": 1, "silent": 2, "ended": 3}
_INCIDENT_STATES = {"open": "bold red", "relieved": "yellow", "closed": "green"}

_OTHER_LINES = 7
"""The line above all, the heads of the two lists, how many more jobs there are, two between them, and the last line."""
_ROOMY_COLUMNS = 72
"""From here on there is room for how many ranks a job has, and for its usual pace beside the present one."""

LOSES_ABOVE = 1.1
"""A pace beyond 1.1 x the usual one is shown in red: the bound of Falcon (4.3) for what is slower than the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which job is chosen, by its place in the list, and whether one looks into it."""

    place: int = 0
    is_inside: bool = False

    def after(self, key: str, n_jobs: int) -> Choice:
        """What is chosen once a key was pressed.

        >>> Choice().after("down", 3).after("enter", 3)
        Choice(place=1, is_inside=True)
        >>> Choice(place=2, is_inside=True).after("down", 3).after("back", 3)
        Choice(place=2, is_inside=False)
        """
        step = {"down": 1, "up": -1}.get(key, 0)
        place = max(0, min(self.place + step, n_jobs - 1))
        is_inside = {"enter": n_jobs > 0, "back": False}.get(key, self.is_inside)
        return replace(self, place=place, is_inside=is_inside)


def in_order(jobs: Sequence[Row]) -> list[Row]:
    """Those that are slow now first, of these the one that has lost most; what has ended comes last."""
    return sorted(jobs, key=lambda row: (_ORDER[row["state"]], -row["lost_rank_hours"], row["job"], -row["attempt"]))


def top_page(
    jobs: Sequence[Row],
    incidents: Sequence[Row],
    choice: Choice,
    *,
    width: int,
    height: int | None,
    now_ns: int,
    keys: str = "",
    problem: str = "",
) -> RenderableType:
    """One screen.

    Parameters
    ----------
    jobs
        As `web.answers.jobs` gives them, `in_order`.
    incidents
        As `web.answers.incidents` gives them, the newest first.
    choice
        The chosen job; inside it its incidents are shown, those that are over too.
    width, height
        Of the screen, in cells; no height: all there is.
    now_ns
        The time.
    keys, problem
        The last line: what can be pressed, or why nothing newer is shown.

    """
    chosen = jobs[choice.place] if 0 <= choice.place < len(jobs) else None
    if choice.is_inside and chosen is not None:
        shown = [one for one in incidents if (one["job"], one["attempt"]) == (chosen["job"], chosen["attempt"])]
        title = f"incidents of {_name(chosen)}"
    else:
        shown = [one for one in incidents if one["state"] == "open"]
        title = "open incidents"
    room = None if height is None else max(height - _OTHER_LINES, 3)
    job_lines = None if room is None else max(min(len(jobs), room - min(2 * len(shown), 2 * (room // 4) or 2)), 1)
    rows, hidden = _window(jobs, choice.place, job_lines)
    parts: list[RenderableType] = [_title(jobs, incidents, now_ns, width), Text("")]
    parts.append(_jobs(rows, chosen if height is not None else None, width))
    if hidden:
        parts.append(Text(f"{hidden} more", style="dim"))
    parts.append(Text(""))
    if shown:
        left = None if room is None or job_lines is None else max((room - job_lines) // 2, 1)
        parts.append(Text(title if left is None or len(shown) <= left else f"{title}: {left} of {len(shown)}", "bold"))
        parts += [_incident(one, now_ns) for one in (shown if left is None else shown[:left])]
    else:
        parts.append(Text(f"no {title}", style="dim"))
    if problem:
        parts.append(Text(problem, style="bold yellow"))
    elif keys:
        parts.append(Text(keys, style="dim"))
    return Group(*parts)


def _title(jobs: Sequence[Row], incidents: Sequence[Row], now_ns: int, width: int) -> Text:
    counts = {state: sum(row["state"] == state for row in jobs) for state in _STATES}
    n_open = sum(one["state"] == "open" for one in incidents)
    words = [f"{n} {state}" for state, n in counts.items() if n]
    moment = datetime.datetime.fromtimestamp(now_ns / 1e9, datetime.UTC)
    line = f"{moment:%H:%M:%S} UTC  jobs: {', '.join(words) or 'none'}  open incidents: {n_open}"
    return Text(
        line if len(line) <= width else line.partition("  ")[2], style="bold", no_wrap=True, overflow="ellipsis"
    )


def _jobs(rows: Sequence[Row], chosen: Row | None, width: int) -> Table:
    is_roomy = width >= _ROOMY_COLUMNS
    table = Table(box=None, header_style="dim", pad_edge=False, width=width, show_edge=False)
    table.add_column("", width=1)
    table.add_column("job", ratio=1, no_wrap=True, overflow="ellipsis", min_width=8)
    table.add_column("state", no_wrap=True)
    if is_roomy:
        table.add_column("ranks", justify="right", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    if is_roomy:
        table.add_column("usual", justify="right", no_wrap=True)
        table.add_column("lost h", justify="right", no_wrap=True)
    table.add_column("open", justify="right", no_wrap=True)
    for row in rows:
        usual_s = row["step_time_s"]
        now_s = row["spark_s"][-1] if row["spark_s"] else 0.0
        is_slow = row["state"] in ("slow", "running") and usual_s and now_s > LOSES_ABOVE * usual_s
        cells = [
            ">" if row is chosen else "",
            _name(row),
            Text(row["state"], style=_STATES[row["state"]]),
            f"{row['world_size']:,}" if is_roomy else None,
            Text(time_words(now_s) if now_s else "-", style="bold red" if is_slow else ""),
            (time_words(usual_s) if usual_s else "-") if is_roomy else None,
            f"{row['lost_rank_hours']:.3g}" if is_roomy else None,
            str(row["open_incidents"] or ""),
        ]
        table.add_row(*(cell for cell in cells if cell is not None), style="reverse" if row is chosen else "")
    return table


def _incident(one: Row, now_ns: int) -> RenderableType:
    ago = seconds_words(max(now_ns - one["opened_ns"], 0) / 1e9)
    lost = f", {one['rank_hours']:.3g} rank-hours lost" if one["rank_hours"] else ""
    return Text.assemble(
        (f"{one['state']:<9}", _INCIDENT_STATES[one["state"]]),
        (f"{one['what']} [{one['verdict']}]\n"),
        (f"{'':<9}{_name(one)}, since {ago}{lost}, {one['id'][:12]}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _name(row: Row) -> str:
    return f"{row['job']} #{row['attempt']}" if row["attempt"] else str(row["job"])


def _window(rows: Sequence[Row], place: int, most: int | None) -> tuple[Sequence[Row], int]:
    """The rows around the chosen one that fit, and how many do not."""
    if most is None or len(rows) <= most:
        return rows, 0
    first = max(0, min(place - most // 2, len(rows) - most))
    return rows[first : first + most], len(rows) - most
