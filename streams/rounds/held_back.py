"""What a shard concludes and nobody can use yet: told each second once, and not whenever a host has spoken.

A job's time goes on in whole ticks and with the ends of long iterations, when all of its streams have come so far. Of a
job of thousands of hosts nearly each word raises the watermark of some communicator, and with the end of an iteration
completes some round of digests: none of them is worth a message by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar, cast

from pacehound.model.events import Watermark
from streams.rounds.iterations import ends_long_iteration
from streams.rounds.merge import CLOSED_NS

T = TypeVar("T")


class HeldBack:
    """The last watermark of each stream of a shard.

    They are held until the lowest of the watermarks that are expected has come to another tick, a long iteration has
    ended or a stream has; rounds of digests are asked for then: of all streams, or of those that have ended.

    Examples
    --------
    >>> held = HeldBack(tick_ns=10)
    >>> held.expect(["a", "b"])
    >>> a, b = (Watermark(job="j", attempt=0, time_ns=25, stream=stream) for stream in "ab")
    >>> held.take([a], lambda _: []), [one.stream for one in held.take([b], lambda _: [])]
    ([], ['a', 'b'])

    """

    def __init__(self, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        self._ticks: dict[str, int] = {}  # by stream, up to which tick it has come
        self._watermarks: dict[str, Watermark] = {}  # by stream, those that are held
        self._lowest, self._n_lowest = 0, 0  # of the ticks, and how many streams have come no further

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lowest", "_n_lowest")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Find the lowest again."""
        self.__dict__.update(state)
        self._find_lowest()

    def expect(self, streams: Iterable[str]) -> None:
        """Communicators that are open: nothing is told before all of them have come to it."""
        new = [stream for stream in streams if stream not in self._ticks]
        if new:
            self._ticks |= dict.fromkeys(new, -1)
            self._find_lowest()

    def forget(self, streams: Iterable[str]) -> None:
        """Streams that are over."""
        gone = [stream for stream in streams if self._ticks.pop(stream, None) is not None]
        for stream in gone:
            self._watermarks.pop(stream, None)
        if gone:
            self._find_lowest()

    @property
    def next_ns(self) -> int:
        """When the lowest of the watermarks has come to another tick."""
        return (self._lowest + 1) * self._tick_ns

    def take(self, concluded: Sequence[T], rounds: Callable[[Collection[str] | None], Sequence[T]]) -> list[T]:
        """What is to be told now of this and of what was held, in order; of each stream one watermark, the last.

        Parameters
        ----------
        concluded
            All of one attempt of one job.
        rounds
            Makes those of the digests that have come, where it is not time for all of them of streams that have ended
            alone; asked when watermarks are told.

        """
        raised = [one for one in concluded if isinstance(one, Watermark)]
        told: list[Any] = [one for one in concluded if not isinstance(one, Watermark)]
        is_time = self._raise(raised) or any(ends_long_iteration(one, self._tick_ns) for one in told)
        ended = [one.stream for one in raised if one.time_ns >= CLOSED_NS]
        if is_time or ended:
            told += rounds(None if is_time else ended)
            told += self._watermarks.values()
            self._watermarks = {}
        return cast(list[T], told)

    def _raise(self, raised: Sequence[Watermark]) -> bool:
        """Whether the lowest of them has come to another tick with these."""
        if not raised:
            return False
        before = self._lowest
        for one in raised:
            self._watermarks[one.stream] = one
            was, tick = self._ticks.get(one.stream), one.time_ns // self._tick_ns
            if was is not None and was < tick:
                self._ticks[one.stream] = tick
                self._n_lowest -= was == self._lowest
        if self._n_lowest <= 0:
            self._find_lowest()
        return self._lowest > before

    def _find_lowest(self) -> None:
        ticks = self._ticks.values()
        self._lowest = min(ticks, default=-1)
        self._n_lowest = list(ticks).count(self._lowest)
