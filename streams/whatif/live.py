"""Operations of sampled steps and the rounds of their collectives, as a trace.

A step's receives begin with its first computation: stages that end theirs early post the first receive of the next
step while others are still in the one before, and that waiting is no part of it. A send ends when its receive does:
that is how a device sees it; a host sees only when somebody waits for the send.

Gathers and scatters with a micro-batch hold up the passes of their own rank (FSDP): they are taken out of the passes,
and put together behind the last one, as one synchronisation of gradients that ends when that pass did. So waiting for
others is no computing, and a step takes as long as it did; at which layer somebody waited is lost.

Else, gradients are synchronised by the reductions that begin after a step's last backward pass has, and before its
optimizer, on a communicator of one stage. Where they begin within that pass (DistributedDataParallel does so), it is
taken to end with the launch of the last of them: what follows is waiting for the others. On a GPU the host launches
ahead of the device; there a rank gets to a reduction when its kernel starts.

Ranks that compute together are one worker (`tensor_groups`): the operations of the first of them stand for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pacehound.model.operations import Operations
from pacehound.model.rounds import Rounds
from streams.whatif import optypes
from streams.whatif.reader import OpTable, table_of
from streams.whatif.reductions import are_reductions, begins_ns
from streams.whatif.tensor_groups import NO_GROUPS, TensorGroups, joined

Int64Array = npt.NDArray[np.int64]

_RECEIVE_OF = {
    optypes.FORWARD_SEND: (optypes.FORWARD_RECV, 1),
    optypes.BACKWARD_SEND: (optypes.BACKWARD_RECV, -1),
}
_RECEIVES = (optypes.FORWARD_RECV, optypes.BACKWARD_RECV)
_SYNCS = (optypes.PARAMS_GATHER, optypes.GRADS_SCATTER)
_COLUMNS = ("rank", "step", "optype", "stage", "chunk", "micro_batch", "pipeline", "seq", "start_ns", "end_ns")


@dataclass(slots=True)
class _Rows:
    """Columns of shape `(n_rows,)`."""

    columns: dict[str, Int64Array]

    def __getitem__(self, name: str) -> Int64Array:
        return self.columns[name]


def live_trace(
    operations: Sequence[Operations], rounds: Sequence[Rounds], name: str, groups: TensorGroups = NO_GROUPS
) -> OpTable:
    """The trace of some steps.

    Operations are those of all ranks in whole steps; rounds of other times are left out. `name` is what the trace is
    called in messages.

    Raises
    ------
    InvalidInput
        A number is beyond what a trace can hold.
    """
    rows = _Rows(
        {column: np.concatenate([one.integers(column) for one in operations]).astype(np.int64) for column in _COLUMNS}
    )
    rows = _one_of_each_group(rows, groups)
    rounds = [one for one in rounds if one.communicator not in groups.communicators]
    _begin_steps(rows)
    _end_sends(rows)
    rows, held_up = _take_out_syncs(rows)
    gradients = _gradients(rows, rounds, held_up)
    columns = {column: np.concatenate([rows[column], gradients[column]]) for column in _COLUMNS}
    n_stages = int(columns["stage"].max()) + 1
    _, dp_rank = np.unique(columns["pipeline"], return_inverse=True)
    start_s = (columns["start_ns"] - columns["start_ns"].min()) / 1e9
    names = pa.DictionaryArray.from_arrays(pa.array(columns["optype"].astype(np.int8)), pa.array(optypes.NAMES))
    table = pa.table(
        {
            "dp_rank": dp_rank,
            "stage": columns["stage"],
            "rank": columns["rank"],
            "step": columns["step"],
            "optype": names,
            "start_ts": start_s,
            "duration": (columns["end_ns"] - columns["start_ns"]) / 1e9,
            "seq_id": columns["seq"],
            "mc": columns["chunk"] // n_stages,
            "gmc": columns["chunk"],
            "mb_id": columns["micro_batch"],
        }
    )
    return table_of(table, name)


def _one_of_each_group(rows: _Rows, groups: TensorGroups) -> _Rows:
    """The rows of ranks that come first in their groups; the pipelines of a group's ranks are one."""
    pipeline_of = dict(zip(rows["rank"].tolist(), rows["pipeline"].tolist(), strict=True))
    pipelines = joined(
        {pipeline_of[rank] for rank in group if rank in pipeline_of} for group in groups.of_rank.values()
    )
    firsts = [rank for rank in pipeline_of if groups.ranks(rank)[0] == rank]
    is_first = np.isin(rows["rank"], firsts)
    kept = {column: values[is_first] for column, values in rows.columns.items()}
    kept["pipeline"] = np.array([pipelines.get(one, one) for one in kept["pipeline"].tolist()], dtype=np.int64)
    return _Rows(kept)


