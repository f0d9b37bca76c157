"""Which promises say no more than that ranks go on: of those stage two is told now and then.

Each host of a large job says each second how far its ranks are on each of its communicators: 37,000 promises of
16,384 ranks. Stage one counts by them what is lost. Stage two wants to know where ranks stand; that they go on, rounds
say as well.
"""

from __future__ import annotations

from pacehound.model.events import Progress
from streams.rounds.thresholds import OPEN_LONG_NS, TOLD_EVERY_NS


def worth_telling(promise: Progress, before: Progress | None, *, before_is_told: bool) -> tuple[Progress, ...]:
    """What stage two is to hear of a promise, behind the one that the same host has given before.

    It is told

    - where anything is new in it but how far ranks are;
    - where no rank has moved, or one stands in a call;
    - where one did before: it may have gone on;
    - and all `TOLD_EVERY_NS`, of all hosts in the same second, so that ranks can be compared.

    Where they have not moved the one before is told with it, if it was not: since when is seen by that.

    Examples
    --------
    >>> from pacehound.model.events import OpenCall, RankProgress
    >>> def promise(second: float, launched: int, opened: float | None = None) -> Progress:
    ...     since_ns = None if opened is None else round(opened * 1e9)
    ...     call = {"seq": launched, "op": "all_reduce", "count": 1, "dtype": "float32", "launch_ns": since_ns}
    ...     calls = () if opened is None else (OpenCall(**call),)
    ...     ranks = (RankProgress(rank=0, last_launched=launched, last_completed=launched - len(calls), open=calls),)
    ...     return Progress(job="j", attempt=0, time_ns=round(second * 1e9), host="h", communicator="c", ranks=ranks)
    >>> at = [promise(4, 7), promise(5, 9, opened=4.9), promise(6, 9, opened=4.9), promise(7, 11)]
    >>> worth_telling(at[0], None, before_is_told=False) == (at[0],)
    True
    >>> worth_telling(at[1], at[0], before_is_told=True)
    ()
    >>> worth_telling(at[2], at[1], before_is_told=False) == (at[1], at[2])  # it stands
    True
    >>> worth_telling(at[3], at[2], before_is_told=True) == (at[3],)  # no more
    True
    >>> idle = [promise(5, 9), promise(6, 9)]
    >>> worth_telling(idle[1], idle[0], before_is_told=False) == tuple(idle)  # nor has it launched anything
    True
    >>> after_four_seconds = promise(8, 30)
    >>> worth_telling(after_four_seconds, at[3], before_is_told=True) == (after_four_seconds,)
    True

    """
    if before is None:
        return (promise,)
    if _stands(promise) or promise.ranks == before.ranks:
        return (promise,) if before_is_told else (before, promise)
    is_new = promise.edges or _lasting(promise) != _lasting(before)
    return (promise,) if is_new or _stands(before) else ()


def _lasting(promise: Progress) -> tuple[object, ...]:
    return (
        promise.time_ns // TOLD_EVERY_NS,
        promise.announced,
        promise.dropped_total,
        promise.marks_iterations,
        promise.sees_completion,
        promise.captured_total,
        promise.closed,
        promise.skipped_rounds,
    )


def _stands(promise: Progress) -> bool:
    """One of its ranks has been in a call for long."""
    before_ns = promise.time_ns - OPEN_LONG_NS
    for theirs in promise.ranks:
        for call in theirs.open:
            if call.launch_ns <= before_ns:
                return True
    return False
