"""What the ranks of one job say together: the same in the same steps is one finding, not one per rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pacehound.model.events import Finding
from pacehound.model.evidence.levels import InStepTimes
from pacehound.model.step_log import FloatArray, StepLog

_MIN_OVERLAP = 0.5  # of the shorter of two spans, to be the same thing
_MIN_OTHERS = 2  # ranks that were not slow: one alone does not tell which of the two is apart
_MIN_ROWS = 5
_QUIET = 0.25  # of the finding's magnitude: others that moved less than this did not take part

Followed = Sequence[tuple[StepLog, Sequence[Finding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFinding:
    """A finding and the ranks in whose step times it stands; none where the log speaks for the whole job."""

    finding: Finding
    ranks: tuple[int, ...] = ()


def joined(followed: Followed) -> tuple[RankFinding, ...]:
    """Findings of several ranks, those of the same kind in the same steps drawn into one, in order of onset.

    Step times alone say little about who is to blame: in a job whose ranks wait for each other all are slow together.
    Where one rank is slow and two others at least are known not to be, it is `suspected`, and no more.

    Parameters
    ----------
    followed
        The series of one job, each with its findings.

    """
    if len(followed) < 2:
        return tuple(RankFinding(finding=f, ranks=_rank(log)) for log, findings in followed for f in findings)
    waiting = [(log, f) for log, findings in followed for f in findings]
    waiting.sort(key=lambda item: (_span(item[1], item[0])[0], item[0].rank or 0))
    groups = []
    while waiting:
        log, finding = waiting.pop(0)
        members = [(log, finding)]
        for other in list(waiting):
            if all(other[0] is not member for member, _ in members) and _is_same(finding, log, other[1], other[0]):
                waiting.remove(other)
                members.append(other)
        groups.append(members)
    return tuple(_one(members, [log for log, _ in followed]) for members in groups)


def _one(members: list[tuple[StepLog, Finding]], logs: list[StepLog]) -> RankFinding:
    first_log, first = members[0]
    ranks = tuple(sorted(rank for log, _ in members for rank in _rank(log)))
    if first.kind == "planned":
        return RankFinding(finding=first, ranks=ranks)
    is_alone = len(members) == 1 < len(logs) and _is_alone(first_log, first, logs)
    can_name = first.kind in ("slow", "intermittent") and first.verdict == "unknown"
    if is_alone and can_name and first_log.rank is not None:
        first = dataclasses.replace(first, verdict="suspected", culprits=(first_log.rank,), candidates=())
    said = InStepTimes(ranks=ranks, n_in=len(members), n_logs=len(logs), is_alone=is_alone)
    return RankFinding(finding=dataclasses.replace(first, evidence=(*first.evidence, said)), ranks=ranks)


def _is_same(a: Finding, a_log: StepLog, b: Finding, b_log: StepLog) -> bool:
    if a.kind != b.kind:
        return False
    (a_from, a_to), (b_from, b_to) = _span(a, a_log), _span(b, b_log)
    shorter = min(a_to - a_from, b_to - b_from)
    return min(a_to, b_to) - max(a_from, b_from) >= _MIN_OVERLAP * shorter


def _is_alone(log: StepLog, finding: Finding, logs: list[StepLog]) -> bool:
    """Whether the other ranks are known to have kept their pace meanwhile."""
    others = [other for other in logs if other is not log]
    if len(others) < _MIN_OTHERS or not finding.magnitude:
        return False
    growths = [_growth(other, *_span(finding, log)) for other in others]
    return all(growth is not None and abs(growth) < _QUIET * abs(finding.magnitude) for growth in growths)


def _growth(log: StepLog, first: int, last: int) -> float | None:
    """Relative change of the median from as many rows before the span to those in it; `None` of too few."""
    inside = _told(log.step_time_s[(log.step >= first) & (log.step < last)])
    before = _told(log.step_time_s[log.step < first])[-max(len(inside), _MIN_ROWS) :]
    if min(len(inside), len(before)) < _MIN_ROWS:
        return None
    return float(np.median(inside) / np.median(before)) - 1.0


def _told(times_s: FloatArray) -> FloatArray:
    return times_s[np.isfinite(times_s) & (times_s > 0)]


def _rank(log: StepLog) -> tuple[int, ...]:
    return () if log.rank is None else (log.rank,)


def _span(finding: Finding, log: StepLog) -> tuple[int, int]:
    """Its first step and the first step after it."""
    end = int(log.step[-1]) + 1 if len(log) else 1
    first = finding.onset.step if finding.onset is not None and finding.onset.step is not None else 0
    last = finding.relief.step if finding.relief is not None and finding.relief.step is not None else end
    return first, max(last, first + 1)
