"""Events of which there are many as columns, many of them together.

A row of Python's for each iteration, and for each mark of a rank, took a head twice as long as all else that it does to
make rows of what a job says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter

import numpy as np
import pyarrow as pa

from pacehound.model.events import IterationSample, Markers
from storage import schemas
from storage.rows import column_of

_OF_EACH_MARK = {"rank": "ranks", "name": "names", "step": "steps", "time_ns": "times_ns"}
"""Columns of `Markers`, by the column of the table."""


def iterations_table(samples: Sequence[IterationSample]) -> pa.Table:
    """A row for each, in order; `InvalidEvent` where a value does not fit its column.

    >>> sample = IterationSample(job="j", attempt=0, time_ns=9, communicator="c", step=4, ranks=(0, 1),
    ...                          ends_ns=(8, 9), step_time_s=0.5, boundary="period")
    >>> [(row["step"], row["ends_ns"]) for row in iterations_table([sample]).to_pylist()]
    [(4, [8, 9])]
    """
    schema = schemas.ROW_TABLES[schemas.ITERATIONS]
    columns = [column_of(schemas.ITERATIONS, name, list(map(attrgetter(name), samples))) for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def markers_table(said: Sequence[Markers]) -> pa.Table:
    """A row for each mark, in order; `InvalidEvent` where a value does not fit its column.

    >>> said = Markers(job="j", attempt=0, host="h", communicator="c", ranks=(0, 1), names=("optimizer_step",) * 2,
    ...                steps=(3, 3), times_ns=(7, 8))
    >>> [(row["host"], row["rank"], row["time_ns"]) for row in markers_table([said]).to_pylist()]
    [('h', 0, 7), ('h', 1, 8)]
    """
    schema = schemas.ROW_TABLES[schemas.MARKERS]
    whose = pa.array(np.repeat(np.arange(len(said)), [len(one.ranks) for one in said]))
    columns = []
    for name in schema.names:
        if name in _OF_EACH_MARK:
            values = list(chain.from_iterable(map(attrgetter(_OF_EACH_MARK[name]), said)))
            columns.append(column_of(schemas.MARKERS, name, values))
        else:
            columns.append(column_of(schemas.MARKERS, name, list(map(attrgetter(name), said))).take(whose))
    return pa.Table.from_arrays(columns, schema=schema)
