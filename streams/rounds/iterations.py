"""Iterations of a job from the optimizer steps that its ranks report."""

from __future__ import annotations

import statistics
from collections.abc import Set as AbstractSet
from dataclasses import replace

from pacehound.model.events import (
    CHECKPOINT_BEGIN,
    CHECKPOINT_END,
    EVALUATION_BEGIN,
    EVALUATION_END,
    HOLD_BEGIN,
    HOLD_END,
    OPTIMIZER_STEP,
    IterationSample,
    Markers,
)
from pacehound.model.long_iteration import is_long
from streams.rounds.thresholds import STEPS_WITHOUT

_PLANNED = {CHECKPOINT_BEGIN: "checkpoint", EVALUATION_BEGIN: "evaluation", HOLD_BEGIN: "hold"}
_PLANNED_ENDS = {CHECKPOINT_END: "checkpoint", EVALUATION_END: "evaluation", HOLD_END: "hold"}


def ends_long_iteration(said: object, tick_ns: int) -> bool:
    """Whether this is the end of a long iteration (`pacehound.model.long_iteration`)."""
    return isinstance(said, IterationSample) and is_long(said.step_time_s * 1e9, tick_ns)


class IterationTracker:
    """Collects the steps of all ranks; an iteration is over when every member has reported it.

    Members that have never reported one, and without whom the others have gone on, do not train: they coordinate,
    evaluate or generate. They are not waited for.

    The iteration time is the median over the ranks of the time between two adjacent steps of the same rank: it
    needs no common clock, and one rank's late report does not move it.

    `incomplete` counts iterations that were closed although ranks had not reported them, `backward` markers whose step
    or time went backwards on their rank (they were sent twice); these are not used.
    """

    def __init__(self, job: str, attempt: int, communicator: str, members: tuple[int, ...], lateness_ns: int) -> None:
        self._job = job
        self._attempt = attempt
        self._communicator = communicator
        self._members = members
        self._lateness_ns = lateness_ns
        self._open: dict[int, dict[int, int]] = {}  # step -> rank -> time
        self._first_ns: dict[int, int] = {}  # of the open steps
        self._previous: dict[int, tuple[int, int]] = {}  # rank -> step and end of the iteration before
        self._last_marker: dict[int, tuple[int, int]] = {}
        self._told_step = -1
        self._behind: set[int] = set()  # they count other steps: their last one was told of long before
        self._last_pause_ns: dict[tuple[int, str], int] = {}  # by rank and name
        self._planned: dict[str, int] = {}  # what is going on now -> how many ranks are in it
        self._planned_since_last: set[str] = set()
        self.incomplete = 0
        self.backward = 0

    def add(self, markers: Markers) -> Markers:
        """Take in a host's markers, in order; those that were used."""
        used = []
        for rank, name, step, time_ns in zip(
            markers.ranks, markers.names, markers.steps, markers.times_ns, strict=True
        ):
            if name != OPTIMIZER_STEP:
                # One that is sent twice must not begin a pause that nothing ends.
                if time_ns <= self._last_pause_ns.get((rank, name), -1):
                    self.backward += 1
                    continue
                self._last_pause_ns[rank, name] = time_ns
            if name == OPTIMIZER_STEP:
                last_step, last_ns = self._last_marker.get(rank, (-1, 0))
                if step <= last_step or time_ns < last_ns:
                    self.backward += 1
                    continue
                self._last_marker[rank] = (step, time_ns)
                self._behind.discard(rank)
                if step > self._told_step:  # of one that was not waited for it may be told
                    self._open.setdefault(step, {})[rank] = time_ns
                    self._first_ns[step] = min(time_ns, self._first_ns.get(step, time_ns))
                elif step < self._told_step - STEPS_WITHOUT:
                    self._behind.add(rank)
            elif name in _PLANNED:
                what = _PLANNED[name]
                self._planned[what] = self._planned.get(what, 0) + 1
                self._planned_since_last.add(what)
            else:
                what = _PLANNED_ENDS[name]
                self._planned_since_last.add(what)
                self._planned[what] = max(0, self._planned.get(what, 0) - 1)
            used.append((rank, name, step, time_ns))
        if len(used) == len(markers.ranks):
            return markers
        ranks, names, steps, times_ns = zip(*used, strict=True) if used else ((), (), (), ())
        return replace(markers, ranks=ranks, names=names, steps=steps, times_ns=times_ns)

    def close(self, watermark_ns: int, gone: AbstractSet[int] = frozenset()) -> list[IterationSample]:
        """Iterations that are over by `watermark_ns`, oldest first.

        Every marker up to then has been added; ranks that are `gone` will report nothing more.
        """
        samples = []
        expected = len(self._members)
        for step in sorted(self._open):
            ends = self._open[step]
            waiting = expected - len(ends)
            if waiting and (absent := gone | self._aside()):
                waiting -= len(absent - ends.keys())
            if waiting > 0 and (
                self._first_ns[step] + self._lateness_ns > watermark_ns or not self._passed(step, ends, gone)
            ):
                break
            if len(ends) < expected:
                self.incomplete += 1
            samples.append(self._sample(step, ends))
            del self._open[step], self._first_ns[step]
            self._told_step = step
        return samples

    def told_end_ns(self, tick_ns: int) -> int | None:
        """The end of the next iteration, if it is long and all ranks have told of it."""
        step = min(self._open, default=None)
        if step is None or not self._previous or len(self._open[step]) < len(self._members) - len(self._aside()):
            return None
        rank, (before, before_ns) = next(iter(self._previous.items()))
        took_ns = (self._open[step].get(rank, before_ns) - before_ns) / max(step - before, 1)
        return max(self._open[step].values()) if is_long(took_ns, tick_ns) else None

    def _aside(self) -> frozenset[int]:
        """Members that have reported nothing while iterations were told of, or count steps of their own."""
        if not self._previous or len(self._last_marker) == len(self._members):
            return frozenset(self._behind)
        return frozenset(self._members) - self._last_marker.keys() | self._behind

    def _passed(self, step: int, ends: dict[int, int], gone: AbstractSet[int]) -> bool:
        """Who has not reported `step` and may yet is not slow.

        It has reported a later one: its marker was lost. Or it has never reported any, and the others have gone on for
        longer than they can without one of them.
        """
        further = [reported for other, reported in self._open.items() if other > step]
        later = {rank for reported in further for rank in reported}
        known = ends.keys() | later | gone | self._behind
        awaited = [rank for rank in self._members if rank not in known]
        if not awaited:
            return True
        have_gone_on = sum(ends.keys() <= reported.keys() for reported in further) >= STEPS_WITHOUT
        return have_gone_on and not any(rank in self._last_marker for rank in awaited)

    def _sample(self, step: int, ends: dict[int, int]) -> IterationSample:
        ranks = tuple(sorted(ends))
        elapsed = []
        for rank in ranks:
            if rank in self._previous:
                before, before_ns = self._previous[rank]
                elapsed.append((ends[rank] - before_ns) / (step - before))  # a lost step must not look like a slow one
            self._previous[rank] = (step, ends[rank])
        planned = "+".join(sorted(self._planned_since_last))
        self._planned_since_last = {what for what, count in self._planned.items() if count}
        return IterationSample(
            job=self._job,
            attempt=self._attempt,
            time_ns=max(ends.values()),
            communicator=self._communicator,
            step=step,
            ranks=ranks,
            ends_ns=tuple(ends[rank] for rank in ranks),
            step_time_s=statistics.median(elapsed) / 1e9 if elapsed else 0.0,
            boundary="optimizer_step",
            planned=planned,
        )
