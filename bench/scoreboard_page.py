"""`docs/scoreboard.md` out of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.exactness import Exactness
from pacehound.model.events import Finding
from pacehound.model.truth.steps import StepTruth
from simulator.suites.step_times import POPULATIONS
from streams.scoring.evaluate import Score

_HEADER = """\
# Scoreboard

Written by

    python -m bench detection

which runs every detector over {recordings} recordings of real training runs and over synthetic jobs (seeds {seeds}).
What counts as found, as a false alarm, as a repeat or as excused is said in `streams/scoring/evaluate.py`,
what the synthetic jobs are made of in `simulator/suites/step_times.py`, and the answers about the recordings stand in
`bench/recordings.json`.
The same figures are in the JSON that the command writes. Nothing here depends on the speed of a machine.

- *sliding window*: a median of 10 steps that is 10 % off the median of 500.
- *BOCD*: every changepoint is believed; no verification.
- *BOCD + verification*: changes of at least 10 %, verified (`StepWatch(small_changes=False)`).
- *Pacehound*: the same with drifts and small changes (`StepWatch()`).

*found* counts faults, *false* alarms about nothing, *repeat* further alarms inside a fault, *excused* alarms about a
weak fault or about a change that was planned and that nothing in the log explains. *delay* is in iterations after the
first affected one, *relief* in iterations after the last (negative: called over while it lasted). *slow covered* is the
share of the slow steps inside a finding, *quiet slow* that of the quiet steps, *noted* counts the intermittent episodes
and speed-ups that were reported as what they are. *series right*: nothing missed, no false alarm.
"""

_FALCON = """\
## Falcon's tables 4 and 5

Its own figures, on its own traces with human labels, which are not public: they are here for comparison, not
competition. `one_node` and `four_node` have the same sizes: 392 jobs with 6 slow (computation) and 107 with 43 slow
(communication), 10,000 iterations each; ours are counted over all seeds. Accuracy is the share of jobs with neither a
miss nor a false alarm, FPR that of the jobs without a fault which have a false alarm, FNR that of the slow jobs with a
miss. (Falcon adds the wrong jobs to the denominators of FPR and FNR as well.) Our jobs have correlated jitter, pauses,
warm-up and patterns, which plain BOCD takes for changes: it does worse here than there.

| jobs | detector | accuracy % | FPR % | FNR % | whose |
|---|---|--:|--:|--:|---|
| computation | sliding window | 99.5 (390/392) | 0.0 (0/386) | 25.0 (2/8) | Falcon |
| computation | BOCD | 77.8 (305/392) | 18.4 (87/473) | 0.0 (0/6) | Falcon |
| computation | BOCD + verification | 100.0 (392/392) | 0.0 (0/386) | 0.0 (0/6) | Falcon |
{computation}
| communication | sliding window | 93.5 (100/107) | 1.5 (1/65) | 12.2 (6/49) | Falcon |
| communication | BOCD | 69.2 (74/107) | 34.0 (33/97) | 0.0 (0/43) | Falcon |
| communication | BOCD + verification | 99.1 (106/107) | 0.0 (0/64) | 2.3 (1/44) | Falcon |
{communication}
"""

_WRONG = """\
## What Pacehound gets wrong

Every synthetic series in which it misses a fault or raises a false alarm.

"""

_UNSEEN = """\
## A seed that nobody has tuned on

Drawn when this page was written: {seed}. Pacehound alone, as many series as of each seed above.

"""

_RECORDINGS = """\
## Recordings

What was expected of each, and what Pacehound said about it. Steps from the first of the new level
to the first after it (*on*: to the end); in square brackets the step after which it was first said. A log may have one
row for 50 steps; a change can then be told no more finely.

"""

_EXACT = """\
## The exact posterior

BOCD gives up run lengths that have become improbable (`PRUNE` in `streams/level/bocd.py`). Every series below was
followed with the whole posterior, too (`ChangepointDetector(exact=True)`), and the changes compared: their kind,
their first step and the step at which they were said.

| series | changes | series with any difference |
|--:|--:|--:|
| {series:,} | {changes:,} | {different} |
"""

_COLUMNS = (
    "detector",
    "found",
    "recall",
    "false",
    "per 1,000",
    "precision",
    "repeat",
    "excused",
    "delay median",
    "p95",
    "max",
    "relief median",
    "max",
    "slow covered %",
    "quiet slow %",
    "noted",
    "series right %",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A series that a detector got wrong."""

    method: str
    name: str
    seed: int
    missed: int
    false_alarms: int


@dataclass(frozen=True, slots=True)
class Unseen:
    """Our scores by suite, of a seed that was drawn when the page was written."""

    seed: int
    scores: Mapping[str, Score]
    wrong: Sequence[Wrong]


