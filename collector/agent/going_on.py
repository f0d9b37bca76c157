"""Which promises say no more than that ranks go on: of those a host of a large job says only up to when they hold.

Each host of a job that is told call by call says each second how far its ranks are on each of its communicators: 37,000
promises of 16,384 ranks. Whoever looks for hangs wants to know where ranks stand. That they go on their rounds say as
well, and up to when all has been told a heartbeat says, of many communicators at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from collector.agent.said_in_full import key_of, lasting
from pacehound.model.events import Progress
from pacehound.model.shards import Place

TOLD_EVERY_NS = 4_000_000_000
"""How far ranks are that go on is told so often (derived: as seldom as agents of even jobs say it, `SELDOM_FLUSHES` of
`flush_times.py`)."""

OPEN_LONG_NS = 500_000_000
"""A call that is open for so long is told at once: its rank may stand (chosen: behind an exit all who stand have said
so within a flush and a half, and they are waited for for two, `SETTLE_NS` of `streams/hang/thresholds.py`)."""


class _Last(NamedTuple):
    """What was promised last of a communicator, and whether it was said."""

    promise: Progress
    is_said: bool


class GoingOn:
    """What a host has promised last of each communicator that it tells of at home.

    Examples
    --------
    >>> from pacehound.model.events import RankProgress
    >>> def promise(second, launched):
    ...     ranks = (RankProgress(rank=0, last_launched=launched, last_completed=launched),)
    ...     return Progress(job="j", attempt=0, time_ns=second * 10**9, host="h", communicator="c", ranks=ranks)
    >>> known, at, home = GoingOn(), [promise(4, 7), promise(5, 9), promise(6, 9)], {"c": Place(0, is_home=True)}
    >>> known.parted(at[:1], home) == (at[:1], [])
    True
    >>> known.parted(at[1:2], home) == ([], at[1:2])  # its rank goes on
    True
    >>> known.parted(at[2:], home) == (at[1:], [])  # it stands
    True
    >>> GoingOn().parted(at, {"c": Place(0, is_home=False)}) == (at, [])
    True

    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], _Last] = {}

    def parted(
        self, promised: Iterable[Progress], places: Mapping[str, Place]
    ) -> tuple[list[Progress], list[Progress]]:
        """Promises to be said, in their order, and those of which only up to when they hold is."""
        said: list[Progress] = []
        in_short: list[Progress] = []
        for one in promised:
            if not places[one.communicator].is_home:
                said.append(one)
                continue
            last = self._last.pop(key_of(one), None)
            told = worth_telling(one, last.promise if last else None, before_is_told=last is not None and last.is_said)
            said += told
            if not told:
                in_short.append(one)
            if not one.closed:
                self._last[key_of(one)] = _Last(one, bool(told))
        return said, in_short


def worth_telling(promise: Progress, before: Progress | None, *, before_is_told: bool) -> tuple[Progress, ...]:
    """What is to be said of a promise, behind the one that the same host has given before.

    It is said

    - where anything is new in it but how far ranks are;
    - where no rank has moved, or one stands in a call;
    - where one did before: it may have gone on;
    - and all `TOLD_EVERY_NS`, of all hosts in the same second, so that ranks can be compared.

    Where they have not moved the one before is said with it, if it was not: since when is seen by that.

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
    is_time = promise.time_ns // TOLD_EVERY_NS != before.time_ns // TOLD_EVERY_NS
    is_new = is_time or promise.edges or lasting(promise) != lasting(before)
    return (promise,) if is_new or _stands(before) else ()


def _stands(promise: Progress) -> bool:
    """One of its ranks has been in a call for long."""
    before_ns = promise.time_ns - OPEN_LONG_NS
    return any(call.launch_ns <= before_ns for theirs in promise.ranks for call in theirs.open)
