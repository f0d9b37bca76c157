"""Slowdowns that are over before they are worth a person's attention: counted, and told where they add up."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from pacehound.model.events import Finding, Instant
from pacehound.model.evidence.levels import ManyShort, NamedOften
from pacehound.model.evidence.life import Over
from pacehound.model.identity import event_id
from streams.job.thresholds import MAX_SHORT_KEPT, MIN_SHORT, NAMED_IN_MOST, SHORT_WINDOW_NS

IsCrowded = Callable[[int, float], bool]
"""Whether the job's machines may be what took such a share of the time since then."""


@dataclass(frozen=True, slots=True)
class _Short:
    onset_ns: int
    relief_ns: int
    excess_s: float
    culprits: tuple[int, ...]


class ShortSlowdowns:
    """Those of one attempt of a job.

    They are one finding of kind `intermittent` when there are `MIN_SHORT` of them in ten minutes that cost `min_loss`
    of the time, and until there are none any more; not while its machines are crowded, where they come with the work
    of others. How many there were at all is said when the job ends.
    """

    def __init__(self, job: str, attempt: int, min_loss: float) -> None:
        self._job = job
        self._attempt = attempt
        self._min_loss = min_loss
        self._recent: deque[_Short] = deque(maxlen=MAX_SHORT_KEPT)
        self._count = 0
        self._excess_s = 0.0
        self._began_ns: int | None = None  # the job
        self._finding: Finding | None = None

    def add(self, finding: Finding, excess_s: float) -> None:
        """One that is over."""
        self._count += 1
        self._excess_s += excess_s
        if finding.onset is not None and finding.relief is not None:
            culprits = finding.culprits
            self._recent.append(_Short(finding.onset.time_ns, finding.relief.time_ns, excess_s, culprits))

    def excess_s(self, finding: Finding) -> float:
        """What those of the last minutes have cost, of which the finding tells."""
        return sum(short.excess_s for short in self._recent)

    def on_tick(self, at: Instant, is_crowded: IsCrowded = lambda _since_ns, _share: False) -> list[Finding]:
        """They add up, or do so no longer."""
        if self._began_ns is None:
            self._began_ns = at.time_ns
        since_ns = max(at.time_ns - SHORT_WINDOW_NS, self._began_ns)
        while self._recent and self._recent[0].relief_ns < since_ns:
            self._recent.popleft()
        if self._finding is not None:
            if self._recent:
                return []
            told, self._finding = self._finding, None
            return [told.next_version(Over(why="no more short ones"), relief=at)]
        lost_s = sum(short.excess_s for short in self._recent)
        is_much = lost_s >= self._min_loss * SHORT_WINDOW_NS / 1e9  # of the whole window, also while the job is young
        if len(self._recent) < MIN_SHORT or not is_much:
            return []
        first = self._recent[0]
        if is_crowded(first.onset_ns, lost_s / max((at.time_ns - first.onset_ns) / 1e9, lost_s)):
            return []
        named = Counter(rank for short in self._recent for rank in short.culprits)
        culprits = tuple(sorted(rank for rank, n in named.items() if n >= NAMED_IN_MOST * len(self._recent)))
        in_all = ManyShort(n=len(self._recent), lost_s=lost_s)
        who = (NamedOften(ranks=culprits),) if culprits else ()
        self._finding = Finding(
            id=event_id("intermittent", self._job, self._attempt, "short", first.onset_ns),
            job=self._job,
            attempt=self._attempt,
            kind="intermittent",
            verdict="suspected" if culprits else "unknown",
            cause=None,
            culprits=culprits,
            onset=Instant(step=None, time_ns=first.onset_ns),
            detected=at,
            magnitude=lost_s * 1e9 / SHORT_WINDOW_NS,
            lasting=True,
            evidence=(in_all, *who),
            unseen=() if culprits else ("whose delay it is: they were too short, or not of one rank",),
        )
        return [self._finding]

    def on_end(self, at: Instant) -> list[Finding]:
        """How many there were, as a finding that wakes nobody."""
        if not self._count or self._began_ns is None:
            return []
        share = self._excess_s / max((at.time_ns - self._began_ns) / 1e9, 1e-9)
        return [
            Finding(
                id=event_id("intermittent", self._job, self._attempt, "all short"),
                job=self._job,
                attempt=self._attempt,
                kind="intermittent",
                verdict="unknown",
                cause=None,
                onset=Instant(step=None, time_ns=self._began_ns),
                detected=at,
                relief=at,
                magnitude=share,
                evidence=(ManyShort(n=self._count, lost_s=self._excess_s, share=share),),
            )
        ]
