"""Turns the counts of probing frames into rates: how fast a running call moves, since when it does not (CCL-D 4.1.2).

The paper's diagnostic thread is the agent's own loop: no thread of ours in somebody's training process, and what a rank
did last can still be said when it hangs or is dead. It looks every `agent.poll_s` (50 ms), not every millisecond, so a
rate is what passed in the last window, `dC/dt`; calls that are over have theirs from the plugin, by the millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collector.calls.frames import UNTOLD, Counts, FrameLook, Moved, Operation

WINDOW_NS = 100_000_000
"""A rate is over at least this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """How far one running operation is, by channel (modulo 8); times are monotonic.

    Attributes
    ----------
    counts, announced
        Network transfers (sent, received) that are done, and that were announced so far; `UNTOLD` where none were.
    rates
        The same per millisecond, over the last window; `None` before the first one is over, and where nothing is told.
    seen_since_ns
        When the operation was first seen.
    still_since_ns
        When a channel's counts were first seen as they are.

    """

    counts: Counts
    announced: Counts
    rates: tuple[tuple[float | None, float | None], ...]
    seen_since_ns: int
    still_since_ns: tuple[int, ...]

    @property
    def totals(self) -> tuple[int, int]:
        """Transfers sent and received over all channels; `UNTOLD` where no channel has any."""
        sent, received = ([n for n in column if n >= 0] for column in zip(*self.counts, strict=True))
        return (sum(sent) if sent else UNTOLD, sum(received) if received else UNTOLD)


@dataclass(slots=True)
class _Sampled:
    now: Transfers
    window_ns: int
    window_counts: Counts


class TransferSampler:
    """Keeps the counts of the operations that run; time is an argument.

    What it keeps is bounded by the frames: eight operations per rank.
    """

    def __init__(self) -> None:
        self._sampled: dict[Operation, _Sampled] = {}

    @property
    def running(self) -> dict[Operation, Transfers]:
        """Those of the last look."""
        return {operation: sampled.now for operation, sampled in self._sampled.items()}

    def look(self, looks: Iterable[FrameLook], now_ns: int) -> None:
        """Take in what all frames say at `now_ns`; operations that are in none of them are over.

        A frame that is no longer measured says nothing: counts that are not kept seem to stand still.
        """
        sampled = {}
        for look in looks:
            for operation, moved in look.running.items() if look.is_measured else ():
                sampled[operation] = _next(self._sampled.get(operation), moved, now_ns)
        self._sampled = sampled


def _next(before: _Sampled | None, moved: Moved, now_ns: int) -> _Sampled:
    counts = moved.done
    if before is None:
        untold = ((None, None),) * len(counts)
        still = (now_ns,) * len(counts)
        first = Transfers(
            counts=counts, announced=moved.announced, rates=untold, seen_since_ns=now_ns, still_since_ns=still
        )
        return _Sampled(now=first, window_ns=now_ns, window_counts=counts)
    was = before.now
    still = tuple(
        since if here == there else now_ns
        for since, here, there in zip(was.still_since_ns, counts, was.counts, strict=True)
    )
    rates, window_ns, window_counts = was.rates, before.window_ns, before.window_counts
    if now_ns - window_ns >= WINDOW_NS:
        passed_ms = (now_ns - window_ns) / 1e6
        rates = tuple(
            (_rate(here[0], there[0], passed_ms), _rate(here[1], there[1], passed_ms))
            for here, there in zip(counts, window_counts, strict=True)
        )
        window_ns, window_counts = now_ns, counts
    now = Transfers(
        counts=counts, announced=moved.announced, rates=rates, seen_since_ns=was.seen_since_ns, still_since_ns=still
    )
    return _Sampled(now=now, window_ns=window_ns, window_counts=window_counts)


def _rate(count: int, before: int, passed_ms: float) -> float | None:
    """Transfers per millisecond; `None` where none was announced."""
    return None if count < 0 else max(count - max(before, 0), 0) / passed_ms
