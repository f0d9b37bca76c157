"""The last sampled steps of a job that a store has, and the reductions of their time; asked for in SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pacehound.errors import InvalidInput
from pacehound.model.calls import OPS, Sees
from pacehound.model.operations import OPERATION_SCHEMA, OPTYPES, Operations
from pacehound.model.rounds import Rounds
from pacehound.model.sql_text import sql_text

Int64Array = npt.NDArray[np.int64]

Ask = Callable[[str], pa.Table]
"""Answers one SELECT."""

_REDUCTIONS = ("all_reduce", "reduce_scatter")
_AHEAD_NS = 60_000_000_000
"""A host may have launched a call so long before its device gets there, and no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWindow:
    """Operations of whole steps, and the rounds of reductions of their time.

    Attributes
    ----------
    world_size
        Ranks of the job; each of them has told of every step.

    """

    attempt: int
    world_size: int
    operations: Operations
    rounds: tuple[Rounds, ...]


def stored_window(ask: Ask, job: str, attempt: int | None, n_steps: int) -> StoredWindow:
    """The last whole steps of a job; a step is whole when every rank has told of its optimizer.

    Parameters
    ----------
    ask
        The store.
    job
        Its name.
    attempt
        None: the last one that has operations.
    n_steps
        At most so many.

    Raises
    ------
    InvalidInput
        There are none.

    """
    of_job = f"job = {sql_text(job)}"
    if attempt is None:
        (row,) = ask(f"SELECT max(attempt) AS attempt, count() AS n FROM operations WHERE {of_job}").to_pylist()
        if not row["n"]:
            raise InvalidInput(
                f"the store has no operations of job {job}: they are recorded with --set ops.every_steps=N, and kept "
                "as long as raw calls are (store.raw_calls_hours)"
            )
        attempt = int(row["attempt"])
    of_attempt = f"{of_job} AND attempt = {attempt}"
    (row,) = ask(f"SELECT max(world_size) AS n FROM topology WHERE {of_attempt}").to_pylist()
    world_size = int(row["n"] or 0)
    steps = ask(
        f"SELECT step FROM operations WHERE {of_attempt} AND optype = 'optimizer' "
        f"GROUP BY step HAVING uniqExact(rank) >= {max(world_size, 1)} ORDER BY step DESC LIMIT {n_steps}"
    )["step"].to_pylist()
    if not steps or not world_size:
        raise InvalidInput(
            f"the store has no step of job {job}, attempt {attempt}, whose operations all {world_size} ranks have told"
        )
    operations = _operations(ask, job, attempt, f"{of_attempt} AND step IN ({', '.join(map(str, steps))})")
    times_ns = int(operations.integers("start_ns").min()), operations.time_ns
    names = ", ".join(map(sql_text, _REDUCTIONS))
    rounds = _rounds(
        ask(
            f"SELECT communicator, source, rank, seq, op, launch_ns, start_ns, end_ns FROM calls WHERE {of_attempt} "
            f"AND op IN ({names}) AND launch_ns BETWEEN {times_ns[0] - _AHEAD_NS} AND {times_ns[1]} "
            "AND NOT endsWith(source, ' digests') "  # iterations, not rounds
            "ORDER BY communicator, source, seq, rank"
        ),
        job,
        attempt,
    )
    return StoredWindow(attempt=attempt, world_size=world_size, operations=operations, rounds=rounds)


def _operations(ask: Ask, job: str, attempt: int, condition: str) -> Operations:
    names = ", ".join(OPERATION_SCHEMA.names)
    table = ask(f"SELECT {names} FROM operations WHERE {condition} ORDER BY rank, step, optype, seq")
    code = {name: at for at, name in enumerate(OPTYPES)}
    columns = [
        pa.array([code[name] for name in table["optype"].to_pylist()], field.type)
        if field.name == "optype"
        else table[field.name].combine_chunks().cast(field.type)
        for field in OPERATION_SCHEMA
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=OPERATION_SCHEMA)
    return Operations(job=job, attempt=attempt, host="store", rows=rows)


def _rounds(calls: pa.Table, job: str, attempt: int) -> tuple[Rounds, ...]:
    """The calls of each communicator and source, joined by their number; 0 where a rank's call is not there."""
    if not len(calls):
        return ()
    owners = list(zip(calls["communicator"].to_pylist(), calls["source"].to_pylist(), strict=True))
    borders = [0, *(at for at in range(1, len(owners)) if owners[at] != owners[at - 1]), len(owners)]
    columns = {name: calls[name].to_numpy() for name in ("rank", "seq", "launch_ns", "start_ns", "end_ns")}
    ops = np.array([OPS.index(name) for name in calls["op"].to_pylist()], dtype=np.int8)
    found = []
    for first, last in pairwise(borders):
        part = slice(first, last)
        ranks, column = np.unique(columns["rank"][part], return_inverse=True)
        seq, first_of_seq, row = np.unique(columns["seq"][part], return_index=True, return_inverse=True)
        found.append(
            Rounds(
                job=job,
                attempt=attempt,
                communicator=owners[first][0],
                source=owners[first][1],
                sees=Sees.ALL,
                ranks=tuple(ranks.tolist()),
                seq=seq.astype(np.int64),
                op=ops[part][first_of_seq],
                size_bytes=np.zeros(len(seq), dtype=np.int64),
                arrival_ns=_grid(columns["launch_ns"][part], row, column),
                start_ns=_grid(columns["start_ns"][part], row, column),
                end_ns=_grid(columns["end_ns"][part], row, column),
            )
        )
    return tuple(found)


def _grid(values: Int64Array, row: npt.NDArray[np.intp], column: npt.NDArray[np.intp]) -> Int64Array:
    filled = np.zeros((int(row.max()) + 1, int(column.max()) + 1), dtype=np.int64)
    filled[row, column] = values
    return filled