def _begin_steps(rows: _Rows) -> None:
    """No receive starts before the first computation of its step."""
    steps, at = np.unique(rows["step"], return_inverse=True)
    begins_ns = np.full(len(steps), np.iinfo(np.int64).max)
    is_compute = np.isin(rows["optype"], optypes.COMPUTE)
    np.minimum.at(begins_ns, at[is_compute], rows["start_ns"][is_compute])
    is_early = np.isin(rows["optype"], _RECEIVES) & (begins_ns[at] < np.iinfo(np.int64).max)
    rows["start_ns"][is_early] = np.maximum(rows["start_ns"], begins_ns[at])[is_early]
    rows["end_ns"][:] = np.maximum(rows["start_ns"], rows["end_ns"])


def _end_sends(rows: _Rows) -> None:
    """Sends end with their receives, where those are known."""
    _, pipeline = np.unique(rows["pipeline"], return_inverse=True)
    _, step = np.unique(rows["step"], return_inverse=True)
    n_steps, n_chunks, n_mb = int(step.max()) + 1, int(rows["chunk"].max()) + 3, int(rows["micro_batch"].max()) + 2

    def keys(chosen: npt.NDArray[np.bool_], towards: int) -> Int64Array:
        place = (pipeline[chosen] * n_steps + step[chosen]) * n_chunks + rows["chunk"][chosen] + 1 + towards
        found: Int64Array = place * n_mb + rows["micro_batch"][chosen] + 1
        return found

    for send, (receive, towards) in _RECEIVE_OF.items():
        is_send, is_receive = rows["optype"] == send, rows["optype"] == receive
        if not is_send.any() or not is_receive.any():
            continue
        received, ends_ns = keys(is_receive, 0), rows["end_ns"][is_receive]
        order = np.argsort(received)
        received, ends_ns = received[order], ends_ns[order]
        sent = keys(is_send, towards)
        at = np.minimum(np.searchsorted(received, sent), len(received) - 1)
        # An end before its beginning is of another clock: those are put right later, by the ends as they were.
        is_known = (received[at] == sent) & (ends_ns[at] >= rows["start_ns"][is_send])
        rows["end_ns"][is_send] = np.where(
            is_known, np.minimum(ends_ns[at], rows["end_ns"][is_send]), rows["end_ns"][is_send]
        )


