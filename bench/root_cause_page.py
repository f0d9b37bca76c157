"""The section of `docs/scoreboard.md` on root causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import always_page
from streams.scoring.verdicts import Outcome, VerdictScore

HEADING = "## Root cause\n"

_TEXT = """
Written by

    python -m bench root_cause

which simulates jobs with one cause each, at 16 to 64 ranks ({seeds} seeds per row), and hands what each source would
have seen to the whole pipeline. Half of the jobs have clocks that are up to 50 ms off, half have lost 5 % of their
rows. What is injected, and per source which cases must be named and why, is said in
`simulator/suites/root_cause_jobs.py`; how a case is scored in `streams/scoring/verdicts.py`.

*must* counts the cases whose source shows enough, *named* those of them with the right class and exactly the right
ranks and links. *wrong class* and *wrong word* have the right ranks and links; *suspected* names others as suspected;
*unknown* names nobody; *unseen* is no finding that anybody is told of (what lasts less than `incidents.min_duration_s`,
3 s, is told in the store alone: some of these jobs end before that). *may* counts the other cases: most have nobody to
name. *innocent* is somebody called culprit who is not, in any case: it must be 0.

| source | must | named | % | wrong class | wrong word | suspected | unknown | unseen | may | named | innocent |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""

_EDGES = """
Slow edges of rings and of trees by device times, all of which must be named, by number of ranks:

| ranks | case | cases | ended |
|--:|---|--:|---|
"""

_LARGE = """
At 4,096 ranks, in CPU seconds: *judged* are all events of the job, its whole life; *said* is the longest single event
with which a finding was said, so what a verdict takes once what tells it is there.

| case | source | must | ended | simulated in s | judged in s | said in s |
|---|---|---|---|--:|--:|--:|
"""

_WRONG = """
Cases that ended wrongly, as `source: scenario (seeds)`; `case_of(source, seed)` makes one again.

"""


def section(
    scores: Mapping[str, VerdictScore],
    seeds: int,
    edges: Mapping[tuple[str, int, Outcome], int],
    large: Sequence[tuple[str, str, bool, str, float, float, float]],
    wrong: Mapping[tuple[str, str], Sequence[int]],
) -> str:
    """The whole section, with its heading."""
    lines = [HEADING, _TEXT.format(seeds=seeds)]
    for source, score in scores.items():
        share = "–" if score.named_share is None else f"{100 * score.named_share:.1f}"
        missed = [score.must.get(name, 0) for name in ("wrong class", "wrong word", "suspected", "unknown", "nothing")]
        cells = [
            source,
            score.must_name,
            score.must.get("named", 0),
            share,
            *missed,
            score.cases - score.must_name,
            score.may.get("named", 0),
            score.all_of("innocent"),
        ]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |\n")
    if edges:
        lines.append(_EDGES)
        for n_ranks, name in sorted({(n_ranks, name) for name, n_ranks, _ in edges}):
            ends = {outcome: number for (*of, outcome), number in edges.items() if of == [name, n_ranks]}
            said = ", ".join(f"{outcome} {number}" for outcome, number in sorted(ends.items()))
            lines.append(f"| {n_ranks} | {name} | {sum(ends.values())} | {said} |\n")
    if large:
        lines.append(_LARGE)
        for name, source, must_name, ended, simulated_s, judged_s, said_s in large:
            figures = (name, source, "yes" if must_name else "no", ended, f"{simulated_s:.0f}", f"{judged_s:.0f}")
            lines.append(f"| {' | '.join(figures)} | {said_s:.1f} |\n")
    if wrong:
        lines.append(_WRONG)
        for (source, name), which in sorted(wrong.items()):
            shown = ", ".join(str(seed) for seed in which[:8])
            more = f" and {len(which) - 8} more" if len(which) > 8 else ""
            lines.append(f"- {source}: {name} ({shown}{more})\n")
    return "".join(lines)


def later_sections(page: Path) -> str:
    """What stands on the page behind the sections of `python -m bench detection`; nothing where nothing does."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    first = min((at for at in (text.find(always_page.HEADING), text.find(HEADING)) if at >= 0), default=len(text))
    return "\n" + text[first:] if first < len(text) else ""


def with_section(text: str, written: str) -> str:
    """A page with this section at its end, in place of the one that it had."""
    at = text.find(HEADING)
    return (text if at < 0 else text[:at]).rstrip("\n") + "\n\n" + written
