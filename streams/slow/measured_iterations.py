"""What is kept of each iteration, measured from the rounds of its step of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, islice, pairwise, takewhile

import numpy as np

from pacehound.model.events import IterationSample
from streams.rounds.clocks import ClockOffsets
from streams.rounds.round_columns import RoundColumns, TransferKey
from streams.slow.attribution.records import Int64Array, IterationRecord
from streams.slow.critical_path import Charges, RoundIndex, Stretch
from streams.watching.moment import Iteration


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What is kept of an iteration, made together with that of those before it."""

    previous: IterationSample
    sample: IterationSample  # kept, for it is found by who it is
    record: IterationRecord


@dataclass(frozen=True, slots=True)
class _Index:
    """The rounds of one step of time, arranged, and the numbers of their communicators and pairs.

    Its iterations are measured at once, when the first of them is asked for: hundreds a second, each of a few rounds.
    """

    rounds: RoundColumns
    index: RoundIndex
    numbers: Int64Array
    ahead: dict[int, _Ahead] = field(default_factory=dict)  # by the id of the sample


class MeasuredIterations:
    """Measures the iterations of one job.

    Of ranks that make calls and end no steps (they coordinate, or generate for those that train) an iteration ends with
    that of the others, or with the call that they are in then.

    Attributes
    ----------
    numbers
        Of communicators and pairs, in the order of their first iteration: those of the transfers in a record.
    ranks
        Of the last iteration; records of the same ranks share the array.
    marked
        Those of them that have ended a step.

    """

    def __init__(self) -> None:
        self.numbers: dict[TransferKey, int] = {}
        self.ranks: Int64Array = np.zeros(0, np.int64)
        self.marked: Int64Array = np.zeros(0, np.int64)
        self._others: Int64Array = np.zeros(0, np.int64)
        self._index: _Index | None = None  # of one step of time

    def forget_rounds(self) -> None:
        """The next step of time has others."""
        self._index = None

    def record_of(self, iteration: Iteration, clocks: ClockOffsets) -> IterationRecord:
        """What is to be kept of an iteration, from the rounds of a stretch of time that holds it."""
        indexed = self._indexed(iteration.rounds, clocks)
        found = indexed.ahead.pop(id(iteration.sample), None)
        if found is None or found.previous is not iteration.previous:
            self._look_ahead(iteration, indexed, clocks)
            found = indexed.ahead.pop(id(iteration.sample))
        return found.record

    def _indexed(self, rounds: RoundColumns, clocks: ClockOffsets) -> _Index:
        """The rounds of a stretch of time: the same ones for all iterations of one step of time."""
        if self._index is None or self._index.rounds is not rounds:
            index = RoundIndex(rounds, clocks)
            numbers = [self.numbers.setdefault(key, len(self.numbers)) for key in index.keys]
            self._index = _Index(rounds, index, np.array(numbers, np.int64))
        return self._index

    def _look_ahead(self, iteration: Iteration, indexed: _Index, clocks: ClockOffsets) -> None:
        """Measure an iteration, and those behind it that the same ranks have ended one after the other."""
        before, sample = iteration.previous, iteration.sample
        samples = [before, sample]
        self._note_ranks(before, sample, indexed.index)
        if before.ranks == sample.ranks:
            behind = dropwhile(lambda one: one is not sample, iteration.with_it)
            samples += takewhile(lambda one: one.ranks == sample.ranks, islice(behind, 1, None))
            stretches = Stretch.following(*self._ends(samples, indexed.index, clocks))
        else:
            (ranks_before, (ends_before,)), (ranks, (ends,)) = (
                self._ends([one], indexed.index, clocks) for one in samples
            )
            stretches = [Stretch.between((ranks_before, ends_before), (ranks, ends))]
        if not np.array_equal(stretches[0].ranks, self.ranks):
            self.ranks = stretches[0].ranks
        records = self._records_of(samples, stretches, indexed)
        indexed.ahead.update(
            {id(one): _Ahead(last, one, record) for (last, one), record in zip(pairwise(samples), records, strict=True)}
        )

    def _note_ranks(self, before: IterationSample, sample: IterationSample, index: RoundIndex) -> None:
        """Who has ended a step, and who makes calls and has not."""
        for ranks in (sample.ranks,) if before.ranks == sample.ranks else (before.ranks, sample.ranks):
            if not _are_among(ranks, self.marked):
                self.marked = np.union1d(self.marked, np.array(ranks, np.int64))
        calling = index.ranks
        if len(self._others) or not _are_among(calling, self.marked):
            self._others = np.setdiff1d(np.union1d(self._others, calling), self.marked)

    def _ends(
        self, samples: Sequence[IterationSample], index: RoundIndex, clocks: ClockOffsets
    ) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
        """Ranks, and when each ended the iterations: who ends none, with the call that it is in when they are over."""
        ranks, ends_ns = samples[0].ranks, [one.ends_ns for one in samples]
        if not len(self._others):
            return ranks, ends_ns
        marked_ns = np.array(ends_ns, np.int64)
        last_ns = (marked_ns - clocks.of(np.array(ranks, np.int64))).max(axis=1)
        ahead_ns = clocks.of(self._others).tolist()
        others_ns = [
            index.over_at(rank, last_ns + ahead) for rank, ahead in zip(self._others.tolist(), ahead_ns, strict=True)
        ]
        return (*ranks, *self._others.tolist()), np.column_stack([marked_ns, *others_ns]).tolist()

    def _records_of(
        self, samples: Sequence[IterationSample], stretches: Sequence[Stretch], indexed: _Index
    ) -> list[IterationRecord]:
        """Of all samples but the first, which says where the second one began."""
        index, measured = indexed.index, indexed.index.measured(stretches, self._others)
        # Lost calls or markers make several iterations one sample: what is kept is for one iteration.
        n_steps = [max(one.step - last.step, 1) for last, one in pairwise(samples)]
        per_step = np.array(n_steps)[:, None]
        own_ns = list((measured.own_ns / per_step).astype(np.float32))
        has_sends = measured.most_own_ns is not measured.own_ns
        most_ns = list((measured.most_own_ns / per_step).astype(np.float32)) if has_sends else own_ns
        transfers_ns = np.zeros((len(n_steps), len(self.numbers)), np.float32)
        transfers_ns[:, indexed.numbers] = measured.transfers_ns / per_step
        records = []
        for at, (sample, stretch, n) in enumerate(zip(samples[1:], stretches, n_steps, strict=True)):
            lost = index.lost_share(stretch)
            charges = measured.charges[at] if index.sees_transfers else Charges({}, {})
            records.append(
                IterationRecord(
                    step=sample.step,
                    time_ns=sample.time_ns,
                    step_time_s=sample.step_time_s,
                    ranks=self.ranks,
                    charges=charges if n == 1 else charges.shared_by(n),
                    own_ns=own_ns[at],
                    own_most_ns=most_ns[at],
                    transfer_ns=transfers_ns[at],
                    n_rounds=round(measured.n_rounds[at] / n),
                    size_bytes=round(measured.size_bytes[at] / n),
                    lost_share=None if lost is None else lost.astype(np.float32),
                    first_launch_ns=(
                        None if index.sees_transfers else index.first_launch_ns(stretch).astype(np.float32)
                    ),
                    sees_transfers=index.sees_transfers,
                )
            )
        return records


def _are_among(ranks: Sequence[int] | Int64Array, known: Int64Array) -> bool:
    """Whether these are all known: of most jobs all from the first to the last one are."""
    if not len(ranks) or not len(known):
        return not len(ranks)
    if known[-1] - known[0] + 1 == len(known):
        return bool(np.min(ranks) >= known[0] and np.max(ranks) <= known[-1])
    return bool(np.isin(ranks, known).all())