def _take_out_syncs(rows: _Rows) -> tuple[_Rows, set[tuple[int, int]]]:
    """The rows without what holds up passes, and the (rank, step) where that was so."""
    is_inner = np.isin(rows["optype"], _SYNCS) & (rows["micro_batch"] >= 0)
    is_pass = np.isin(rows["optype"], optypes.COMPUTE)
    is_kept = ~is_inner
    held_up: set[tuple[int, int]] = set()
    if not is_inner.any():
        return rows, held_up
    order = np.lexsort((rows["start_ns"], rows["step"], rows["rank"]))
    is_new = (np.diff(rows["rank"][order]) != 0) | (np.diff(rows["step"][order]) != 0)
    for mine in np.split(order, np.flatnonzero(is_new) + 1):
        passes, syncs = mine[is_pass[mine]], mine[is_inner[mine]]
        if not len(passes) or not len(syncs):
            continue
        held_up.add((int(rows["rank"][mine[0]]), int(rows["step"][mine[0]])))
        moved_ns = 0
        for at in passes.tolist():
            start_ns, end_ns = int(rows["start_ns"][at]), int(rows["end_ns"][at])
            within_ns = np.minimum(rows["end_ns"][syncs], end_ns) - np.maximum(rows["start_ns"][syncs], start_ns)
            rows["start_ns"][at] = start_ns - moved_ns
            moved_ns += int(np.maximum(within_ns, 0).sum())
            rows["end_ns"][at] = max(end_ns - moved_ns, int(rows["start_ns"][at]))
        one = syncs[0]
        is_kept[one] = True
        rows["optype"][one], rows["micro_batch"][one], rows["seq"][one] = optypes.GRADS_SCATTER, -1, 0
        rows["start_ns"][one], rows["end_ns"][one] = rows["end_ns"][passes[-1]], end_ns
    return _Rows({column: values[is_kept] for column, values in rows.columns.items()}), held_up


def _gradients(rows: _Rows, rounds: Sequence[Rounds], held_up: set[tuple[int, int]]) -> _Rows:
    """Reductions between the last backward pass and the optimizer of a rank's step, as operations."""
    found: dict[str, list[Any]] = {column: [] for column in _COLUMNS}
    stage_of = dict(zip(rows["rank"].tolist(), rows["stage"].tolist(), strict=True))
    calls = reductions_of(rounds, stage_of)
    for rank in np.unique(rows["rank"]).tolist():
        if rank not in calls:
            continue
        arrivals_ns, ends_ns = calls[rank]
        is_rank = rows["rank"] == rank
        for step in np.unique(rows["step"][is_rank]).tolist():
            if (rank, step) in held_up:
                continue
            is_step = is_rank & (rows["step"] == step)
            backwards = np.flatnonzero(is_step & (rows["optype"] == optypes.BACKWARD_COMPUTE))
            optimizer = np.flatnonzero(is_step & (rows["optype"] == optypes.OPTIMIZER))
            if not len(backwards) or not len(optimizer):
                continue
            last = backwards[np.argmax(rows["start_ns"][backwards])]
            is_in = (arrivals_ns >= rows["start_ns"][last]) & (arrivals_ns <= rows["start_ns"][optimizer[0]])
            n = int(is_in.sum())
            if not n:
                continue
            rows["end_ns"][last] = min(rows["end_ns"][last], arrivals_ns[is_in].max())
            for column in ("rank", "step", "stage", "chunk", "pipeline"):
                found[column] += [int(rows[column][last])] * n
            found["optype"] += [optypes.GRADS_SCATTER] * n
            found["micro_batch"] += [-1] * n
            found["seq"] += range(n)
            found["start_ns"] += arrivals_ns[is_in].tolist()
            found["end_ns"] += ends_ns[is_in].tolist()
    return _Rows({column: np.array(values, dtype=np.int64) for column, values in found.items()})


def reductions_of(rounds: Sequence[Rounds], stage_of: dict[int, int]) -> dict[int, tuple[Int64Array, Int64Array]]:
    """Beginnings and ends of each rank's reductions on communicators of one stage, in order; only whole ones."""
    gathered: dict[int, list[tuple[int, int]]] = {}
    for one in rounds:
        if one.is_pair or len({stage_of.get(rank, -1) for rank in one.ranks}) > 1:
            continue
        begun_ns = begins_ns(one)
        is_whole = are_reductions(one) & (begun_ns > 0).all(axis=1) & (one.end_ns > 0).all(axis=1)
        for at, rank in enumerate(one.ranks):
            pairs = zip(begun_ns[is_whole, at].tolist(), one.end_ns[is_whole, at].tolist(), strict=True)
            gathered.setdefault(rank, []).extend(pairs)
    calls = {}
    for rank, pairs_ns in gathered.items():
        ordered = np.array(sorted(set(pairs_ns)), dtype=np.int64).reshape(-1, 2)
        calls[rank] = ordered[:, 0], ordered[:, 1]
    return calls
