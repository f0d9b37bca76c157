"""The iterations of one job: what counts as one, how long they usually take, and the rounds of the last ones."""

from __future__ import annotations

import statistics
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from itertools import chain, compress
from typing import Any

from pacehound.model.events import Finding, Instant, IterationSample, Topology
from pacehound.model.evidence.levels import TooShort
from pacehound.model.identity import event_id
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.model.short_job import not_judged
from streams.job.thresholds import (
    MAX_PLANNED_SHARE,
    PACE_ITERATIONS,
    RECURRED_OFTEN,
    ROUNDS_BEFORE_FIRST_NS,
    UNMARKED_PATIENCE_NS,
)
from streams.rounds.divergence import LastIterations
from streams.rounds.recurring import RecurringIterations
from streams.rounds.round_columns import RoundColumns
from streams.rounds.round_table import RoundTable
from streams.watching.moment import Iteration

_DERIVED = ("_last_ns", "_columns", "_n_in_columns", "_tables", "_ascending_s")
"""What follows from its rounds and its step times."""


class JobIterations:
    """Follows optimizer steps, or what recurs where none are seen.

    Attributes
    ----------
    step
        The last one that all ranks have ended; `None` before the first.
    count
        How many have been seen that had one before them.
    """

    def __init__(self) -> None:
        self.step: int | None = None
        self.count = 0
        self._planned_count = 0
        self._previous: IterationSample | None = None
        self._before_previous: IterationSample | None = None
        self._third: IterationSample | None = None  # the one before that, where the last one was not ended by all
        self._rounds: list[Rounds | PairRounds] = []  # of the iteration that is going on
        self._last_ns: list[int] = []  # the event time of each of them
        self._columns = RoundColumns.of([])  # of the first of them, as far as the last iteration needed them
        self._n_in_columns = 0
        self._tables: list[RoundTable] = []  # of the others, where those of all of them are kept
        self._rounds_before: list[Rounds | PairRounds] = []  # and those from which these were left when it began
        self._step_times_s: deque[float] = deque(maxlen=PACE_ITERATIONS)
        self._ascending_s: list[float] = []  # the same, for their median is asked for at each of them
        self._recurring: RecurringIterations | None = None  # while no optimizer step is seen
        self._recurring_locks = 0
        self._recurring_since_ns = 0
        self._unmarked_s: deque[float] = deque(maxlen=PACE_ITERATIONS)  # what recurs and does not count yet

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest."""
        return {name: value for name, value in self.__dict__.items() if name not in _DERIVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """When its rounds were is found out again."""
        self.__dict__.update(state)
        self._columns, self._n_in_columns, self._tables = RoundColumns.of([]), 0, []
        self._last_ns = [rounds.time_ns for rounds in self._rounds]
        self._ascending_s = sorted(self._step_times_s)

    @property
    def recurring_s(self) -> float:
        """How long what recurs takes, before it counts as iterations; 0 until it has recurred often enough."""
        is_enough = self.step is None and len(self._unmarked_s) >= RECURRED_OFTEN
        return statistics.median(self._unmarked_s) if is_enough else 0.0

    def unseen(self) -> tuple[str, ...]:
        """That its iterations are not marked, while nothing is known of its pace."""
        if self._recurring is None or self.step is not None:
            return ()
        limit = "" if self.recurring_s else "; a hang is told after four times as long as otherwise"
        return (
            "its pace: no optimizer step has been seen (inference, or a loop of its own?), and no calls have recurred "
            f"for {UNMARKED_PATIENCE_NS // 10**9} s{limit}",
        )

    @property
    def step_time_s(self) -> float:
        """Median of the last ones; 0 before the first."""
        ascending_s, middle = self._ascending_s, len(self._ascending_s) // 2
        if len(ascending_s) % 2:
            return ascending_s[middle]
        return (ascending_s[middle - 1] + ascending_s[middle]) / 2 if ascending_s else 0.0

    @property
    def finished_ns(self) -> int:
        """When the first rank ended the last one that all have ended; 0 before the first."""
        return min(self._previous.ends_ns) if self._previous is not None else 0

    def on_world(self, topology: Topology) -> None:
        """The communicator of all ranks: the lowest of them is followed where no optimizer step is seen."""
        self._recurring = RecurringIterations(topology.job, topology.attempt, min(topology.members))

    def on_rounds(self, arrived: RoundTable, until_ns: int) -> list[IterationSample]:
        """Closed rounds; what recurs in them up to a time, while nothing better is known."""
        self._rounds += [*arrived.blocks, *arrived.pairs]
        self._last_ns += [*arrived.last_ns, *(pairs.time_ns for pairs in arrived.pairs)]
        self._tables += [arrived] if arrived.n_parts else []
        return [] if self._recurring is None else self._recurring.add([*arrived.blocks, *arrived.pairs], until_ns)

    def are_marked(self) -> None:
        """Optimizer steps are seen, or will be: nothing that recurs counts."""
        self._recurring = None
        self._unmarked_s.clear()

    def replaces(self, sample: IterationSample) -> Instant | None:
        """Where the job's iterations begin anew with this sample: what was followed until now was something else."""
        at = Instant(step=sample.step, time_ns=sample.time_ns)
        if sample.boundary == "optimizer_step":
            # What recurred until now were parts of the first iteration.
            is_new = self._recurring is not None and self.count > 0
            self._recurring = None
        else:
            is_new = self._recurring is not None and self._recurring.locks != self._recurring_locks
            if is_new and self._recurring is not None:
                self._recurring_locks = self._recurring.locks
                self._recurring_since_ns = sample.time_ns
        if not is_new:
            return None
        self._previous = self._before_previous = self._third = None
        self._step_times_s.clear()
        self._ascending_s.clear()
        self._unmarked_s.clear()
        return at

    def counts(self, sample: IterationSample) -> bool:
        """Optimizer steps are the iterations of a job; recurring periods only where none are seen."""
        if sample.boundary == "optimizer_step":
            return True
        if self._recurring is None:
            return False
        if sample.time_ns >= self._recurring_since_ns + UNMARKED_PATIENCE_NS:
            return True
        if sample.step_time_s > 0:
            self._unmarked_s.append(sample.step_time_s)
        return False

    def add(
        self, sample: IterationSample, *, was_hung: bool, with_it: Sequence[IterationSample] = ()
    ) -> Iteration | None:
        """The next one; `None` where it says nothing about the pace: the first, a planned pause, one in a hang.

        `with_it` are the samples of one step of time.
        """
        previous, self._previous = self._previous, sample
        is_partial = previous is not None and len(sample.ranks) < len(previous.ranks)
        self._third = self._before_previous if is_partial else None
        self._rounds_before = [*self._rounds_before, *self._rounds] if is_partial else self._rounds
        self._before_previous = previous
        self.step = sample.step
        if previous is None or sample.step_time_s <= 0:
            return None
        self.count += 1
        self._planned_count += bool(sample.planned)
        is_planned = sample.planned and self._planned_count <= MAX_PLANNED_SHARE * self.count
        if is_planned or was_hung:
            return None  # a pause that is accounted for elsewhere says nothing about the level
        if len(self._step_times_s) == PACE_ITERATIONS:
            del self._ascending_s[bisect_left(self._ascending_s, self._step_times_s[0])]
        self._step_times_s.append(sample.step_time_s)
        insort(self._ascending_s, sample.step_time_s)
        return Iteration(previous, sample, self._in_columns(min(previous.ends_ns)), with_it)

    def _in_columns(self, since_ns: int) -> RoundColumns:
        """All rounds that were not over by then; the same columns for all iterations of one step of time."""
        n_fresh = len(self._rounds) - self._n_in_columns
        if n_fresh:
            if sum(table.n_parts for table in self._tables) == n_fresh:
                fresh = RoundColumns.of_tables(self._tables)
            else:
                fresh = RoundColumns.of(self._rounds[self._n_in_columns :])
            self._columns = RoundColumns.together([columns.after(since_ns) for columns in (self._columns, fresh)])
            self._n_in_columns, self._tables = len(self._rounds), []
        return self._columns

    def not_judged(self, job: str, attempt: int, at: Instant) -> list[Finding]:
        """When the job ends: that it was too short for its pace to be judged."""
        n_iterations = self.count + 1 if self.step is not None else 0
        if not not_judged(n_iterations):
            return []
        return [
            Finding(
                id=event_id("blind", job, attempt, "too short"),
                job=job,
                attempt=attempt,
                kind="blind",
                verdict="unknown",
                cause=None,
                onset=at,
                detected=at,
                relief=at,
                evidence=(TooShort(n_iterations=n_iterations),),
                unseen=("whether it became slower",),
            )
        ]

    def forget_rounds(self) -> None:
        """A step of time is over: keep the rounds of the iteration that is going on, however long it is.

        Before the first they are those of a minute.
        What is kept of one block, or of the rounds of pairs in one step of time, is all or nothing: a round from before
        the iteration does no harm.
        """
        if self._previous is not None:
            keep_ns = min(self._previous.ends_ns)
        else:
            keep_ns = max(self._last_ns, default=0) - ROUNDS_BEFORE_FIRST_NS
        is_kept = [last_ns > keep_ns for last_ns in self._last_ns]
        if self._previous is None or not all(is_kept[self._n_in_columns :]):
            # They tell of blocks that are forgotten now; and before the first iteration a minute of them would be much.
            self._tables = []
        self._n_in_columns = sum(is_kept[: self._n_in_columns])
        self._rounds = list(compress(self._rounds, is_kept))
        self._last_ns = list(compress(self._last_ns, is_kept))

    def last(self) -> LastIterations | None:
        """The calls of this iteration and of the one before; looked at only when something hangs."""
        if self._previous is None or self._before_previous is None:
            return None
        known = {id(rounds) for rounds in self._rounds}
        both = [*(rounds for rounds in self._rounds_before if id(rounds) not in known), *self._rounds]
        pairs = chain.from_iterable(some.by_pair() for some in both if isinstance(some, PairRounds))
        return LastIterations(
            rounds=[*(rounds for rounds in both if isinstance(rounds, Rounds)), *pairs],
            begins_ns=_ends_of(self._previous),
            previous_begins_ns=_ends_of(self._before_previous),
            third_begins_ns={} if self._third is None else _ends_of(self._third),
        )


def _ends_of(sample: IterationSample) -> dict[int, int]:
    """By rank, when it ended the iteration."""
    return dict(zip(sample.ranks, sample.ends_ns, strict=True))
