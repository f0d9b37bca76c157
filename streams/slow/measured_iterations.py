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

    Attributes
    ----------
    numbers
        Of communicators and pairs, in the order of their first iteration: those of the transfers in a record.
    ranks
        Of the last iteration; records of the same ranks share the array.

    """

    def __init__(self) -> None:
        self.numbers: dict[TransferKey, int] = {}
        self.ranks: Int64Array = np.zeros(0, np.int64)
        self._index: _Index | None = None  # of one step of time

    def forget_rounds(self) -> None:
        """The next step of time has others."""
        self._index = None

    def record_of(self, iteration: Iteration, clocks: ClockOffsets) -> IterationRecord:
        """What is to be kept of an iteration, from the rounds of a stretch of time that holds it."""
        indexed = self._indexed(iteration.rounds, clocks)
        found = indexed.ahead.pop(id(iteration.sample), None)
        if found is None or found.previous is not iteration.previous:
            self._look_ahead(iteration, indexed)
            found = indexed.ahead.pop(id(iteration.sample))
        return found.record

    def _indexed(self, rounds: RoundColumns, clocks: ClockOffsets) -> _Index:
        """The rounds of a stretch of time: the same ones for all iterations of one step of time."""
        if self._index is None or self._index.rounds is not rounds:
            index = RoundIndex(rounds, clocks)
            numbers = [self.numbers.setdefault(key, len(self.numbers)) for key in index.keys]
            self._index = _Index(rounds, index, np.array(numbers, np.int64))
        return self._index

    def _look_ahead(self, iteration: Iteration, indexed: _Index) -> None:
        """Measure an iteration, and those behind it that the same ranks have ended one after the other."""
        before, sample = iteration.previous, iteration.sample
        samples = [before, sample]
        if before.ranks == sample.ranks:
            behind = dropwhile(lambda one: one is not sample, iteration.with_it)
            samples += takewhile(lambda one: one.ranks == sample.ranks, islice(behind, 1, None))
            stretches = Stretch.following(sample.ranks, [one.ends_ns for one in samples])
        else:
            stretches = [Stretch.between((before.ranks, before.ends_ns), (sample.ranks, sample.ends_ns))]
        if not np.array_equal(stretches[0].ranks, self.ranks):
            self.ranks = stretches[0].ranks
        records = self._records_of(samples, stretches, indexed)
        indexed.ahead.update(
            {id(one): _Ahead(last, one, record) for (last, one), record in zip(pairwise(samples), records, strict=True)}
        )

    def _records_of(
        self, samples: Sequence[IterationSample], stretches: Sequence[Stretch], indexed: _Index
    ) -> list[IterationRecord]:
        """Of all samples but the first, which says where the second one began."""
        index, measured = indexed.index, indexed.index.measured(stretches)
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
