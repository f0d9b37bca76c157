"""The answer as a page for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from pacehound.model.events import Finding
from pacehound.model.evidence.phrases import ranks_words
from pacehound.model.step_log import StepLog
from pacehound.pages.analysis.answer import Analysis, Source
from pacehound.pages.analysis.call_page import call_source_page
from pacehound.pages.analysis.ranks import RankFinding
from pacehound.pages.analysis.scale import time_words
from pacehound.pages.analysis.strip import drawing
from pacehound.pages.incidents import finding_block, headline, print_parts, when_words
from pacehound.pages.terminal import WIDTH

_MOST_REFUSED = 10
_MOST_PLANNED = 10


def print_analysis(console: Console, analysis: Analysis) -> None:
    """Every file, with a blank line between; then what could not be read."""
    pages = [call_source_page(source) for source in analysis.calls] + [source_page(s) for s in analysis.sources]
    print_parts(console, [*pages, *([_refused(analysis)] if analysis.refused else [])])


def source_page(source: Source) -> RenderableType:
    """One file: what it is, what was found, what is planned, and a drawing."""
    parts: list[RenderableType] = [_title(source)]
    parts += [Padding(Text(f"note: {note}", style="dim"), (0, 0, 0, 2)) for note in source.notes]
    if not source.findings:
        parts.append(Padding(Text("Nothing to report.", style="green"), (1, 0, 0, 2)))
    for found in source.findings:
        block = finding_block(found.finding, title=title(found), ongoing="the end of the log")
        parts.append(Padding(block, (1, 0, 0, 2)))
    if source.planned:
        parts.append(Padding(_planned(source.planned), (1, 0, 0, 2)))
    shown = shown_log(source)
    found_in_it = [f.finding for f in (*source.planned, *source.findings) if not f.ranks or shown.rank in f.ranks]
    if lines := drawing(shown, found_in_it, width=WIDTH):
        if len(source.logs) > 1:
            lines = [f"rank {shown.rank}", *lines]
        parts.append(Padding(Text("\n".join(lines), no_wrap=True), (1, 0, 0, 0)))
    return Group(*parts)


def shown_log(source: Source) -> StepLog:
    """The series to draw of several: that with most findings, the first of equals."""
    return max(source.logs, key=lambda log: sum(log.rank in found.ranks for found in source.findings))


def title(found: RankFinding) -> str:
    """What it is, in one line.

    >>> slow = Finding(id="f", job="j", attempt=0, kind="slow", verdict="unknown", cause=None)
    >>> title(RankFinding(finding=slow)), title(RankFinding(finding=slow, ranks=(0, 1)))
    ('Steps take longer', 'Steps take longer on ranks 0-1')
    """
    finding = found.finding
    if finding.culprits or finding.links:
        return headline(finding)
    where = f" on {ranks_words(found.ranks)}" if found.ranks else ""
    return _what(finding) + where


def _what(finding: Finding) -> str:
    if finding.kind == "slow":
        return "Steps take longer"
    if finding.kind == "intermittent":
        return "Single steps took long" if finding.magnitude is None else "Steps are slow again and again"
    if finding.kind == "change":
        return "Steps take less time" if (finding.magnitude or 0.0) < 0 else "The work of the steps has changed"
    return headline(finding)


def _title(source: Source) -> Text:
    log = source.logs[0]
    ranks = f", {len(source.ranks)} ranks" if len(source.logs) > 1 else ""
    median_s = source.median_step_time_s
    pace = f"median {time_words(median_s)}" if median_s is not None else "no step time"
    text = Text(source.path, style="bold", overflow="fold")
    first, last = min(int(one.step[0]) for one in source.logs), max(int(one.step[-1]) for one in source.logs)
    return text.append(f"\n{log.format}{ranks}, {source.steps} steps ({first} to {last}), {pace}", style="not bold")


def _planned(planned: Sequence[RankFinding]) -> RenderableType:
    parts: list[RenderableType] = [Text("Planned (nothing to do)", style="bold")]
    for found in planned[:_MOST_PLANNED]:
        finding = found.finding
        since = f"since {when_words(finding.onset)}: " if finding.onset is not None else ""
        said = "; ".join(piece.words for piece in finding.evidence[:2]) or "as planned"
        parts.append(Padding(Text(since + said), (0, 0, 0, 2)))
    if len(planned) > _MOST_PLANNED:
        parts.append(Padding(Text(f"… and {len(planned) - _MOST_PLANNED} more (--json has them all)"), (0, 0, 0, 2)))
    return Group(*parts)


def _refused(analysis: Analysis) -> RenderableType:
    lines = [Text(f"{one.path}: {one.reason}", overflow="fold") for one in analysis.refused[:_MOST_REFUSED]]
    more = len(analysis.refused) - len(lines)
    rest = [Text(f"… and {more} more (--json has them all)")] if more > 0 else []
    return Group(Text("Not read:", style="bold yellow"), *(Padding(line, (0, 0, 0, 2)) for line in (*lines, *rest)))
