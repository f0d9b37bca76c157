"""The loops of the what-if analysis as plain array operations: what those in C are held to, bit for bit."""

import numpy as np

from streams.whatif.longest import IDEAL, KEPT, KEPT_ON_SOME
from streams.whatif.packing import IMPOSSIBLE, NEGATIVE, OF_UNKNOWN_TYPE, TWICE


def together(graph, own_s, ideal_s, keeps, keeps_on, end_s, optimizer_end_s):
    ends = np.empty((graph.n_slots, *own_s.shape[1:]))
    finish, optimizer = np.zeros((2, *own_s.shape[1:]))
    for node in range(len(graph.over_dp)):
        begin = _latest_of_waits(graph, node, ends)
        if graph.over_dp[node]:
            begin = np.broadcast_to(begin.max(axis=1, keepdims=True), begin.shape)
        for op in graph.members[graph.member_bounds[node] : graph.member_bounds[node + 1]]:
            takes_s = own_s[op] if keeps[op] == KEPT else ideal_s[op]
            if keeps[op] == KEPT_ON_SOME:
                takes_s = np.where(keeps_on[op], own_s[op], ideal_s[op])
            out = np.add(begin, takes_s, out=ends[graph.slot[op]])
            _keep_latest(graph, op, out, finish, optimizer)
    end_s[:], optimizer_end_s[:] = finish.max(axis=1), optimizer.max(axis=1)


def alone(graph, own_s, ideal_s, keeps, end_s, optimizer_end_s):
    ends, others = np.empty((2, graph.n_slots, *own_s.shape[1:]))
    end_s[:] = optimizer_end_s[:] = 0.0
    for node in range(len(graph.over_dp)):
        begin, other_begin = _latest_of_waits(graph, node, ends), _latest_of_waits(graph, node, others)
        if graph.over_dp[node] and own_s.shape[2] > 1:
            begin = other_begin = np.maximum(begin, other_begin)
        for op in graph.members[graph.member_bounds[node] : graph.member_bounds[node + 1]]:
            out = np.add(begin, ideal_s[op] if keeps[op] == IDEAL else own_s[op], out=ends[graph.slot[op]])
            _keep_latest(graph, op, out, end_s, optimizer_end_s)
            if own_s.shape[2] > 1:
                out = np.add(other_begin, ideal_s[op], out=others[graph.slot[op]])
                _keep_latest(graph, op, out, end_s, optimizer_end_s)


def timeline(graph, own_s, delays_s, is_delayed, starts_s, ends_s):
    for node in range(len(graph.over_dp)):
        first, last = graph.member_bounds[node], graph.member_bounds[node + 1]
        members = graph.members[first:last]
        for at, op in enumerate(members, first):
            waits = graph.own_waits[graph.own_bounds[at] : graph.own_bounds[at + 1]]
            start = ends_s[waits].max(axis=0) if len(waits) else np.zeros(own_s.shape[1:])
            starts_s[op] = np.where(is_delayed[op], start + delays_s[op], start)
        began = starts_s[members].max(axis=0)
        if graph.over_dp[node]:
            began = np.broadcast_to(began.max(axis=1, keepdims=True), began.shape)
        ends_s[members] = began + own_s[members]


def _latest_of_waits(graph, node, ends):
    waits = graph.waits[graph.wait_bounds[node] : graph.wait_bounds[node + 1]]
    return ends[graph.slot[waits]].max(axis=0) if len(waits) else np.zeros(ends.shape[1:])


def _keep_latest(graph, op, ends, finish, optimizer):
    if graph.is_last[op]:
        np.maximum(finish, ends, out=finish)
    if graph.is_optimizer[op]:
        np.maximum(optimizer, ends, out=optimizer)


def count_keys(table, seen, refused):
    is_known, is_possible, is_positive = _usable(table)
    refused[OF_UNKNOWN_TYPE] += (~is_known).sum()
    refused[IMPOSSIBLE] += (is_known & ~is_possible).sum()
    refused[NEGATIVE] += (is_known & is_possible & ~is_positive).sum()
    rows = is_known & is_possible & is_positive
    np.add.at(seen, (table.optype[rows], table.stage[rows], table.seq_id[rows]), 1)


def scatter(table, steps, op_of_key, starts_s, durations_s, first_row, ranks, surplus, moved, refused):
    is_known, is_possible, is_positive = _usable(table)
    rows = np.flatnonzero(is_known & is_possible & is_positive)
    at = np.searchsorted(steps, table.step[rows])
    op = op_of_key[table.optype[rows], table.stage[rows], table.seq_id[rows]]
    surplus += np.bincount(at[op < 0], minlength=len(steps))
    rows, at, op = rows[op >= 0], at[op >= 0], op[op >= 0]
    # Of several values for one place the last stays: backwards it is that of the first row.
    ranks[table.dp_rank[rows], table.stage[rows]] = table.rank[rows]
    first_row[op[::-1]] = rows[::-1]
    moved += np.bincount(at[table.mb_id[rows] != table.mb_id[first_row[op]]], minlength=len(steps))
    cell = np.ravel_multi_index((op, at, table.dp_rank[rows]), starts_s.shape)
    order = np.lexsort((table.start_s[rows], cell))
    is_first = np.diff(cell[order], prepend=-1) > 0
    refused[TWICE] += len(cell) - is_first.sum()
    taken = order[is_first]
    starts_s.reshape(-1)[cell[taken]] = table.start_s[rows[taken]]
    durations_s.reshape(-1)[cell[taken]] = table.duration_s[rows[taken]]


def _usable(table):
    """Whether a row's type is known, whether it can be placed, and whether its duration is one."""
    is_possible = (table.stage >= 0) & (table.dp_rank >= 0) & (table.seq_id >= 0) & np.isfinite(table.start_s)
    return table.optype >= 0, is_possible, (table.duration_s >= 0) & np.isfinite(table.duration_s)
