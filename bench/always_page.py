"""The section of `docs/scoreboard.md` on jobs that are slow from their first step."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

HEADING = "## Slow from the first step\n"
NEXT = "## Root cause\n"
"""It stands before this section, which goes on to the end of the page."""

_TEXT = """
Written by

    python -m bench always

which simulates jobs whose rank, host or link is slow from step 0 on, so that iterations are 10 % to 60 % longer than
in the same job without the fault, and hands 100 iterations of each to the whole pipeline. What the jobs are made of is
said in `simulator/suites/always_slow_jobs.py`: sequences of unequal length, unequal stages, a last stage that is
heavier, pace that wanders, a rank 0 that logs and saves. The clean ones are of the same kinds. Findings of kind `slow`
count: pauses that come and go are of another kind, and for another suite.

*named*: exactly the slow ranks, or the link, as culprit or suspected. *group*: the communicator of a link whose source
has no rates to show it. *innocent*: somebody called culprit who is not: it must be 0. *others*: others are suspected.
*nobody*: it was seen, and nobody was named. *step*: when it was said, in the median and at the latest.

| jobs | cases | named | group | found % | innocent | others | nobody | unseen | step | latest |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""

_WRONG = """
Cases that ended otherwise; `case_of(fault, seed)` makes one again.

"""


def section(
    ends: Mapping[tuple[str, str, str], int],
    steps: Mapping[str, Sequence[int]],
    wrong: Mapping[tuple[str, str], Sequence[str]],
) -> str:
    """The whole section; `ends` counts cases by row, condition and how they ended."""
    lines = [HEADING, _TEXT]
    clean: dict[str, int] = {}
    for row in dict.fromkeys(row for row, _, _ in ends):
        counts: dict[str, int] = {}
        for (of, _, ended), n in ends.items():
            if of == row:
                counts[ended] = counts.get(ended, 0) + n
        if row.startswith("clean"):
            clean = {ended: clean.get(ended, 0) + counts.get(ended, 0) for ended in ("quiet", "false")}
            continue
        n_cases, n_found = sum(counts.values()), counts.get("named", 0) + counts.get("group", 0)
        cells = [row, n_cases, counts.get("named", 0), counts.get("group", 0), f"{100 * n_found / n_cases:.1f}"]
        cells += [counts.get(ended, 0) for ended in ("innocent", "others suspected", "nobody", "missed")]
        said = steps.get(row, ())
        cells += [round(statistics.median(said)), max(said)] if said else ["–", "–"]
        lines.append("| " + " | ".join(map(str, cells)) + " |\n")
    if clean:
        lines.append(f"\nClean jobs with a finding: {clean['false']} of {sum(clean.values())}.\n")
    if wrong:
        lines.append(_WRONG)
        lines += [f"- {row}, {ended}: {'; '.join(which)}\n" for (row, ended), which in sorted(wrong.items())]
    return "".join(lines)


def with_section(text: str, written: str) -> str:
    """A page with this section in place of the one that it had, before the last one."""
    at = text.find(HEADING)
    after = text.find(NEXT)
    before = text[: at if at >= 0 else after if after >= 0 else len(text)].rstrip("\n")
    return before + "\n\n" + written + ("\n" + text[after:] if after >= 0 else "")
