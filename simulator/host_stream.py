"""One host's calls on one communicator, cut into seconds: rows, counters and open calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import structs

from pacehound.model.calls import DIRECTIONS, DTYPES, OPS, REDOPS, CallBatch, Sees
from pacehound.model.events import (
    NEVER,
    ChannelTransfers,
    OpenCall,
    PairProgress,
    Progress,
    RankProgress,
    TransferEdge,
)
from simulator.groups import Communicator
from simulator.host_calls import NO_DIRECTION, HostCalls
from simulator.spec import JobSpec

SECOND_NS = 1_000_000_000
SOURCE = "simulator"
SHOWN = 4
"""How many open calls of a rank on a communicator are told, oldest first."""
_ARROW_ROWS = 65_536  # columns are turned into Arrow for about so many rows at a time
_NOT_YET = np.iinfo(np.int64).max

Int64Array = npt.NDArray[np.int64]


class CallStream:
    """What an agent publishes about one communicator.

    Its clock shows `epoch_ns` at the start of the job; seconds are counted from there in true time, up to `n_seconds`
    (excluded). A source that has nothing but dumps writes them at `dumped_s`; the ranks that are `mute` (stopped or
    gone) write none. `algorithm` is empty where the source does not tell, `edges` are those that it sees, and
    `channels` tells how far each rank's call is that does not end. `rng` chooses the rows that get lost.
    """

    def __init__(
        self,
        spec: JobSpec,
        communicator: Communicator,
        ranks: tuple[int, ...],
        host: str,
        calls: HostCalls,
        *,
        edges: tuple[TransferEdge, ...],
        channels: Mapping[int, tuple[ChannelTransfers, ...]],
        epoch_ns: int,
        finish_s: float,
        algorithm: str,
        dumped_s: float,
        mute: frozenset[int],
        n_seconds: int,
        rng: np.random.Generator,
    ) -> None:
        self.communicator = communicator
        self.ranks = ranks
        self._spec = spec
        self._host = host
        self._sees = spec.source.sees
        self._epoch_ns = epoch_ns
        self._finish_s = finish_s
        self._algorithm = algorithm
        self._edges = edges
        self._channels = channels
        self._dumped_ns = int(self._clock_ns(np.array([dumped_s]))[0]) if spec.source.dumps else None
        self._mute = mute
        self._seconds_ns = spec.start_unix_ns + np.arange(n_seconds) * SECOND_NS
        self._ordinal = 0
        self._launched = self._counters(calls, calls.launch_s, spec.source.counts_launched)
        self._completed = self._counters(calls, calls.end_s, spec.source.counts_completed)
        self._pairs = self._pair_counters(calls)
        self._captured = np.zeros(n_seconds, np.int64)
        if calls.captured.any():
            launched = np.searchsorted(self._seconds_ns, self._clock_ns(calls.launch_s[calls.captured]), side="left")
            self._captured = np.cumsum(np.bincount(np.minimum(launched, n_seconds - 1), minlength=n_seconds))
        self._open = self._open_calls(calls) if spec.source.counts_completed else {}
        final_ns, is_sent = self._finality(calls)
        # Seconds behind the start: rows of a clock that is behind belong to the first one.
        second = np.maximum(np.searchsorted(self._seconds_ns, final_ns, side="left"), 1)
        is_lost = is_sent & (rng.random(len(is_sent)) < spec.dropped_fraction)
        self._lost_total = np.cumsum(np.bincount(second[is_lost], minlength=n_seconds))
        self._lost_reported = 0
        kept = np.flatnonzero(is_sent & ~is_lost)
        kept = kept[np.lexsort((calls.columns["rank"][kept], final_ns[kept]))]
        self._calls = calls.take(kept)
        self._cuts = np.searchsorted(second[kept], np.arange(n_seconds), side="right")
        self._window_start = self._window_end = 0
        self._window_rows: pa.RecordBatch | None = None

    def rows(self, second: int) -> Iterator[CallBatch]:
        """The rows that became final in the second that ends at `second`, as one batch or none."""
        first, after = self._cuts[second - 1], self._cuts[second]
        if first == after:
            return
        lost_now = int(self._lost_total[second])
        yield CallBatch(
            job=self._spec.job,
            attempt=self._spec.attempt,
            host=self._host,
            communicator=self.communicator.id,
            source=SOURCE,
            ordinal=self._ordinal,
            sees=self._sees,
            dropped=lost_now - self._lost_reported,
            rows=self._arrow(int(first), int(after)),
        )
        self._ordinal += 1
        self._lost_reported = lost_now

    def progress(self, second: int, now_ns: int, announced: tuple[str, ...], is_closed: bool) -> Progress:
        """How far each rank is at the end of a second."""
        waiting = self._open.get(second, {})
        is_known = self._dumped_ns is None or now_ns >= self._dumped_ns
        mute = self._mute if self._dumped_ns is not None and is_known else frozenset()
        return Progress(
            job=self._spec.job,
            attempt=self._spec.attempt,
            time_ns=now_ns,
            host=self._host,
            communicator=self.communicator.id,
            ranks=tuple(
                RankProgress(
                    rank=rank,
                    last_launched=int(self._launched[i, second]),
                    last_completed=int(self._completed[i, second]),
                    open=tuple(waiting.get(rank, ())),
                    pairs=tuple(pair.at(second) for pair in self._pairs.get(rank, ())),
                )
                if is_known
                else RankProgress(rank=rank)
                for i, rank in enumerate(self.ranks)
                if rank not in mute
            ),
            announced=announced,
            dropped_total=int(self._lost_total[second]),
            marks_iterations=True,
            sees_completion=self._spec.source.counts_completed and is_known,
            captured_total=int(self._captured[second]),
            closed=is_closed,
            edges=self._edges if second == 1 else (),
        )

    def _clock_ns(self, times_s: npt.NDArray[np.float64]) -> Int64Array:
        """Times on the host's clock; what never happened lies behind everything."""
        known = np.isfinite(times_s)
        clock: Int64Array = self._epoch_ns + np.rint(np.where(known, times_s, 0.0) * 1e9).astype(np.int64)
        clock[~known] = _NOT_YET
        return clock

    def _counters(self, calls: HostCalls, times_s: npt.NDArray[np.float64], is_known: bool) -> Int64Array:
        """Highest number of a collective that had happened by each second, shape `(n_ranks, n_seconds)`."""
        counters = np.full((len(self.ranks), len(self._seconds_ns)), NEVER, np.int64)
        if not is_known:
            return counters
        for i, rank in enumerate(self.ranks):
            counters[i] = self._counter(calls, calls.is_collective & (calls.columns["rank"] == rank), times_s)
        return counters

    def _counter(self, calls: HostCalls, mine: npt.NDArray[np.bool_], times_s: npt.NDArray[np.float64]) -> Int64Array:
        # Calls of one rank on one communicator (or to one peer) are launched, and end, in order.
        happened = np.searchsorted(self._clock_ns(times_s[mine]), self._seconds_ns, side="right")
        counter: Int64Array = np.concatenate([[NEVER], calls.columns["seq"][mine]])[happened]
        return counter

    def _pair_counters(self, calls: HostCalls) -> dict[int, list[_Pair]]:
        """By rank, its calls to and from each peer."""
        pairs: dict[int, list[_Pair]] = {}
        source = self._spec.source
        never = np.full(len(self._seconds_ns), NEVER, np.int64)
        if calls.is_collective.all():
            return pairs
        keys = np.stack([calls.columns[name] for name in ("rank", "peer", "direction")])
        for rank, peer, direction in np.unique(keys, axis=1).T.tolist():
            if direction == NO_DIRECTION:
                continue
            mine = (keys == np.array([[rank], [peer], [direction]])).all(axis=0)
            pairs.setdefault(rank, []).append(
                _Pair(
                    peer=peer,
                    direction=DIRECTIONS[direction],
                    launched=self._counter(calls, mine, calls.launch_s) if source.counts_launched else never,
                    completed=self._counter(calls, mine, calls.end_s) if source.counts_completed else never,
                )
            )
        return pairs

    def _open_calls(self, calls: HostCalls) -> dict[int, dict[int, list[OpenCall]]]:
        """For each second, and rank, the oldest calls in flight at its end."""
        launch_ns, start_ns = self._clock_ns(calls.launch_s), self._clock_ns(calls.start_s)
        final_ns = self._clock_ns(np.minimum(calls.end_s, calls.given_up_s))
        first = np.searchsorted(self._seconds_ns, launch_ns, side="left")
        begun = np.searchsorted(self._seconds_ns, start_ns, side="left")
        after = np.searchsorted(self._seconds_ns, final_ns, side="left")
        found: dict[int, dict[int, list[OpenCall]]] = defaultdict(lambda: defaultdict(list))
        crossing = np.flatnonzero(first < after)
        for row in crossing[np.argsort(launch_ns[crossing], kind="stable")].tolist():
            rank = int(calls.columns["rank"][row])
            waiting = self._open_call(calls, row, int(launch_ns[row]), has_started=False)
            started = self._open_call(calls, row, int(launch_ns[row]), has_started=True)
            for second in range(int(first[row]), int(after[row])):
                shown = found[second][rank]
                if len(shown) < SHOWN:
                    shown.append(started if second >= begun[row] else waiting)
        return found

    def _open_call(self, calls: HostCalls, row: int, launch_ns: int, *, has_started: bool) -> OpenCall:
        columns = calls.columns
        rank = int(columns["rank"][row])
        is_collective = bool(calls.is_collective[row])
        sent, received = int(calls.open_sent[row]), int(calls.open_received[row])
        if not has_started:
            sent, received = min(sent, 0), min(received, 0)
        return OpenCall(
            seq=int(columns["seq"][row]),
            op=OPS[columns["op"][row]],
            count=int(columns["count"][row]),
            dtype=DTYPES[columns["dtype"][row]],
            launch_ns=launch_ns,
            peer=int(columns["peer"][row]),
            direction=DIRECTIONS[columns["direction"][row]],
            redop=REDOPS[columns["redop"][row]],
            algorithm=self._algorithm if is_collective else "",
            has_started=has_started if Sees.START in self._sees else None,
            send_count=sent,
            recv_count=received,
            channels=tuple(structs.replace(one, still_since_ns=launch_ns) for one in self._channels.get(rank, ()))
            if has_started and calls.is_stuck[row]
            else (),
        )

    def _finality(self, calls: HostCalls) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
        """When each row is final on the host's clock, and whether the source sends it at all."""
        source = self._spec.source
        is_sent = np.full(len(calls.end_s), source.rows != "none")
        if source.rows == "incomplete":
            # A process that is gone leaves no dump.
            is_sent = np.isinf(calls.end_s) & (calls.given_up_s == self._finish_s)
            return self._clock_ns(calls.given_up_s), is_sent
        if Sees.END in source.sees:
            return self._clock_ns(np.minimum(calls.end_s, calls.given_up_s)), is_sent
        return self._clock_ns(calls.launch_s), is_sent

    def _arrow(self, first: int, after: int) -> pa.RecordBatch:
        """A slice of the columns; they are turned into Arrow a window at a time."""
        if self._window_rows is None or after > self._window_end:
            self._window_start = first
            self._window_end = max(after, min(first + _ARROW_ROWS, len(self._calls.launch_s)))
            self._window_rows = self._to_arrow(self._window_start, self._window_end).rows
        return self._window_rows.slice(first - self._window_start, after - first)

    def _to_arrow(self, first: int, after: int) -> CallBatch:
        calls = self._calls.take(np.arange(first, after))
        columns: dict[str, npt.ArrayLike] = {**calls.columns, **calls.rates, "captured": calls.captured}
        if self._algorithm:
            columns["algorithm"] = np.where(calls.is_collective, self._algorithm, "")
        instants = (
            (Sees.LAUNCH, "launch_ns", calls.launch_s),
            (Sees.START, "start_ns", calls.start_s),
            (Sees.END, "end_ns", calls.end_s),
        )
        for instant, name, times_s in instants:
            if instant in self._sees:
                times_ns = self._clock_ns(times_s)
                columns[name] = np.where((times_ns == _NOT_YET) | (times_s > calls.given_up_s), 0, times_ns)
        return CallBatch.from_columns(
            columns,
            job=self._spec.job,
            attempt=self._spec.attempt,
            host=self._host,
            communicator=self.communicator.id,
            source=SOURCE,
            sees=self._sees,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Calls of one rank to or from one peer: the highest number that had happened by each second."""

    peer: int
    direction: str
    launched: Int64Array
    completed: Int64Array

    def at(self, second: int) -> PairProgress:
        return PairProgress(
            peer=self.peer,
            direction=self.direction,
            last_launched=int(self.launched[second]),
            last_completed=int(self.completed[second]),
        )