def page(
    synthetic: Mapping[tuple[str, str], Score],
    recorded: Mapping[tuple[str, str], Score],
    methods: Sequence[str],
    seeds: Sequence[int],
    answers: Sequence[Recorded],
    wrong: Sequence[Wrong],
    exactness: Exactness,
    unseen: Unseen,
) -> str:
    """The whole page, from scores by (suite or recording, method)."""
    parts = [_HEADER.format(recordings=len(recorded) // len(methods), seeds=", ".join(map(str, seeds)))]
    parts.append(
        _FALCON.format(
            computation=_as_falcon(synthetic, "computation", "one_node", methods),
            communication=_as_falcon(synthetic, "communication", "four_node", methods),
        )
    )
    parts.append(_WRONG + _wrong([one for one in wrong if one.method == methods[-1]]))
    named = f" ({', '.join(exactness.different)})" if exactness.different else ""
    different = f"{len(exactness.different)}{named}"
    parts.append(_EXACT.format(series=exactness.series, changes=exactness.changes, different=different))
    parts.append("## Synthetic jobs\n")
    for name, population in POPULATIONS.items():
        scores = [synthetic[name, method] for method in methods]
        parts.append(f"### {name}: {scores[0].series} series, {scores[0].iterations:,} iterations\n")
        parts.append(f"{population.about}\n")
        parts.append(_table(methods, scores))
    parts.append(_UNSEEN.format(seed=unseen.seed) + _table(list(unseen.scores), list(unseen.scores.values()), "jobs"))
    parts.append("What it gets wrong there:\n\n" + _wrong(unseen.wrong))
    names = list(dict.fromkeys(name for name, _ in recorded))
    parts.append(_RECORDINGS + _recorded(answers))
    parts.append("All together, then one by one.\n")
    parts.append(_table(methods, [Score.total(recorded[name, method] for name in names) for method in methods]))
    labels = [f"{name}, {method}" for name in names for method in methods]
    parts.append(_table(labels, [recorded[name, method] for name in names for method in methods]))
    return "\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What Pacehound had to say about a recording, and what it said, in words."""

    name: str
    n_steps: int
    expected: str
    said: str


def expected_words(truth: StepTruth) -> str:
    """The true changes of a series.

    >>> from pacehound.model.truth.steps import TrueChange
    >>> change = TrueChange(kind="slow", onset=2800, end=3500, magnitude=0.1)
    >>> expected_words(StepTruth(first_step=0, last_step=9000, changes=(change,)))
    'slow from 2,800 to 3,500 (+10 %)'
    """
    return "; ".join(
        _words(change.kind, change.onset, change.end, change.magnitude) + ("" if change.is_required else ", optional")
        for change in truth.changes
    )


def said_words(findings: Sequence[Finding]) -> str:
    """The last version of every finding; the step in brackets is that after which it was first said."""
    said = []
    for one in {finding.id: finding for finding in findings}.values():
        onset, detected, relief = (None if at is None else at.step for at in (one.onset, one.detected, one.relief))
        words = _words(one.kind, onset or 0, relief, one.magnitude)
        said.append(f"{words}{'' if one.lasting or one.kind == 'intermittent' else ', not lasting'} [{detected:,}]")
    return "; ".join(said)


def _words(kind: str, first: int, end: int | None, magnitude: float | None) -> str:
    until = "on" if end is None else f"to {end:,}"
    change = "" if magnitude is None else f" ({100 * magnitude:+.0f} %)"
    return f"{kind} from {first:,} {until}{change}"


def _recorded(recorded: Sequence[Recorded]) -> str:
    lines = ["| recording | steps | expected | said by Pacehound |", "|---|--:|---|---|"]
    lines += [
        f"| {one.name} | {one.n_steps:,} | {one.expected or 'nothing'} | {one.said or 'nothing'} |" for one in recorded
    ]
    return "\n".join(lines) + "\n"


def _wrong(wrong: Sequence[Wrong]) -> str:
    if not wrong:
        return "None.\n"
    lines = ["| series | seed | missed | false alarms |", "|---|--:|--:|--:|"]
    lines += [f"| {one.name} | {one.seed} | {one.missed} | {one.false_alarms} |" for one in wrong]
    return "\n".join(lines) + "\n"


def _as_falcon(scores: Mapping[tuple[str, str], Score], jobs: str, suite: str, methods: Sequence[str]) -> str:
    rows = []
    for method in methods:
        one = scores[suite, method]
        clean = one.series - one.series_with_fault
        cells = (
            _of(one.series - one.series_wrong, one.series),
            _of(one.clean_series_with_false_alarm, clean),
            _of(one.series_with_miss, one.series_with_fault),
        )
        rows.append(f"| {jobs} | {method} | {' | '.join(cells)} | ours |")
    return "\n".join(rows)


def _of(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} ({part}/{whole})" if whole else "–"


def _table(labels: Sequence[str], scores: Sequence[Score], of: str = _COLUMNS[0]) -> str:
    """Columns that say nothing about these series are left out."""
    rows = [_cells(label, one) for label, one in zip(labels, scores, strict=True)]
    kept = [i for i in range(len(_COLUMNS)) if any(row[i] not in ("–", "0/0") for row in rows)]
    lines = [
        "| " + " | ".join([of, *(_COLUMNS[i] for i in kept[1:])]) + " |",
        "|---" + "|--:" * (len(kept) - 1) + "|",
        *("| " + " | ".join(row[i] for i in kept) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _cells(label: str, one: Score) -> tuple[str, ...]:
    return (
        label,
        f"{one.found}/{one.expected}",
        _number(one.recall, 3),
        str(one.false_alarms),
        _number(one.false_alarms_per_1000, 4),
        _number(one.precision, 3),
        str(one.repeats) if one.expected else "–",
        str(one.excused) if one.excused else "–",
        _number(one.delay(0.5), 0),
        _number(one.delay(0.95), 0),
        _number(one.delay(1.0), 0),
        _number(one.relief_delay(0.5), 0),
        _number(one.relief_delay(1.0), 0),
        _number(one.slow_share_covered, 1, 100.0),
        _number(one.quiet_share_called_slow, 2, 100.0),
        f"{one.notes_found}/{one.notes_expected}",
        _number(one.accuracy, 1, 100.0),
    )


def _number(value: float | None, digits: int, times: float = 1.0) -> str:
    return "–" if value is None else f"{times * value:.{digits}f}"
