"""Prices of windows -> whether a job straggles, why, and what would mend it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pacehound.model.events import Finding, Instant, WhatIfPrice
from pacehound.model.evidence import Evidence, merged
from pacehound.model.evidence.straggling import NO_KNOWN_CAUSE, Mend, Straggles
from pacehound.model.identity import event_id
from pacehound.model.whatif_result import MOST_DISCREPANCY, STRAGGLING, Pattern
from streams.watching.waking import slowness_wakes
from streams.whatif.tensor_groups import NO_GROUPS, TensorGroups
from streams.whatif.thresholds import WINDOWS_IN_A_ROW


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedWindow:
    """What a window of recorded steps costs, and the cause that explains most of it.

    Attributes
    ----------
    cause
        The name of its pattern; "none of these" where it shows none, or costs too little to have one.
    ranks
        World ranks of the workers that the cause is about, where it is about some and not about all.
    evidence
        What says so, and what would mend it.
    began_ns
        Event time of the first operation.

    """

    price: WhatIfPrice
    cause: str
    ranks: tuple[int, ...]
    evidence: tuple[Evidence, ...]
    began_ns: int = 0

    @property
    def straggles(self) -> bool:
        """Whether it costs as much as the paper's straggling jobs do."""
        return self.price.slowdown >= STRAGGLING


def priced_window(
    price: WhatIfPrice, patterns: Sequence[Pattern], groups: TensorGroups = NO_GROUPS, began_ns: int = 0
) -> PricedWindow:
    """A window and its patterns, the one that explains most first; a worker is all ranks of its group."""
    if not patterns:
        return PricedWindow(price=price, cause=NO_KNOWN_CAUSE, ranks=(), evidence=(), began_ns=began_ns)
    first = patterns[0]
    mends = [Mend(what=one.action, gain=one.gain if one.gain > 0 else None) for one in first.remedies]
    if not mends and price.fixes:
        best = price.fixes[0]
        mends = [Mend(what=f"{best.what} {best.name}", gain=best.gain, is_part=True)]
    return PricedWindow(
        price=price,
        cause=first.name,
        ranks=tuple(sorted({rank for one in first.ranks for rank in groups.ranks(one)})),
        evidence=merged(first.evidence, mends),
        began_ns=began_ns,
    )


class Straggling:
    """Whether one attempt of a job straggles: it does, and no longer does, when some windows in a row say so.

    A window whose simulation is not to be believed says neither. A worker is `suspected`, for a simulation shows whose
    operations are long and not why; other causes have no culprit.
    """

    def __init__(self, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._windows: deque[PricedWindow] = deque(maxlen=WINDOWS_IN_A_ROW)
        self.finding: Finding | None = None
        """What was said last, while it lasts."""

    @property
    def waste(self) -> float:
        """Share of the time that the stragglers cost in the last window."""
        return max(self._windows[-1].price.waste, 0.0) if self._windows else 0.0

    def on_window(self, window: PricedWindow, *, is_told: bool = False) -> list[Finding]:
        """The next window; what is to be said now.

        With `is_told` the job's slowness is an incident already, and bears its price: only a name would be news.
        """
        if window.price.discrepancy > MOST_DISCREPANCY:
            return []
        self._windows.append(window)
        if len(self._windows) < WINDOWS_IN_A_ROW:
            return []
        said = self._windows
        if self.finding is None:
            if not all(one.straggles for one in said):
                return []
            found = self._found(tuple(said))
            if is_told and not found.culprits:
                return []
            self.finding = found
            return [found]
        if any(one.straggles for one in said):
            return []
        relief = Instant(step=said[0].price.first_step, time_ns=said[0].began_ns)
        now = Straggles(
            slowdown=_median_slowdown(said),
            first_step=said[0].price.first_step,
            last_step=said[-1].price.last_step,
            n_windows=len(said),
            is_over=True,
        )
        over, self.finding = self.finding.next_version(now, relief=relief), None
        return [over]

    def _found(self, windows: Sequence[PricedWindow]) -> Finding:
        first, last = windows[0], windows[-1]
        cause = last.cause if len({window.cause for window in windows}) == 1 else ""
        ranks = set(first.ranks).intersection(*(window.ranks for window in windows))
        if first.ranks and not ranks:
            cause = ""  # now these workers, now others
        is_named = cause == "single worker"
        culprits = tuple(sorted(ranks)) if is_named else ()
        slowdown = _median_slowdown(windows)
        return Finding(
            id=event_id("slow", self._job, self._attempt, "what-if", first.price.first_step),
            job=self._job,
            attempt=self._attempt,
            kind="slow",
            verdict="suspected" if is_named else "unknown",
            cause="S1" if is_named else None,
            culprits=culprits,
            candidates=() if is_named or not cause else tuple(sorted(ranks)),
            victims=tuple(rank for rank in range(last.price.ranks) if rank not in culprits) if culprits else (),
            onset=Instant(step=first.price.first_step, time_ns=first.began_ns),
            detected=Instant(step=last.price.last_step, time_ns=last.price.time_ns),
            magnitude=slowdown - 1,
            lasting=True,
            pages=slowness_wakes(slowdown - 1, is_lasting=True, is_named=is_named, min_change=STRAGGLING - 1),
            evidence=(
                Straggles(
                    slowdown=slowdown,
                    first_step=first.price.first_step,
                    last_step=last.price.last_step,
                    n_windows=len(windows),
                    cause=cause,
                    causes=() if cause else tuple((one.cause, one.ranks) for one in windows),
                ),
                *(last.evidence if cause else ()),
            ),
            unseen=("why its operations take longer: a simulation shows whose they are",) if is_named else (),
        )


def _median_slowdown(windows: Sequence[PricedWindow]) -> float:
    return sorted(window.price.slowdown for window in windows)[len(windows) // 2]
