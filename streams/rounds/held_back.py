"""What a shard concludes and nobody can use yet: told each second once, and not whenever a host has spoken.

A job's time goes on in whole ticks and with the ends of long iterations, when all of its streams have come so far.
Nearly each word of a host raises the watermark of some communicator, closes some rounds and says how far ranks are:
none of that is worth a message by itself. Rounds of a communicator are one block then, whoever has closed them, and
those of all pairs are one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar, cast

from pacehound.model.conclusions import cells_of
from pacehound.model.events import HostVitals, IterationSample, Markers, Progress, Watermark
from pacehound.model.pair_rounds import PairRounds, joined_pairs
from pacehound.model.rounds import Rounds, joined_rounds
from streams.rounds.iterations import ends_long_iteration
from streams.rounds.merge import CLOSED_NS

T = TypeVar("T")

MAX_WAITING_CELLS = 16_384
"""What waits at most: a quarter of what is said at once (`MAX_CONCLUDED_CELLS` of `streams/kafka/outputs.py`)."""

_MAY_WAIT = (Rounds, PairRounds, Progress, Markers, IterationSample, HostVitals)
"""What stage two keeps until the job's time has come to it. (A communicator is waited for from its announcement on.)"""


class HeldBack:
    """The last watermark of each stream of a shard, and what stands before them.

    They are held until the lowest of the watermarks that are expected has come to another tick, a long iteration has
    ended or a stream has; rounds of digests are asked for then: of all streams, or of those that have ended. What
    stands before them is told sooner if it is much, or if something is among it that cannot wait.

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
        self._waiting: list[Any] = []  # what is told before them, in order
        self._n_cells = 0  # of that
        self._lowest, self._n_lowest = 0, 0  # of the ticks, and how many streams have come no further

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest."""
        derived = ("_n_cells", "_lowest", "_n_lowest")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Find the lowest again."""
        self.__dict__.update(state)
        self._n_cells = sum(map(cells_of, self._waiting))
        self._find_lowest()

    def expect(self, streams: Iterable[str]) -> None:
        """Communicators that are open: nothing is told before all of them have come to it."""
        new = dict.fromkeys((stream for stream in streams if stream not in self._ticks), -1)
        if new:
            self._ticks |= new
            self._lowest, self._n_lowest = -1, len(new) + (self._n_lowest if self._lowest == -1 else 0)

    def forget(self, streams: Iterable[str]) -> None:
        """Streams that are over; of the ticks the lowest is looked for when the last one that is as low has gone."""
        gone = {stream: self._ticks.pop(stream) for stream in streams if stream in self._ticks}
        for stream in gone:
            self._watermarks.pop(stream, None)
        self._n_lowest -= list(gone.values()).count(self._lowest)
        if gone and self._n_lowest <= 0:
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
        others: list[Any] = [one for one in concluded if not isinstance(one, Watermark)]
        self._waiting += others
        self._n_cells += sum(map(cells_of, others))
        is_time = self._raise(raised) or any(ends_long_iteration(one, self._tick_ns) for one in others)
        ended = [one.stream for one in raised if one.time_ns >= CLOSED_NS]
        if is_time or ended:
            told = [*self._told(), *rounds(None if is_time else ended), *cast(Iterable[Any], self._watermarks.values())]
            self._watermarks = {}
            return told
        can_wait = bool(self._ticks) and all(isinstance(one, _MAY_WAIT) for one in others)
        if self._n_cells >= MAX_WAITING_CELLS or not can_wait:
            return cast(list[T], self._told())
        return []

    def _told(self) -> list[Any]:
        """What has waited: rounds of the same ranks as one block, and those of pairs as one."""
        waiting, self._waiting, self._n_cells = self._waiting, [], 0
        rounds = joined_rounds([one for one in waiting if isinstance(one, Rounds)])
        pairs = joined_pairs([one for one in waiting if isinstance(one, PairRounds)])
        return [*(one for one in waiting if not isinstance(one, (Rounds, PairRounds))), *rounds, *pairs]

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
