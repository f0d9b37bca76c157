"""The compiled heart: when each step ends, by the longest path through the contracted graph, many lanes at a time.

A lane is one DP rank in one step. Lanes lie side by side in memory, so that a step of the loop is one instruction for
several of them; they meet only where DP ranks wait for each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streams.compiled import compiled

IDEAL, KEPT, KEPT_ON_SOME = 0, 1, 2
"""What an operation takes: the ideal of its type, its own duration, or that on some DP ranks only."""

BLOCK_LANES = 256
"""Lanes that are worked on together: their ends stay in the cache."""


@compiled
def _begin(begin: Any, ends: Any, waits: Any, slot: Any, first: int, last: int, n: int) -> None:
    """The latest of the ends that a node waits for; 0 where there is none."""
    if first == last:
        for i in range(n):
            begin[i] = 0.0
        return
    one = ends[slot[waits[first]]]
    if last == first + 1:
        for i in range(n):
            begin[i] = one[i]
        return
    two = ends[slot[waits[first + 1]]]
    for i in range(n):
        begin[i] = one[i] if one[i] > two[i] else two[i]
    for at in range(first + 2, last):
        more = ends[slot[waits[at]]]
        for i in range(n):
            begin[i] = begin[i] if begin[i] > more[i] else more[i]


@compiled
def _plus_ideal(out: Any, begin: Any, ideal_s: float, n: int) -> None:
    for i in range(n):
        out[i] = begin[i] + ideal_s


@compiled
def _plus_own(out: Any, begin: Any, own_s: Any, n: int) -> None:
    for i in range(n):
        out[i] = begin[i] + own_s[i]


@compiled
def _latest(into: Any, ends: Any, n: int) -> None:
    for i in range(n):
        into[i] = into[i] if into[i] > ends[i] else ends[i]


@compiled
def together(
    graph: Any,
    own_s: Any,
    ideal_s: Any,
    keeps: Any,
    keeps_on: Any,
    end_s: Any,
    optimizer_end_s: Any,
) -> None:
    """When steps end if all DP ranks run with the same choice of operations that keep their own durations.

    Parameters
    ----------
    graph
        A `Graph`.
    own_s, ideal_s
        Shapes `(n_ops, n_steps, n_dp)` and `(n_ops,)`.
    keeps
        IDEAL, KEPT or KEPT_ON_SOME for each operation, shape `(n_ops,)`.
    keeps_on
        On which DP ranks, shape `(n_ops, n_dp)`; for operations that are KEPT_ON_SOME, else of no matter.
    end_s, optimizer_end_s
        Shape `(n_steps,)`; written: when the last operation, and the last optimizer, of each step ends.

    """
    n_ops, n_steps, n_dp = own_s.shape
    lanes_s = own_s.reshape(n_ops, n_steps * n_dp)
    steps_at_once = max(1, BLOCK_LANES // n_dp)
    width = steps_at_once * n_dp
    ends = np.empty((graph.n_slots, width))
    begin, finish, optimizer = np.empty(width), np.empty(width), np.empty(width)
    for first_step in range(0, n_steps, steps_at_once):
        n = min(steps_at_once, n_steps - first_step) * n_dp
        lane = first_step * n_dp
        finish[:] = 0.0
        optimizer[:] = 0.0
        for node in range(len(graph.over_dp)):
            _begin(begin, ends, graph.waits, graph.slot, graph.wait_bounds[node], graph.wait_bounds[node + 1], n)
            if graph.over_dp[node]:
                for at in range(0, n, n_dp):
                    latest = begin[at]
                    for i in range(at + 1, at + n_dp):
                        latest = begin[i] if begin[i] > latest else latest
                    for i in range(at, at + n_dp):
                        begin[i] = latest
            for at in range(graph.member_bounds[node], graph.member_bounds[node + 1]):
                op = graph.members[at]
                out = ends[graph.slot[op]]
                if keeps[op] == IDEAL:
                    _plus_ideal(out, begin, ideal_s[op], n)
                elif keeps[op] == KEPT:
                    _plus_own(out, begin, lanes_s[op, lane : lane + n], n)
                else:
                    mask = keeps_on[op]
                    for i in range(n):
                        out[i] = begin[i] + (lanes_s[op, lane + i] if mask[i % n_dp] else ideal_s[op])
                if graph.is_last[op]:
                    _latest(finish, out, n)
                if graph.is_optimizer[op]:
                    _latest(optimizer, out, n)
        for i in range(n // n_dp):
            end_s[first_step + i] = finish[i * n_dp : (i + 1) * n_dp].max()
            optimizer_end_s[first_step + i] = optimizer[i * n_dp : (i + 1) * n_dp].max()


@compiled
def alone(
    graph: Any,
    own_s: Any,
    ideal_s: Any,
    keeps: Any,
    end_s: Any,
    optimizer_end_s: Any,
) -> None:
    """When steps end if one DP rank keeps operations of its own and all others are ideal: for every DP rank at once.

    The others are all alike, so one of them stands for them: each lane has an ideal companion, and the two meet where
    DP ranks wait for each other. What would take `n_dp` simulations of all lanes takes one of twice the lanes.

    Parameters
    ----------
    graph, own_s, ideal_s, keeps
        As in `together`, without KEPT_ON_SOME.
    end_s, optimizer_end_s
        Shape `(n_steps, n_dp)`; written.

    """
    n_ops, n_steps, n_dp = own_s.shape
    n_lanes = n_steps * n_dp
    lanes_s = own_s.reshape(n_ops, n_lanes)
    last_s, last_optimizer_s = end_s.reshape(n_lanes), optimizer_end_s.reshape(n_lanes)
    has_others = n_dp > 1
    width = BLOCK_LANES // 2
    ends, others = np.empty((graph.n_slots, width)), np.empty((graph.n_slots, width))
    begin, other_begin = np.empty(width), np.empty(width)
    finish, optimizer = np.empty(width), np.empty(width)
    for lane in range(0, n_lanes, width):
        n = min(width, n_lanes - lane)
        finish[:] = 0.0
        optimizer[:] = 0.0
        for node in range(len(graph.over_dp)):
            first, last = graph.wait_bounds[node], graph.wait_bounds[node + 1]
            _begin(begin, ends, graph.waits, graph.slot, first, last, n)
            if has_others:
                _begin(other_begin, others, graph.waits, graph.slot, first, last, n)
                if graph.over_dp[node]:
                    _latest(begin, other_begin, n)
                    other_begin[:n] = begin[:n]
            for at in range(graph.member_bounds[node], graph.member_bounds[node + 1]):
                op = graph.members[at]
                out = ends[graph.slot[op]]
                if keeps[op] == IDEAL:
                    _plus_ideal(out, begin, ideal_s[op], n)
                else:
                    _plus_own(out, begin, lanes_s[op, lane : lane + n], n)
                if graph.is_last[op]:
                    _latest(finish, out, n)
                if graph.is_optimizer[op]:
                    _latest(optimizer, out, n)
                if has_others:
                    out = others[graph.slot[op]]
                    _plus_ideal(out, other_begin, ideal_s[op], n)
                    if graph.is_last[op]:
                        _latest(finish, out, n)
                    if graph.is_optimizer[op]:
                        _latest(optimizer, out, n)
        last_s[lane : lane + n] = finish[:n]
        last_optimizer_s[lane : lane + n] = optimizer[:n]


@compiled
def timeline(
    graph: Any,
    own_s: Any,
    delays_s: Any,
    is_delayed: Any,
    starts_s: Any,
    ends_s: Any,
) -> None:
    """When each operation is launched and ends; with launch delays for those operations that `is_delayed` names.

    Parameters
    ----------
    graph
        A `Graph`.
    own_s, delays_s
        Shape `(n_ops, n_steps, n_dp)`.
    is_delayed
        Shape `(n_ops, n_dp)`.
    starts_s, ends_s
        Shape `(n_ops, n_steps, n_dp)`; written. The start of a transfer is its launch.

    """
    _, n_steps, n_dp = own_s.shape
    began = np.empty((n_steps, n_dp))
    for node in range(len(graph.over_dp)):
        first, last = graph.member_bounds[node], graph.member_bounds[node + 1]
        for at in range(first, last):
            op = graph.members[at]
            for step in range(n_steps):
                for dp in range(n_dp):
                    start = 0.0
                    for before in range(graph.own_bounds[at], graph.own_bounds[at + 1]):
                        end = ends_s[graph.own_waits[before], step, dp]
                        start = end if before == graph.own_bounds[at] or end > start else start
                    if is_delayed[op, dp]:
                        start += delays_s[op, step, dp]
                    starts_s[op, step, dp] = start
                    if at == first or start > began[step, dp]:
                        began[step, dp] = start
        if graph.over_dp[node]:
            for step in range(n_steps):
                began[step, :] = began[step, :].max()
        for at in range(first, last):
            op = graph.members[at]
            for step in range(n_steps):
                for dp in range(n_dp):
                    ends_s[op, step, dp] = began[step, dp] + own_s[op, step, dp]
