"""Iterations from recurring calls, where no optimizer step is seen: the time between the same call in two periods."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from pacehound.model.events import IterationSample
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from streams.rounds.call_codes import token
from streams.rounds.period import PeriodTracker, State
from streams.rounds.thresholds import MAX_DELAY_NS

Int64Array = npt.NDArray[np.int64]

MAX_WAITING = 65_536
"""Calls that may wait for earlier ones of other communicators."""

MAX_ANCHORS = 64
"""Calls kept because they may turn out to end an iteration (calls behind a break are placed later)."""

_RECENT_CALLS = 4_096


@dataclass(slots=True)
class _Calls:
    """Calls of the representative rank; every array has shape `(n,)`. Their rounds are a `row` of a `block` each."""

    launch_ns: Int64Array
    stream: Int64Array
    seq: Int64Array
    token: Int64Array
    kind: Int64Array
    block: Int64Array
    row: Int64Array

    def __len__(self) -> int:
        return len(self.seq)

    def take(self, chosen: npt.NDArray[np.int64] | slice) -> _Calls:
        """The calls at `chosen`."""
        return _Calls(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @staticmethod
    def joined(parts: Sequence[_Calls]) -> _Calls:
        """One behind the other."""
        columns = [np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(_Calls)]
        return _Calls(*columns)


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A call that may end an iteration: when each rank ended its round, and its number on its stream.

    `n_before` counts the calls of the stream that came before it; where `seq` has grown by more, calls were lost.
    """

    communicator: str
    ranks: tuple[int, ...]
    ends_ns: Int64Array
    seq: int
    n_before: int


