"""Simulating a job with some of its stragglers: which operations keep their own durations, and which are ideal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.whatif import longest
from streams.whatif.graph import Graph
from streams.whatif.layout import Ops

FloatArray = npt.NDArray[np.floating[Any]]
Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StepEnds:
    """When steps end, counted from their start; the shape is that of what was simulated."""

    end_s: Float64Array  # when the last operation ends
    optimizer_end_s: Float64Array  # when the last optimizer ends; the published slowdowns take this one for scenarios


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What simulating needs."""

    ops: Ops
    graph: Graph
    # shapes `(n_ops, n_steps, n_dp)` and `(n_ops,)`
    own_s: FloatArray
    ideal_s: Float64Array

    @property
    def n_dp(self) -> int:
        """DP ranks."""
        return int(self.own_s.shape[2])

    def keeping(self, is_kept: BoolArray) -> StepEnds:
        """Some operations keep their own durations on all DP ranks, all others are ideal; `is_kept` is `(n_ops,)`."""
        return self._together(is_kept.astype(np.int8), np.zeros((1, self.n_dp), dtype=bool))

    def keeping_workers(self, is_kept: BoolArray) -> StepEnds:
        """Some workers keep the durations of all of their operations; `is_kept` has shape `(n_stages, n_dp)`."""
        return self.with_ideal(~is_kept[self.ops.stage])

    def with_ideal(self, is_ideal: BoolArray) -> StepEnds:
        """Some operations are ideal on some DP ranks, all others are as they were; shape `(n_ops, n_dp)`."""
        keeps = np.where(is_ideal.all(axis=1), longest.IDEAL, longest.KEPT_ON_SOME)
        return self._together(np.where(is_ideal.any(axis=1), keeps, longest.KEPT).astype(np.int8), ~is_ideal)

    def with_durations(self, own_s: FloatArray) -> StepEnds:
        """All operations take what is given, shape as `own_s`."""
        return self._together(np.full(len(self.ops), longest.KEPT, np.int8), np.zeros((1, self.n_dp), bool), own_s)

    def keeping_each_dp_rank(self, is_kept: BoolArray) -> StepEnds:
        """Operations keep their own durations on one DP rank alone, for each of them; shape `(n_steps, n_dp)`."""
        ends = StepEnds(np.empty(self.own_s.shape[1:]), np.empty(self.own_s.shape[1:]))
        longest.alone(self.graph, self.own_s, self.ideal_s, is_kept.astype(np.int8), ends.end_s, ends.optimizer_end_s)
        return ends

    def delayed(self, delays_s: FloatArray, is_delayed: BoolArray) -> Float64Array:
        """When the last optimizer of each step ends if some launches are late; `is_delayed` has shape `(n_ops, n_dp)`.

        All operations keep their own durations. Step by step, for this needs every start and end.
        """
        found_s = np.empty(self.own_s.shape[1])
        for step in range(len(found_s)):
            at = slice(step, step + 1)
            _, ends_s = self.timeline(self.own_s[:, at], delays_s[:, at], is_delayed)
            found_s[step] = ends_s[self.graph.is_optimizer].max()
        return found_s

    def timeline(
        self, own_s: FloatArray, delays_s: FloatArray | None = None, is_delayed: BoolArray | None = None
    ) -> tuple[Float64Array, Float64Array]:
        """Launch and end of every operation, with launch delays for those of `is_delayed`, shape `(n_ops, n_dp)`."""
        starts_s, ends_s = np.empty(own_s.shape), np.empty(own_s.shape)
        if delays_s is None or is_delayed is None:
            delays_s, is_delayed = own_s, np.zeros((len(self.ops), own_s.shape[2]), dtype=bool)
        longest.timeline(self.graph, own_s, delays_s, is_delayed, starts_s, ends_s)
        return starts_s, ends_s

    def _together(self, keeps: npt.NDArray[np.int8], keeps_on: BoolArray, own_s: FloatArray | None = None) -> StepEnds:
        own_s = self.own_s if own_s is None else own_s
        ends = StepEnds(np.empty(own_s.shape[1]), np.empty(own_s.shape[1]))
        longest.together(self.graph, own_s, self.ideal_s, keeps, keeps_on, ends.end_s, ends.optimizer_end_s)
        return ends
