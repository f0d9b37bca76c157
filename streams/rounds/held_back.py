"""What a shard concludes and nobody can use yet: told each second once, and not whenever a host has spoken.

A job's time goes on in whole ticks, when all of its streams have come to the next one. Of a job of thousands of hosts
nearly each word raises the watermark of some communicator, and with the end of an iteration completes some round of
digests: none of them is worth a message by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from pacehound.model.events import Watermark
from pacehound.model.rounds import Rounds
from streams.rounds.merge import CLOSED_NS

MAX_ROUNDS = 4_096
"""That are held, blocks of them: so many are worth a message (chosen), which is read while the next ones come."""

T = TypeVar("T")


class HeldBack:
    """Rounds of digests, and the last watermark of each stream of a shard.

    They are held until the lowest of the watermarks that are expected has come to another tick.

    Examples
    --------
    >>> held = HeldBack(tick_ns=10)
    >>> held.expect(["a", "b"])
    >>> a, b = (Watermark(job="j", attempt=0, time_ns=25, stream=stream) for stream in "ab")
    >>> held.take([a]), [one.stream for one in held.take([b])]
    ([], ['a', 'b'])

    """

    def __init__(self, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        self._ticks: dict[str, int] = {}  # by stream, up to which tick it has come
        self._watermarks: dict[str, int] = {}  # by stream, those that are held
        self._rounds: list[Rounds] = []
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

    def take(self, concluded: Sequence[T]) -> list[T]:
        """What is to be told now of this and of what was held, in order; of each stream one watermark, the last.

        All of it is of one attempt of one job.
        """
        told: list[Any] = []
        raised: list[Watermark] = []
        for one in concluded:
            if isinstance(one, Watermark):
                raised.append(one)
            elif isinstance(one, Rounds) and one.is_digest:
                self._rounds.append(one)
            else:
                told.append(one)
        is_due = self._raise(raised)
        if is_due or len(self._rounds) > MAX_ROUNDS:
            told += self._rounds
            self._rounds = []
        if is_due:
            told += [replace(raised[0], stream=name, time_ns=time_ns) for name, time_ns in self._watermarks.items()]
            self._watermarks = {}
        return cast(list[T], told)

    def _raise(self, raised: Sequence[Watermark]) -> bool:
        """Whether the lowest of them has come to another tick with these, or a stream has ended."""
        if not raised:
            return False
        before, is_over = self._lowest, False
        for one in raised:
            self._watermarks[one.stream] = one.time_ns
            is_over |= one.time_ns >= CLOSED_NS
            was, tick = self._ticks.get(one.stream), one.time_ns // self._tick_ns
            if was is not None and was < tick:
                self._ticks[one.stream] = tick
                self._n_lowest -= was == self._lowest
        if self._n_lowest <= 0:
            self._find_lowest()
        return is_over or self._lowest > before

    def _find_lowest(self) -> None:
        ticks = self._ticks.values()
        self._lowest = min(ticks, default=-1)
        self._n_lowest = list(ticks).count(self._lowest)
