"""Calls in which one rank represents the others of its host, because they did the same at nearly the same time.

An agent that takes more than its budget sends, of small calls, the row of one rank
(collector/calls/representative_rank.py). The batch says for whom it stands, and how far the others were from it on
average. Whoever reads the batch gets a row for every rank (`codec.decode`), so that no reader can take what was left
out for lost, or for a rank that did not enter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pacehound.errors import InvalidEvent
from pacehound.model.columns import numbers, values_of

MAX_ROWS = 1 << 18
"""A batch stands for no more rows than that: 1,450 rows of 180 ranks."""

MAX_APART_NS = 1_000_000_000
"""Ranks whose calls are further apart than that are not represented."""

OWN = ("stream", "group")
"""Numbers that mean something in one process alone."""


@dataclass(frozen=True, slots=True)
class RepresentedRank:
    """A rank that rows stand for: how much later than in the row it launched, started and ended, on average.

    Where a row is its own, it is exact.
    """

    rank: int
    launch_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0


def check_represented(n_rows: int, represented: Sequence[RepresentedRank]) -> None:
    """Whether so many rows can stand for these ranks.

    Raises
    ------
    InvalidEvent
        They are too many, a rank is there twice, or a time is too far off.

    """
    if n_rows * len(represented) > MAX_ROWS:
        raise InvalidEvent(
            f"{n_rows} rows stand for {len(represented)} ranks each; together at most {MAX_ROWS} are taken"
        )
    if len({one.rank for one in represented}) < len(represented):
        raise InvalidEvent(f"rows stand for ranks {[one.rank for one in represented]}, of which one is there twice")
    for one in represented:
        if one.rank < 0 or max(abs(one.launch_ns), abs(one.start_ns), abs(one.end_ns)) > MAX_APART_NS:
            raise InvalidEvent(f"rows stand for what cannot be: {one}")


def spread(rows: pa.RecordBatch, represented: Sequence[RepresentedRank]) -> pa.RecordBatch:
    """A row for every rank that each of `rows` stands for, in the order of `represented`; an instant of 0 stays unseen.

    Raises
    ------
    InvalidEvent
        A row is of a rank that is not among them.

    """
    n_ranks = len(represented)
    ranks = np.array([one.rank for one in represented], np.int64)
    own = values_of(rows.column("rank"))
    unlisted = sorted(set(own.tolist()) - set(ranks.tolist()))
    if unlisted:
        raise InvalidEvent(
            f"rows of ranks {unlisted[:8]} stand for ranks {ranks.tolist()[:8]}: they are not among them"
        )
    is_own = np.repeat(own, n_ranks) == np.tile(ranks, len(own))
    taken = rows.take(numbers(np.repeat(np.arange(len(own)), n_ranks), pa.int64()))
    arrays = []
    for field, column in zip(taken.schema, taken.columns, strict=True):
        if field.name == "rank":
            column = numbers(np.tile(ranks, len(own)), field.type)
        elif field.name in ("launch_ns", "start_ns", "end_ns"):
            values = values_of(column)
            later = np.tile(np.array([getattr(one, field.name) for one in represented], np.int64), len(own))
            column = numbers(np.where(is_own | (values <= 0), values, values + later), field.type)
        elif field.name in OWN:
            column = numbers(np.where(is_own, values_of(column), 0), field.type)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=taken.schema)
