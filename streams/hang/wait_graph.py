"""The wait-for graph of a job: who waits for whom, and who waits for nobody.

A rank stands in its oldest incomplete call; later ones are queued behind it. Of the ranks of that call those are
waited for that have not launched it, and those that have but stand in an older one. Following these edges ends at

- ranks that are waited for and stand in no call: they did not come (`absent`);
- ranks whose call all others have completed: theirs does not end (`behind`);
- calls in which every rank stands that has not completed them: nobody is missing, and they do not move (`joint`);
- or nowhere: ranks that wait for each other, which have called in different orders (`cycle`).

A send whose receiver has completed what it received has arrived, and holds nobody: its end is not seen before somebody
waits for it, and a pipeline waits for all its sends at the end of a step.

Where no completion is seen a rank waits for those that have launched fewer calls than itself (`launch_graph`).

Everything is array work over the slots of `ProgressTable`, in proportion to their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.model.events import UNTOLD
from streams.hang.rank_progress import NOT_OPEN, ProgressTable

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NOWHERE = -1
_NEVER_NS = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckCall:
    """A call in which ranks stand."""

    # which one; the number of a sequence in `ProgressTable`
    sequence: int
    seq: int
    op: str  # what the first of those that stand in it called
    since_ns: int  # when the first of them launched it
    # ranks that stand in it, and ranks that have completed it
    standing: tuple[int, ...]
    done: tuple[int, ...]
    later_done: tuple[int, ...]  # of `done`, those that have completed a later call of the same sequence too


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stuck:
    """All stuck calls as columns, and their slots: those of call `i` are `first_slot[i]:first_slot[i + 1]`."""

    sequence: Int64Array
    seq: Int64Array
    first_slot: Int64Array
    rank: Int64Array  # of each slot
    is_standing: BoolArray
    is_done: BoolArray
    is_past: BoolArray
    open_ns: Int64Array  # where the slot has this very call open
    signature: Int64Array

    @property
    def call_of(self) -> Int64Array:
        """The call of each slot."""
        return np.repeat(np.arange(len(self.seq)), np.diff(self.first_slot))


class WaitGraph:
    """Who waits in what, and where it ends; ranks are world ranks, in order.

    Attributes
    ----------
    standing
        Ranks that stand in a call.
    waiting
        Those of them that wait for others, or in a joint call.
    absent
        Ranks that are waited for and stand in no call.
    idle
        Ranks that have no open call at all: a healthy rank of a job that hangs stands somewhere.
    behind
        By index of the call: ranks in it that all others have left behind.
    joint
        Indices of the calls in which everybody stands.
    cycle
        Ranks that wait for each other and for nobody else's absence.
    """

    def __init__(self, table: ProgressTable, position: Int64Array, stuck: _Stuck, idle: BoolArray) -> None:
        self._table = table
        self._position = position
        self._stuck = stuck
        call_of = stuck.call_of
        is_missing = ~stuck.is_done & ~stuck.is_standing
        self._edge_call, self._edge_rank = call_of[is_missing], stuck.rank[is_missing]
        n_calls = len(stuck.seq)
        n_missing = np.bincount(self._edge_call, minlength=n_calls)
        n_done = np.bincount(call_of[stuck.is_done], minlength=n_calls)
        is_behind = (n_missing == 0) & (n_done > 0)
        self._is_settled = n_missing == 0
        self.behind = {index: self.call(index).standing for index in np.flatnonzero(is_behind).tolist()}
        self.joint: tuple[int, ...] = tuple(np.flatnonzero(self._is_settled & ~is_behind).tolist())
        stands = position != NOWHERE
        is_waiting = stands.copy()
        is_waiting[stands] = ~is_behind[position[stands]]
        self.standing: tuple[int, ...] = tuple(np.flatnonzero(stands).tolist())
        self.waiting: tuple[int, ...] = tuple(np.flatnonzero(is_waiting).tolist())
        is_waited_for = np.zeros(len(position), np.bool_)
        is_waited_for[self._edge_rank] = True
        self._is_absent = is_waited_for & ~stands
        self.absent: tuple[int, ...] = tuple(np.flatnonzero(self._is_absent).tolist())
        self.idle: tuple[int, ...] = tuple(np.flatnonzero(idle & ~is_waited_for).tolist())
        self.cycle = self._cycle()

    def __bool__(self) -> bool:
        return bool(self.standing)

    @property
    def n_calls(self) -> int:
        """In how many different calls ranks stand."""
        return len(self._stuck.seq)

    def call(self, index: int) -> StuckCall:
        """One of the calls."""
        stuck = self._stuck
        slots = slice(int(stuck.first_slot[index]), int(stuck.first_slot[index + 1]))
        ranks = stuck.rank[slots]
        sequence, seq = int(stuck.sequence[index]), int(stuck.seq[index])
        standing = np.sort(ranks[stuck.is_standing[slots]])
        first = self._table.open_call(sequence, int(standing[0]), seq)
        return StuckCall(
            sequence=sequence,
            seq=seq,
            op=first.op if first is not None else "call",
            since_ns=int(stuck.open_ns[slots].min()),
            standing=tuple(standing.tolist()),
            done=tuple(np.sort(ranks[stuck.is_done[slots]]).tolist()),
            later_done=tuple(np.sort(ranks[stuck.is_past[slots]]).tolist()),
        )

    def oldest(self) -> StuckCall | None:
        """The call that was launched first; `None` where nobody stands."""
        if not self.n_calls:
            return None
        since_ns = np.minimum.reduceat(self._stuck.open_ns, self._stuck.first_slot[:-1])
        return self.call(int(np.lexsort((self._stuck.seq, self._stuck.sequence, since_ns))[0]))

    def keys(self) -> set[tuple[str, int]]:
        """Communicator and sequence number of every call in which somebody stands, pairs left out."""
        sequences = self._table.sequences
        pairs = zip(self._stuck.sequence.tolist(), self._stuck.seq.tolist(), strict=True)
        return {(sequences[sequence].communicator, seq) for sequence, seq in pairs if not sequences[sequence].is_pair}

    def disagreeing(self) -> tuple[int, ...]:
        """Indices of the calls that ranks have open with different signatures."""
        signature = self._stuck.signature
        if not len(signature):
            return ()
        starts = self._stuck.first_slot[:-1]
        highest = np.maximum.reduceat(signature, starts)
        lowest = np.minimum.reduceat(np.where(signature > 0, signature, _NEVER_NS), starts)
        return tuple(np.flatnonzero((highest > 0) & (highest != lowest)).tolist())

    def stands_in(self, rank: int) -> int:
        """Index of the call in which a rank stands; `NOWHERE`."""
        return int(self._position[rank]) if rank < len(self._position) else NOWHERE

    def waited_for_in(self, index: int) -> tuple[int, ...]:
        """Who is waited for in one of the calls."""
        return tuple(np.unique(self._edge_rank[self._edge_call == index]).tolist())

    def waits_for(self, rank: int) -> tuple[int, ...]:
        """Whom a rank waits for directly."""
        return self.waited_for_in(self.stands_in(rank))

    def leads_to(self, targets: BoolArray) -> BoolArray:
        """Which ranks wait for one of `targets`, directly or through others; masks over world ranks.

        Ranks beyond those of the graph are nowhere.
        """
        reached = np.zeros(max(len(self._position), len(targets)), np.bool_)
        reached[: len(targets)] = targets
        stands = np.flatnonzero(self._position != NOWHERE)
        while True:
            leads = np.zeros(self.n_calls, np.bool_)
            leads[self._edge_call[reached[self._edge_rank]]] = True
            fresh = stands[leads[self._position[stands]] & ~reached[stands]]
            if not len(fresh):
                return reached
            reached[fresh] = True

    def _cycle(self) -> tuple[int, ...]:
        """Ranks from which no end is reached; of those, the ones that are waited for by another such rank."""
        position = self._position
        stands = position != NOWHERE
        ends = self._is_absent.copy()
        ends[stands] |= self._is_settled[position[stands]]
        endless = stands & ~self.leads_to(ends)
        while endless.any():
            # Whoever is waited for by nobody in the rest only leads into the cycle.
            inner = np.zeros(self.n_calls, np.bool_)
            inner[position[endless]] = True
            is_needed = np.zeros(len(position), np.bool_)
            is_needed[self._edge_rank[inner[self._edge_call]]] = True
            in_cycle = endless & is_needed
            if (in_cycle == endless).all():
                break
            endless = in_cycle
        return tuple(np.flatnonzero(endless).tolist())


def open_for(table: ProgressTable, open_for_ns: int) -> BoolArray:
    """Which slots have a call that their host has reported open for so long."""
    return _open_for(table, table.column("open_seq"), table.column("open_ns"), open_for_ns)


def _open_for(table: ProgressTable, open_seq: Int64Array, open_ns: Int64Array, open_for_ns: int) -> BoolArray:
    is_open: BoolArray = (open_seq != NOT_OPEN) & (open_ns + open_for_ns <= table.column("reported_ns"))
    return is_open


def wait_graph(
    table: ProgressTable,
    open_for_ns: int,
    *,
    unheard: frozenset[int] = frozenset(),
    skipping: frozenset[str] = frozenset(),
) -> WaitGraph:
    """Build the graph from how far everybody is.

    A rank counts as standing in a call once its host has reported it open for `open_for_ns`. Ranks that are `unheard`,
    of silent hosts or without calls that are seen, are left out: where they stood then says nothing of where they are.
    Operations in `skipping` hold nobody: `send`, where ranks do not wait for what they have sent.
    """
    rank, sequence = table.column("rank"), table.column("sequence")
    open_seq, open_ns = _not_arrived(table)
    n_ranks = int(rank.max(initial=-1)) + 1
    is_open = _open_for(table, open_seq, open_ns, open_for_ns)
    if table.blind:
        is_blind = np.array([c.communicator in table.blind for c in table.sequences], np.bool_)
        is_open &= ~is_blind[sequence]
    if unheard:
        is_open &= ~np.isin(rank, list(unheard))
    slots = np.flatnonzero(is_open)
    if skipping:
        holds = [not any(call.op in skipping for call in table.open_calls(slot)[:1]) for slot in slots.tolist()]
        slots = slots[np.array(holds, np.bool_)]
    position, calls = _positions(rank, sequence, open_seq, open_ns, slots, n_ranks)
    # Every slot of every stuck call.
    first = np.array([table.sequences[c].first_slot for c in calls[0].tolist()], np.int64)
    width = np.array([len(table.sequences[c].ranks) for c in calls[0].tolist()], np.int64)
    first_slot = np.concatenate(([0], np.cumsum(width)))
    call_of = np.repeat(np.arange(len(width)), width)
    at = np.arange(len(call_of)) - np.repeat(first_slot[:-1] - first, width)
    seq = calls[1][call_of]
    is_standing = position[rank[at]] == call_of
    has_open = open_seq[at] == seq
    completed = table.column("completed")[at]
    is_done = (completed >= seq) & ~is_standing & ~has_open  # calls may end out of order
    stuck = _Stuck(
        sequence=calls[0],
        seq=calls[1],
        first_slot=first_slot,
        rank=rank[at],
        is_standing=is_standing,
        is_done=is_done,
        is_past=is_done & (completed > seq),
        open_ns=np.where(has_open, open_ns[at], _NEVER_NS),
        signature=np.where(has_open, table.column("signature")[at], 0),
    )
    is_idle = np.zeros(n_ranks, np.bool_)
    is_idle[rank] = len(slots) > 0
    is_idle[rank[open_seq != NOT_OPEN]] = False
    is_idle[[r for r in unheard if r < n_ranks]] = False
    return WaitGraph(table, position, stuck, is_idle)


def _not_arrived(table: ProgressTable) -> tuple[Int64Array, Int64Array]:
    """The columns `open_seq` and `open_ns` without sends that have arrived: of each sender the oldest that has not.

    Those of a rank that has launched something else which has not ended, and of which nobody tells, count as before:
    agents of before told four open calls of a rank, all of which may be sends.
    """
    rank, launched, completed = table.column("rank"), table.column("launched"), table.column("completed")
    open_seq, open_ns = table.column("open_seq"), table.column("open_ns")
    senders = np.array([pair.first_slot for pair in table.sequences if pair.is_pair], np.int64)
    received = completed[senders + 1]
    have_arrived = (open_seq[senders] != NOT_OPEN) & (open_seq[senders] <= received)
    if not have_arrived.any():
        return open_seq, open_ns
    is_untold = (launched > completed) & (completed != UNTOLD)
    is_untold[senders] = launched[senders] > received
    is_untold &= open_seq == NOT_OPEN
    have_arrived &= ~np.isin(rank[senders], rank[is_untold])
    open_seq, open_ns = open_seq.copy(), open_ns.copy()
    for slot in senders[have_arrived].tolist():
        last = int(completed[slot + 1])
        told = table.open_calls(slot)
        receiving = {call.seq for call in table.open_calls(slot + 1)}  # calls may end out of order
        oldest = next(((call.seq, call.launch_ns) for call in told if call.seq > last or call.seq in receiving), None)
        if oldest is None:
            oldest = (last + 1, told[-1].launch_ns) if launched[slot] > last else (NOT_OPEN, 0)
        open_seq[slot], open_ns[slot] = oldest
    return open_seq, open_ns


def launch_graph(table: ProgressTable) -> dict[int, int]:
    """Ranks that others are ahead of and that are ahead of nobody, with how many calls they lack at most.

    For sources that see launches alone. The hosts of all others run ahead until their queues are full, so the rank that
    stopped first lacks the most; where everybody has launched as much as the others nothing is said.
    """
    counts = table.launch_only - table.blind
    if not counts:
        return {}
    is_counted = np.array([sequence.communicator in counts for sequence in table.sequences], np.bool_)
    chosen = is_counted[table.column("sequence")]
    chosen &= table.column("launched") != UNTOLD  # not less than others: nobody knows
    if not chosen.any():
        return {}
    rank, sequence = table.column("rank")[chosen], table.column("sequence")[chosen]
    launched = table.column("launched")[chosen]
    most = np.full(len(table.sequences), np.iinfo(np.int64).min)
    least = np.full(len(table.sequences), np.iinfo(np.int64).max)
    np.maximum.at(most, sequence, launched)
    np.minimum.at(least, sequence, launched)
    is_ahead = np.zeros(int(rank.max()) + 1, np.bool_)
    is_ahead[rank[launched > least[sequence]]] = True
    lacks = np.zeros(len(is_ahead), np.int64)
    np.maximum.at(lacks, rank, most[sequence] - launched)
    return {int(r): int(lacks[r]) for r in np.flatnonzero((lacks > 0) & ~is_ahead)}


def _positions(
    rank: Int64Array, sequence: Int64Array, open_seq: Int64Array, open_ns: Int64Array, slots: Int64Array, n_ranks: int
) -> tuple[Int64Array, tuple[Int64Array, Int64Array]]:
    """The call in which each rank stands: its oldest open one; and sequence and number of those calls, each once."""
    # Of two that were launched at once the sequence decides.
    order = slots[np.lexsort((open_seq[slots], sequence[slots], open_ns[slots], rank[slots]))]
    standing = order[np.flatnonzero(np.diff(rank[order], prepend=-1))]
    by_call = standing[np.lexsort((open_seq[standing], sequence[standing]))]
    is_new = (np.diff(sequence[by_call], prepend=-1) != 0) | (np.diff(open_seq[by_call], prepend=-1) != 0)
    position = np.full(n_ranks, NOWHERE, np.int64)
    position[rank[by_call]] = np.cumsum(is_new) - 1
    return position, (sequence[by_call][is_new], open_seq[by_call][is_new])