class RecurringIterations:
    """Follows the calls of one rank on all its communicators and ends an iteration where their pattern begins anew.

    One communicator alone cannot say what an iteration is: the tensor-parallel one makes the same call over and
    over, the data-parallel one may have four equal buckets. An iteration is the smallest lag at which all
    communicators of a rank realign, and that is the period of all its calls in the order in which it launched
    them (a program launches in the same order every time, in whatever order the calls end).

    Rounds come when they are complete. A call is therefore held back until every call that was launched before it
    should have come: twice as long as any call has recently taken from its launch to the end of its round (where
    rows are lost, to the closing of its round).

    An iteration ends with a call of the communicator with the most ranks, that which is rarest in the period there:
    then most ranks have an end, and neither layers nor the forward passes of an evaluation hold it.

    Where rows are lost the numbers of the calls tell how many iterations lie between two ends; each is given their
    mean. A clock that steps backwards gives an iteration without a time (0), never a negative one.

    Any rank does as the representative one: all ranks are through an iteration once per iteration.
    """

    def __init__(self, job: str, attempt: int, rank: int) -> None:
        self._job = job
        self._attempt = attempt
        self._rank = rank
        self._tracker = PeriodTracker()
        self._streams: dict[tuple[str, tuple[int, ...]], int] = {}
        self._stream_of_kind: dict[int, int] = {}  # by the number of the kind
        self._ranks_of_stream: list[int] = []
        self._blocks: dict[int, Rounds] = {}
        self._n_blocks = 0
        self._waiting: _Calls | None = None
        # The longest that a call took from its launch to the end of its round: lately, and before that.
        self._delays_ns = (0, 0)
        self._n_delays = 0
        self._until_ns = -1
        self._locks = 0
        self._anchor_code = -1
        self._anchor_stream = -1
        self._anchor_stream_calls = 0  # in one period
        self._n_seen = 0  # calls of the anchor's stream
        self._anchors: dict[int, _Anchor] = {}  # by index in the tracker's stream
        self._begun: _Anchor | None = None
        self._step = -1

    @property
    def period(self) -> int | None:
        """Calls of the representative rank per iteration, or `None`."""
        return self._tracker.period

    @property
    def locks(self) -> int:
        """How often a period has been found; iterations before the last time may have been parts of one."""
        return self._tracker.locks

    @property
    def state(self) -> State:
        """`periodic`, `learning` or `no period`."""
        return self._tracker.state

    def add(self, arrived: Sequence[Rounds | PairRounds], until_ns: int) -> list[IterationSample]:
        """Take in closed rounds of any communicators.

        The rounds of each communicator and pair come in order of `seq`, and every round that ended by `until_ns` has
        come. Returns the iterations that have ended, oldest first.
        """
        parts = [self._calls_of(rounds, until_ns) for rounds in self._own(arrived)]
        if self._waiting is not None:
            parts.insert(0, self._waiting)
        self._until_ns = until_ns
        if not parts:
            return []
        calls = _Calls.joined(parts)
        calls = calls.take(np.lexsort((calls.seq, calls.stream, calls.launch_ns)))
        before_ns = until_ns - 2 * max(self._delays_ns)
        n_ready = max(int(calls.launch_ns.searchsorted(before_ns, side="right")), len(calls) - MAX_WAITING)
        ready, waiting = calls.take(slice(None, n_ready)), calls.take(slice(n_ready, None))
        samples = self._follow(ready) if n_ready else []
        self._waiting = waiting if len(waiting) else None
        still = set(waiting.block.tolist())
        self._blocks = {number: block for number, block in self._blocks.items() if number in still}
        return samples

    def _own(self, arrived: Sequence[Rounds | PairRounds]) -> Iterator[Rounds]:
        """Those that the representative rank is in."""
        for rounds in arrived:
            if isinstance(rounds, PairRounds):
                yield from rounds.of_rank(self._rank).by_pair()
            elif self._rank in rounds.ranks and len(rounds):
                yield rounds

    def _calls_of(self, rounds: Rounds, until_ns: int) -> _Calls:
        own_ns = rounds.arrival_ns[:, rounds.ranks.index(self._rank)]
        # Where the rank's own row is lost, the others' launches say about when it was.
        launch_ns = np.where(own_ns > 0, own_ns, rounds.arrival_ns.max(axis=1))
        launch_ns = np.where(launch_ns > 0, launch_ns, rounds.times_ns)
        # Rounds with lost rows are closed late: they count from when they came.
        is_late = rounds.times_ns <= self._until_ns
        self._note_delays(np.where(is_late, until_ns, rounds.times_ns) - launch_ns)
        key = (rounds.communicator, rounds.ranks if rounds.is_pair else ())
        if key not in self._streams:
            self._streams[key] = len(self._streams)
            self._ranks_of_stream.append(len(rounds.ranks))
        name = int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=7).digest(), "big")
        # A pair's round says send or recv, whichever row came last.
        op = np.zeros(len(rounds), np.int64) if rounds.is_pair else rounds.op
        self._blocks[self._n_blocks] = rounds
        self._n_blocks += 1
        return _Calls(
            launch_ns=launch_ns,
            stream=np.full(len(rounds), self._streams[key]),
            seq=rounds.seq,
            token=token(op, rounds.size_bytes, name),
            kind=token(op, 0, name),
            block=np.full(len(rounds), self._n_blocks - 1),
            row=np.arange(len(rounds)),
        )

    def _note_delays(self, delays_ns: Int64Array) -> None:
        lately, before = self._delays_ns
        self._n_delays += len(delays_ns)
        if self._n_delays > _RECENT_CALLS:
            self._n_delays, lately, before = 0, 0, lately
        self._delays_ns = (max(lately, min(int(delays_ns.max(initial=0)), MAX_DELAY_NS)), before)

    def _follow(self, ready: _Calls) -> list[IterationSample]:
        """The next calls, in order."""
        first = self._tracker.calls_seen
        self._tracker.extend(ready.token, ready.kind)
        numbers, places = np.unique(self._tracker.codes_of(ready.token, ready.kind) >> 8, return_index=True)
        self._stream_of_kind.update(zip(numbers.tolist(), ready.stream[places].tolist(), strict=True))
        if self._tracker.locks != self._locks:
            self._locks = self._tracker.locks
            self._begin_anew()
        codes = self._tracker.codes_of(ready.token, ready.kind)
        is_of_stream = ready.stream == self._anchor_stream
        n_before = self._n_seen + np.cumsum(is_of_stream)
        self._n_seen += int(is_of_stream.sum())
        for place in np.flatnonzero((codes == self._anchor_code) & is_of_stream).tolist():
            block, row = self._blocks[int(ready.block[place])], int(ready.row[place])
            ends_ns = np.where(block.end_ns[row] > 0, block.end_ns[row], block.arrival_ns[row])
            self._anchors[first + place] = _Anchor(
                block.communicator, block.ranks, ends_ns, int(ready.seq[place]), int(n_before[place])
            )
        samples = [
            self._sample(self._anchors.pop(index))
            for index in self._tracker.take_boundaries().tolist()
            if index in self._anchors and (self._anchors[index].ends_ns > 0).any()
        ]
        for index in list(self._anchors)[:-MAX_ANCHORS]:
            del self._anchors[index]
        return samples

    def _begin_anew(self) -> None:
        """A period has been found: choose the call that ends an iteration."""
        pattern = self._tracker.pattern
        streams = np.array([self._stream_of_kind[number] for number in (pattern >> 8).tolist()])
        widths = np.array(self._ranks_of_stream)[streams]
        codes, numbers, counts = np.unique(pattern, return_inverse=True, return_counts=True)
        position = int(np.lexsort((-np.arange(len(pattern)), counts[numbers], -widths))[0])
        self._tracker.begin_with(position)
        self._anchor_code = int(codes[numbers[position]])
        self._anchor_stream = int(streams[position])
        self._anchor_stream_calls = int((streams == self._anchor_stream).sum())
        self._anchors, self._begun, self._n_seen = {}, None, 0

    def _sample(self, anchor: _Anchor) -> IterationSample:
        begun, self._begun = self._begun, anchor
        n_iterations, elapsed_ns = 1, np.zeros(0, np.int64)
        if begun is not None:
            n_calls = anchor.seq - begun.seq
            if n_calls > anchor.n_before - begun.n_before:  # calls were lost, perhaps whole iterations of them
                n_iterations = max(1, round(n_calls / self._anchor_stream_calls))
            elapsed_ns = (anchor.ends_ns - begun.ends_ns)[(anchor.ends_ns > 0) & (begun.ends_ns > 0)]
        elapsed_ns = elapsed_ns[elapsed_ns > 0]
        self._step += n_iterations
        seen = anchor.ends_ns > 0
        return IterationSample(
            job=self._job,
            attempt=self._attempt,
            time_ns=int(anchor.ends_ns.max()),
            communicator=anchor.communicator,
            step=self._step,
            ranks=tuple(rank for rank, is_seen in zip(anchor.ranks, seen.tolist(), strict=True) if is_seen),
            ends_ns=tuple(anchor.ends_ns[seen].tolist()),
            step_time_s=statistics.median(elapsed_ns.tolist()) / 1e9 / n_iterations if len(elapsed_ns) else 0.0,
            boundary="period",
        )
