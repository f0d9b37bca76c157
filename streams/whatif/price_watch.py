"""Sampled steps of a job -> what its stragglers cost, window by window."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pacehound.model.events import Finding, WhatIfPrice
from pacehound.model.finite import unfit_field
from pacehound.model.operations import Operations
from pacehound.model.rounds import Rounds
from pacehound.model.whatif_result import WhatIf
from streams.rounds.round_table import RoundTable
from streams.watching.moment import Moment
from streams.watching.watch import Heard, Said, Watch
from streams.whatif import optypes
from streams.whatif.analysis import Built, analyse, build
from streams.whatif.live import live_trace
from streams.whatif.prices import prices
from streams.whatif.straggling import PricedWindow, Straggling, priced_window
from streams.whatif.tensor_groups import TensorGroups, tensor_groups
from streams.whatif.untimed import untimed_reductions

LATEST_TOLD_NS = 10_000_000_000
LATEST_TOLD_STEPS = 6
"""Operations are told so late at most: agents send once a second, and four steps may wait for their device."""

MAX_BLOCKS_OF_ROUNDS = 20_000
MAX_ROWS = 400_000
"""Operations held; a window that would take more is looked at with fewer steps."""

_END_NS = np.iinfo(np.int64).max


class Machines(Protocol):
    """Who knows whether the machines of a job may be what took some of its time."""

    def is_crowded(self, moment: Moment, since_ns: int, share: float) -> bool:
        """Whether they may have taken such a share of the time since then."""


class PriceWatch(Watch):
    """The operations of one attempt of a job, until there are enough whole steps for an analysis.

    A step is whole when every rank has told of its optimizer, which comes last. Nothing is kept of a job that tells
    of no operations.

    Windows that straggle again and again are a finding of their own (`straggling`), unless the iterations say already
    that the job is slow: then the price is that slowness's. A window in which the machines were crowded has a price and
    is no sign of anything, for whoever waits for a processor there is another rank in each operation.

    `refused` counts windows (of `window_steps` recorded steps) that have no price; `unpriced` is why the last one has
    none.
    """

    def __init__(
        self,
        job: str,
        attempt: int,
        window_steps: int,
        by_iterations: Sequence[Watch],
        machines: Machines | None = None,
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._window_steps = window_steps
        self._by_iterations = tuple(by_iterations)
        self._machines = machines
        self._straggling = Straggling(job, attempt)
        self._excess_s = 0.0  # of what was said last
        self._counted_ns: int | None = None
        self._operations: list[Operations] = []
        self._ended: dict[int, set[int]] = {}  # by step, the ranks whose step is whole
        self._arrived: list[Rounds] = []  # in this step of time
        self._rounds: deque[Rounds] = deque(maxlen=MAX_BLOCKS_OF_ROUNDS)
        self._settled_ns = -1
        self._is_told = False
        self._after_step = -1
        self.refused = 0
        self.unpriced = ""

    def on_rounds(self, arrived: RoundTable) -> None:
        """Closed rounds of communicators."""
        self._arrived += [rounds for rounds in arrived.blocks if not rounds.is_pair]

    def hear(self, event: Heard, step: int | None) -> list[Finding]:
        """Operations of some ranks. The rounds of the very first ones are gone already: they only begin it."""
        if isinstance(event, Operations):
            self._add(event)
        return []

    def _add(self, event: Operations) -> None:
        if not self._is_told:
            self._is_told = True
            self._after_step = int(event.integers("step").max())
        steps, ranks = event.integers("step"), event.integers("rank")
        if (steps <= self._after_step).all():
            return
        known = {step for held in self._operations for step in np.unique(held.integers("step")).tolist()}
        is_late = (event.integers("start_ns") <= self._settled_ns) & ~np.isin(steps, list(known))
        if is_late.any():
            self.unpriced = "steps were told of so late that their calls are no longer held"
            self._after_step = max(self._after_step, int(steps[is_late].max()))
            return
        self._operations.append(event)
        is_last = (event.integers("optype") == optypes.OPTIMIZER) & (steps > self._after_step)
        for step, rank in zip(steps[is_last].tolist(), ranks[is_last].tolist(), strict=True):
            self._ended.setdefault(step, set()).add(rank)

    def unseen(self) -> tuple[str, ...]:
        """Why the last window has no price."""
        return (f"what stragglers cost: {self.unpriced}",) if self.unpriced else ()

    def on_tick(self, moment: Moment) -> list[Said]:
        """What the windows cost that are full."""
        if self._is_told:
            self._rounds += self._arrived
            self._settle(moment.now_ns - LATEST_TOLD_NS - round(LATEST_TOLD_STEPS * moment.step_time_s * 1e9))
        self._arrived = []
        is_told = any(watch.ongoing(moment.now_ns) for watch in self._by_iterations)
        self._count(moment.now_ns)
        found: list[Said] = []
        while steps := self._full_window(moment.world_size):
            taken = self._take(steps)
            rounds = self._take_rounds(taken)
            window, self.unpriced = self._priced(taken, rounds, moment.now_ns, moment.world_size)
            if window is None:
                self.refused += 1
                continue
            if not self._is_crowded(window, moment):
                found += self._straggling.on_window(window, is_told=is_told)
            found.append(window.price)
            self._count(moment.now_ns)
        return found

    def _is_crowded(self, window: PricedWindow, moment: Moment) -> bool:
        if self._machines is None or not window.straggles:
            return False
        return self._machines.is_crowded(moment, window.began_ns, window.price.waste)

    def _count(self, now_ns: int) -> None:
        """The last window's share of the time is lost until there is another one."""
        told = self._straggling.finding
        if told is None or told.onset is None:
            self._counted_ns = None
            return
        if self._counted_ns is None:
            self._excess_s, self._counted_ns = 0.0, told.onset.time_ns
        self._excess_s += self._straggling.waste * max(now_ns - self._counted_ns, 0) / 1e9
        self._counted_ns = now_ns

    def ongoing(self, now_ns: int) -> dict[str, float]:
        """What stragglers have cost since windows straggle."""
        told = self._straggling.finding
        return {} if told is None else {told.id: self._excess_s}

    def excess_s(self, finding: Finding, now_ns: int) -> float:
        """What they have cost, also when it has just ended."""
        return self._excess_s

    def _settle(self, until_ns: int) -> None:
        """Up to here everything has been told: rounds beside the held steps are of steps that nobody has recorded."""
        due = [rounds for rounds in self._rounds if self._settled_ns < rounds.time_ns <= until_ns]
        if not due:
            return
        spans = self._spans_ns()
        kept = []
        for rounds in due:
            times_ns = rounds.times_ns[:, None]
            is_held = ((times_ns >= spans[0]) & (times_ns <= spans[1])).any(axis=1)
            kept += [rounds.chosen(is_held)] if is_held.any() else []
        others = [rounds for rounds in self._rounds if not self._settled_ns < rounds.time_ns <= until_ns]
        self._rounds = deque([*kept, *others], maxlen=MAX_BLOCKS_OF_ROUNDS)
        self._settled_ns = until_ns

    def _spans_ns(self) -> npt.NDArray[np.int64]:
        """Beginnings and ends of the steps that are held, shape `(2, n_steps)`."""
        spans: dict[int, tuple[int, int]] = {}
        for event in self._operations:
            steps, starts_ns, ends_ns = (event.integers(name) for name in ("step", "start_ns", "end_ns"))
            for step in np.unique(steps).tolist():
                of_step = steps == step
                first_ns, last_ns = spans.get(step, (_END_NS, 0))
                spans[step] = min(first_ns, int(starts_ns[of_step].min())), max(last_ns, int(ends_ns[of_step].max()))
        return np.array(list(spans.values()), np.int64).reshape(-1, 2).T

    def _full_window(self, world_size: int) -> list[int]:
        """The steps of the next window; none while they are too few."""
        whole = sorted(step for step, ranks in self._ended.items() if len(ranks) >= world_size > 0)
        is_large = sum(map(len, self._operations)) > MAX_ROWS
        is_full = len(whole) >= self._window_steps or (is_large and len(whole) > 1)
        return whole[: self._window_steps] if is_full else []

    def _priced(
        self, taken: list[Operations], rounds: list[Rounds], now_ns: int, world_size: int
    ) -> tuple[PricedWindow | None, str]:
        """A window with its price, or why it has none."""
        try:
            if why := untimed_reductions(taken, rounds):
                return None, why
            window = self._window(taken, rounds, now_ns, world_size)
        except Exception as error:  # what cannot be priced must not cost the job its findings
            return None, f"{type(error).__name__}: {error}"
        unfit = unfit_field(window.price)
        return (None, f"{unfit} is no finite number") if unfit else (window, "")

    def _window(self, taken: list[Operations], rounds: list[Rounds], now_ns: int, world_size: int) -> PricedWindow:
        groups = tensor_groups(taken, rounds)
        built = build(live_trace(taken, rounds, f"job {self._job}", groups), Path("live"))
        found = analyse(built)
        price = window_price(built, found, self._job, self._attempt, now_ns, world_size, groups)
        began_ns = min(int(event.integers("start_ns").min()) for event in taken)
        return priced_window(price, found.patterns, groups, began_ns)

    def _take(self, steps: list[int]) -> list[Operations]:
        """The operations of these steps; those of earlier ones, which are not whole, are dropped."""
        self._after_step = steps[-1]
        taken, left = [], []
        for event in self._operations:
            of_steps = np.isin(event.integers("step"), steps)
            later = event.integers("step") > self._after_step
            taken += _rows(event, of_steps)
            left += _rows(event, later)
        self._operations = left
        self._ended = {step: ranks for step, ranks in self._ended.items() if step > self._after_step}
        return taken

    def _take_rounds(self, taken: list[Operations]) -> list[Rounds]:
        last_ns = max(event.time_ns for event in taken)
        due = [rounds for rounds in self._rounds if len(rounds) and int(rounds.times_ns.min()) <= last_ns]
        left = [rounds.chosen(rounds.times_ns > last_ns) for rounds in self._rounds if rounds.time_ns > last_ns]
        self._rounds = deque(left, maxlen=MAX_BLOCKS_OF_ROUNDS)
        return due


def window_price(
    built: Built,
    found: WhatIf,
    job: str,
    attempt: int,
    now_ns: int,
    world_size: int,
    groups: TensorGroups,
) -> WhatIfPrice:
    """What an analysis of sampled steps says of their cost."""
    return WhatIfPrice(
        job=job,
        attempt=attempt,
        time_ns=now_ns,
        first_step=int(found.steps.min()),
        last_step=int(found.steps.max()),
        n_steps=len(found.steps),
        ranks=world_size,
        recorded_s=float(found.recorded_s.mean()),
        original_s=float(found.original_s.mean()),
        ideal_s=float(found.ideal_s.mean()),
        slowdown=found.slowdown,
        waste=found.waste,
        discrepancy=found.discrepancy,
        fixes=prices(built.job, found, groups),
        patterns=tuple(pattern.name for pattern in found.patterns),
    )


def _rows(event: Operations, chosen: np.ndarray) -> list[Operations]:
    if not chosen.any():
        return []
    if chosen.all():
        return [event]
    rows = event.rows.take(np.flatnonzero(chosen))
    return [Operations(job=event.job, attempt=event.attempt, host=event.host, rows=rows)]
