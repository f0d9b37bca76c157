"""Whose calls depart from what they were one iteration before: who called something else, or in another order.

A training job repeats itself. Where ranks disagree and no side has a majority, the one whose own sequence of calls has
changed is the one that went astray (DESIGN section 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from pacehound.model.calls import OPS
from pacehound.model.codes import DTYPE_BYTES, DTYPES
from pacehound.model.events import CallSignature
from pacehound.model.evidence.waiting import OutOfOrder
from pacehound.model.rounds import Rounds
from streams.spread import value_of_most

SequenceKey = tuple[str, tuple[int, int] | None]
"""A sequence of calls: a communicator, and the pair for calls from one rank to another."""

_WIDTH = dict(zip(DTYPES, DTYPE_BYTES, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastIterations:
    """The rounds of the iteration that is going on and of the one before."""

    rounds: Sequence[Rounds]  # of both
    # by rank, when this iteration began and when the one before did
    begins_ns: Mapping[int, int]
    previous_begins_ns: Mapping[int, int]
    # and the one before that, where some ranks have not ended the one before and never will: `begins_ns` has the others
    third_begins_ns: Mapping[int, int] = field(default_factory=dict)

    def expected_call(self, communicator: str, seq: int) -> tuple[str, int] | None:
        """Operation and bytes of the round in the place of `seq` one iteration before; `None` where it is not known.

        The place is found by counting: an iteration has as many rounds on this communicator as the one before had.
        Where the round next to it does not repeat either, the count is not to be trusted; nor where this iteration has
        more of them already than the first one of the next (an evaluation).
        """
        sequence: SequenceKey = (communicator, None)
        blocks = self._sequences().get(sequence, [])
        span = self._previous_span(blocks)
        if span is None or seq - span[1] > span[1] - span[0]:
            return None
        known: dict[int, tuple[str, int]] = {}
        for block in blocks:
            for number, op, size_bytes in zip(
                block.seq.tolist(), block.op.tolist(), block.size_bytes.tolist(), strict=True
            ):
                known[number] = (OPS[op], size_bytes)
        in_previous = span[1] - span[0]
        before = seq - 1 - in_previous
        if before in known and known.get(seq - 1) != known[before]:
            return None
        return known.get(seq - in_previous)

    def diverging(self, communicator: str, seq: int, signatures: Mapping[int, CallSignature]) -> tuple[int, ...] | None:
        """Ranks that call something else than one iteration before; `None` where that is not known.

        Where all of them do the work itself has changed, and nothing follows. Nor does where none does: what they
        differ in, a root or a reduction, is not kept of the iteration before.
        """
        expected = self.expected_call(communicator, seq)
        if expected is None:
            return None
        strange = tuple(rank for rank in sorted(signatures) if not _is_like(signatures[rank], *expected))
        return strange if 0 < len(strange) < len(signatures) else None

    def out_of_step(self, communicator: str) -> dict[int, int]:
        """Ranks that had made more collectives than most, or fewer, when all had ended the same iteration; by how many.

        Such a rank has made a call by itself: all calls since then have met with those of another iteration. Empty
        where no more than half of the members had made as many as each other.

        >>> from pacehound.model.rounds import Rounds
        >>> arrivals_ns = np.array([[10, 10, 10], [15, 20, 20], [20, 30, 30]])
        >>> unknown = np.zeros_like(arrivals_ns)
        >>> block = Rounds(
        ...     job="j", attempt=0, communicator="world", source="pg", sees="launch", ranks=(0, 1, 2),
        ...     seq=np.arange(3), op=np.zeros(3, np.int8), size_bytes=np.zeros(3, np.int64),
        ...     arrival_ns=arrivals_ns, start_ns=unknown, end_ns=unknown,
        ... )
        >>> ended_ns = {0: 22, 1: 22, 2: 22}
        >>> LastIterations(rounds=[block], begins_ns=ended_ns, previous_begins_ns={}).out_of_step("world")
        {0: 1}

        """
        blocks = [block for block in self._sequences().get((communicator, None), []) if not block.is_digest]
        ranks = {rank for block in blocks for rank in block.ranks}
        ends = (self.begins_ns, self.previous_begins_ns, self.third_begins_ns)
        ended_ns = next((known for known in ends if ranks <= known.keys()), {})
        made: dict[int, int] = {}
        for block in blocks:
            until_ns = np.array([ended_ns.get(rank, 0) for rank in block.ranks], np.int64)
            is_made = (block.arrival_ns > 0) & (block.arrival_ns <= until_ns)
            for rank, seq in zip(block.ranks, np.where(is_made, block.seq[:, None], -1).max(axis=0), strict=True):
                made[rank] = max(made.get(rank, -1), int(seq))
        if not made or min(made.values()) < 0:
            return {}
        usual = value_of_most(made.values(), len(made))
        if usual is None:
            return {}
        return {rank: made[rank] - usual for rank in sorted(made) if made[rank] != usual}

    def out_of_order(
        self, launched: Mapping[int, Mapping[SequenceKey, int]], names: Mapping[str, str]
    ) -> dict[int, OutOfOrder]:
        """Ranks that have passed over a call which they made before, one iteration earlier, and how.

        `launched` holds, by rank, the last sequence number that it has launched on each sequence of calls; `names`
        those of communicators.
        """
        iterations = self._previous_spans()
        diverged: dict[int, OutOfOrder] = {}
        for rank in sorted(launched):
            order = self._previous_order(rank, iterations)
            # In the order of the iteration before: has the call in this place been made in this one?
            made = [launched[rank].get(sequence, -1) >= iterations[sequence][1] + place for sequence, place in order]
            if True not in made:
                continue
            last = len(made) - 1 - made[::-1].index(True)
            if False in made[:last]:
                (skipped, _), (entered, _) = order[made.index(False)], order[last]
                diverged[rank] = OutOfOrder(rank=rank, entered=_name(entered, names), skipped=_name(skipped, names))
        return diverged

    def launched_the_other_way_round(
        self, open_ns: Mapping[int, Mapping[tuple[SequenceKey, int], int]], names: Mapping[str, str]
    ) -> dict[int, OutOfOrder]:
        """Ranks whose open calls were launched in another order than they were made in one iteration earlier.

        A host that runs ahead of its device has launched both of two calls that it has the wrong way round. `open_ns`
        holds, by rank, when each open call was launched, by its sequence and number; `names` as in `out_of_order`.
        """
        iterations = self._previous_spans()
        turned: dict[int, OutOfOrder] = {}
        for rank in sorted(open_ns):
            order = {call: at for at, call in enumerate(self._previous_order(rank, iterations))}
            launched = [
                (launch_ns, order[sequence, seq - iterations[sequence][1]], sequence)
                for (sequence, seq), launch_ns in open_ns[rank].items()
                if sequence in iterations and (sequence, seq - iterations[sequence][1]) in order
            ]
            launched.sort(key=lambda call: call[0])
            for (_, first_at, entered), (_, then_at, skipped) in pairwise(launched):
                if then_at < first_at:
                    turned[rank] = OutOfOrder(rank=rank, entered=_name(entered, names), skipped=_name(skipped, names))
                    break
        return turned

    def newly_called(self, standing: Mapping[int, SequenceKey]) -> tuple[int, ...]:
        """Ranks that stand in a sequence of calls on which nobody made one in the iteration before.

        `standing` holds the sequence of the call in which each rank stands.
        """
        known = self._previous_spans()
        return tuple(rank for rank in sorted(standing) if known and standing[rank] not in known)

    def _sequences(self) -> dict[SequenceKey, list[Rounds]]:
        sequences: dict[SequenceKey, list[Rounds]] = {}
        for block in self.rounds:
            if len(block):
                pair = (block.ranks[0], block.ranks[1]) if block.is_pair else None
                sequences.setdefault((block.communicator, pair), []).append(block)
        return sequences

    def _previous_spans(self) -> dict[SequenceKey, tuple[int, int]]:
        """Of each sequence that has rounds of the iteration before, as `_previous_span`."""
        spans = {sequence: self._previous_span(blocks) for sequence, blocks in self._sequences().items()}
        return {sequence: span for sequence, span in spans.items() if span is not None}

    def _previous_span(self, blocks: Sequence[Rounds]) -> tuple[int, int] | None:
        """First round of the iteration before among those of a sequence, and the first that belongs to this one.

        Where one of its ranks has not ended the last iteration, that is still this one for all of them.
        """
        inside: list[int] = []
        for block in blocks:
            begins, ends = self.previous_begins_ns, self.begins_ns
            if self.third_begins_ns and any(rank not in ends for rank in block.ranks):
                begins, ends = self.third_begins_ns, begins
            begin_ns = np.array([begins.get(r, 0) for r in block.ranks], np.int64)
            end_ns = np.array([ends.get(r, 0) for r in block.ranks], np.int64)
            is_seen = block.arrival_ns > 0
            is_previous = is_seen & (block.arrival_ns >= begin_ns) & (block.arrival_ns < end_ns)
            inside += block.seq[2 * is_previous.sum(axis=1) > is_seen.sum(axis=1)].tolist()
        return (min(inside), max(inside) + 1) if inside else None

    def _previous_order(
        self, rank: int, iterations: Mapping[SequenceKey, tuple[int, int]]
    ) -> list[tuple[SequenceKey, int]]:
        """Its calls of the iteration before as (sequence, place on it), in the order in which it made them."""
        entered: list[tuple[int, SequenceKey, int]] = []
        for sequence, blocks in self._sequences().items():
            if sequence not in iterations:
                continue
            first, after = iterations[sequence]
            for block in blocks:
                if rank not in block.ranks:
                    continue
                arrival = block.arrival_ns[:, block.ranks.index(rank)]
                chosen = (arrival > 0) & (block.seq >= first) & (block.seq < after)
                entered += [
                    (time_ns, sequence, seq - first)
                    for time_ns, seq in zip(arrival[chosen].tolist(), block.seq[chosen].tolist(), strict=True)
                ]
        return [(sequence, place) for _, sequence, place in sorted(entered, key=lambda entry: entry[0])]


def _name(sequence: SequenceKey, names: Mapping[str, str]) -> str:
    communicator, pair = sequence
    name = repr(names.get(communicator, communicator))
    return name if pair is None else f"{name} from rank {pair[0]} to rank {pair[1]}"


def _is_like(signature: CallSignature, op: str, size_bytes: int) -> bool:
    if signature.op == "unknown" or op == "unknown":
        return True
    width = _WIDTH.get(signature.dtype, 0)
    if signature.op == op and signature.count >= 0 and width and size_bytes:
        return signature.count * width == size_bytes
    return signature.op == op
