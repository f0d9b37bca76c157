"""Series of step times with their findings as a picture (needs matplotlib: `pip install 'pacehound[draw]'`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pacehound.model.events import Finding
from pacehound.model.step_log import FloatArray, StepLog
from pacehound.pages import png
from pacehound.pages.analysis.answer import Source
from pacehound.pages.analysis.page import shown_log
from pacehound.pages.analysis.scale import time_words, visible_range
from pacehound.pages.analysis.strip import rows_within

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"slow": "#d62728", "intermittent": "#ff7f0e", "change": "#1f77b4", "planned": "#7f7f7f"}
_OTHER = "#9467bd"
_SERIES, _BASELINE = "#3b4a5a", "#2ca02c"
_PANEL_INCHES = (11.0, 2.9)
_MOST_PANELS = 40
_MOST_DOTS = 60_000
_THIN = 0.004  # of the run
_WIDE = 0.3  # of the run: a planned pattern that long is said in words, not painted over everything


def draw(sources: Sequence[Source], file: Path) -> None:
    """Write a PNG with one panel per file.

    A panel shows every step time as a dot, the pace without the findings as a line, spans of findings in the colour
    of their kind, and planned pauses in grey. Its scale shows where nearly all step times are; what lies beyond is
    marked at the top edge.

    Raises
    ------
    InvalidInput
        matplotlib is not installed, or `file` cannot be written.

    """
    shown = sources[:_MOST_PANELS]
    figure = png.new_figure(_PANEL_INCHES[0], _PANEL_INCHES[1] * len(shown) + 0.3)
    figure.get_layout_engine().set(h_pad=0.1)  # type: ignore[union-attr, call-arg]
    for axes, source in zip(figure.subplots(len(shown), 1, squeeze=False)[:, 0], shown, strict=True):
        _panel(axes, source)
    if len(sources) > len(shown):
        figure.supxlabel(f"{len(sources) - len(shown)} more files are not drawn", fontsize=8)
    png.write(figure, file)


def _panel(axes: Axes, source: Source) -> None:
    told = [(log, np.isfinite(log.step_time_s) & (log.step_time_s > 0)) for log in source.logs]
    times_s = np.concatenate([log.step_time_s[is_told] for log, is_told in told])
    axes.set_title(source.path, loc="left", fontsize=9, fontfamily="monospace")
    axes.set_xlabel("step", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if not len(times_s):
        axes.text(0.5, 0.5, "no step time to draw", transform=axes.transAxes, ha="center")
        return
    main, everything = shown_log(source), [f.finding for f in source.findings]
    pace_steps, pace_s = baseline(main, everything)
    low_s, high_s = visible_range(times_s)
    high_s = max(high_s, 1.05 * max((_level_s(f, pace_steps, pace_s) for f in everything), default=0.0))
    scale, unit = (1e3, "ms") if high_s < 1 else (1.0, "s")
    axes.set_ylabel(f"step time ({unit})", fontsize=8)
    margin_s = 0.08 * (high_s - low_s)
    # Above the data: room for the names of findings.
    floor, ceiling = max(low_s - margin_s, 0.0) * scale, (high_s + 3.5 * margin_s) * scale
    edge = (high_s + margin_s) * scale
    axes.set_ylim(floor, ceiling)
    for log, is_told in told:
        _dots(axes, log, is_told, scale, edge)
    if len(pace_steps):
        axes.plot(pace_steps, pace_s * scale, color=_BASELINE, linewidth=1.2, zorder=3)
    _beyond(axes, source.logs, times_s, edge, scale)
    _spans(axes, main, everything, [f.finding for f in source.planned])
    _announced(axes, main, floor)


def _dots(axes: Axes, log: StepLog, is_told: np.ndarray[Any, np.dtype[np.bool_]], scale: float, edge: float) -> None:
    rows = np.flatnonzero(is_told)
    rows = rows[:: max(1, len(rows) // _MOST_DOTS)]
    height = log.step_time_s[rows] * scale
    is_inside = height <= edge
    size = 6.0 if len(rows) < 1000 else 2.5 if len(rows) < 8000 else 1.2
    axes.scatter(
        log.step[rows][is_inside], height[is_inside], s=size, color=_SERIES, alpha=0.55, linewidths=0, zorder=2
    )


def _beyond(axes: Axes, logs: Sequence[StepLog], times_s: FloatArray, edge: float, scale: float) -> None:
    """Triangles at the top edge for what does not fit, and how far the furthest goes."""
    steps = np.concatenate([log.step[log.step_time_s * scale > edge] for log in logs])
    if not len(steps):
        return
    axes.scatter(steps, np.full(len(steps), edge), marker="^", s=14, color=_SERIES, linewidths=0, zorder=4)
    axes.annotate(
        f"{len(steps)} beyond the scale (▲), up to {time_words(float(times_s.max()))}",
        (1.0, 1.0),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
        fontsize=8,
        color=_SERIES,
    )


def baseline(log: StepLog, findings: Sequence[Finding], n_points: int = 400) -> tuple[FloatArray, FloatArray]:
    """The pace without the findings: a running median of the rows outside slow spans, carried across these.

    Returns
    -------
    steps, times_s
        Each of shape `(n_points,)` at most.

    """
    is_quiet = np.isfinite(log.step_time_s) & (log.step_time_s > 0)
    for finding in findings:
        span = rows_within(log, finding) if finding.kind in ("slow", "intermittent") else None
        if span is not None:
            is_quiet[slice(*span)] = False
    quiet_s, steps = log.step_time_s[is_quiet], log.step[is_quiet]
    if not len(quiet_s):
        return np.empty(0), np.empty(0)
    half = max(12, len(quiet_s) // 80)
    at = np.unique(np.linspace(0, len(quiet_s) - 1, n_points).astype(int))
    medians_s = np.array([np.median(quiet_s[max(0, i - half) : i + half + 1]) for i in at])
    where = np.linspace(log.step[0], log.step[-1], n_points)
    return where, np.interp(where, steps[at], medians_s)


def _level_s(finding: Finding, steps: FloatArray, pace_s: FloatArray) -> float:
    """The step time that a finding speaks of; 0 where it speaks of none."""
    if finding.magnitude is None or finding.onset is None or finding.onset.step is None or not len(steps):
        return 0.0
    return float(np.interp(finding.onset.step, steps, pace_s)) * (1.0 + min(finding.magnitude, 10.0))


def _spans(axes: Axes, log: StepLog, findings: Sequence[Finding], planned: Sequence[Finding]) -> None:
    length = int(log.step[-1]) - int(log.step[0]) + 1
    axes.set_xlim(int(log.step[0]) - 0.01 * length, int(log.step[-1]) + 0.01 * length)
    in_words: list[str] = []
    for finding in planned:
        span = _steps_within(log, finding)
        if span is None or span[1] - span[0] > _WIDE * length or finding.relief is None:
            in_words += [piece.words for piece in finding.evidence[:1]]
        else:
            seen = max(span[1], span[0] + _THIN * length)  # a pause of one step is to be seen, too
            axes.axvspan(span[0], seen, color=COLOURS["planned"], alpha=0.25, linewidth=0, zorder=1)
    if in_words:
        text = "planned: " + "; ".join(in_words[:2]) + ("; …" if len(in_words) > 2 else "")
        axes.annotate(
            text if len(text) < 150 else text[:147] + "…",
            (0.0, -0.22),
            xycoords="axes fraction",
            fontsize=7.5,
            color=COLOURS["planned"],
            va="top",
        )
    names_end = [-np.inf] * 3  # where the last name on each line of names ends
    for finding in findings:
        span = _steps_within(log, finding)
        if span is None:
            continue
        colour = COLOURS.get(finding.kind, _OTHER)
        if finding.kind == "change":
            axes.axvline(span[0], color=colour, linewidth=1.4, zorder=3)
        else:
            axes.axvspan(*span, color=colour, alpha=0.18, linewidth=0, zorder=1)
        name = finding.kind + (f" {finding.magnitude:+.0%}" if finding.magnitude is not None else "")
        line = next((i for i, end in enumerate(names_end) if end < span[0]), int(np.argmin(names_end)))
        names_end[line] = span[0] + (len(name) + 1) * 0.0075 * length
        axes.annotate(
            name,
            (span[0], 0.985 - 0.065 * line),
            xycoords=("data", "axes fraction"),
            fontsize=8,
            color=colour,
            va="top",
            annotation_clip=False,
        )


def _steps_within(log: StepLog, finding: Finding) -> tuple[float, float] | None:
    rows = rows_within(log, finding)
    if rows is None:
        return None
    first, last = min(rows[0], len(log) - 1), min(rows[1], len(log) - 1)
    return float(log.step[first]), float(max(log.step[last], log.step[first] + 1))


def _announced(axes: Axes, log: StepLog, floor: float) -> None:
    """Rows in which the log itself announced an evaluation or a checkpoint: a mark on the axis."""
    if log.planned:
        steps = log.step[sorted(log.planned)]
        axes.plot(
            steps, np.full(len(steps), floor), "|", color=COLOURS["planned"], markersize=7, clip_on=False, zorder=5
        )
