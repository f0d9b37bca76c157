"""Which rows of an insert are not in the store: asked where an insert may have been cut off.

A repeated insert with its token is dropped where it had arrived, and arrives where it had not; that is nearly always
enough. Not always: the engine writes a token down just before the rows become visible, and a server that is killed in
between remembers an insert that it does not have. So after a failure, and for the first block of a partition after a
start, the writer looks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage import schemas
from storage.client import Store

_BATCH = ("job", "attempt", "host", "communicator", "source", "ordinal")
_CALL = ("rank", "seq", "peer", "direction")


def missing_rows(store: Store, table: str, rows: pa.Table) -> pa.Table:
    """The rows of `rows` that are not in `table`, by their identity; for calls, all rows of a batch that is not whole.

    Calls are asked for by batch, because a rollup is right only when a batch is never split over two inserts. A batch
    is whole when its rows are there and its minutes are too.
    """
    if rows.num_rows == 0:
        return rows
    if table == schemas.CALLS:
        return _missing_batches(store, rows)
    key = schemas.IDENTITY[table]
    condition, parameters = _box(rows, key)
    columns = ", ".join(f"`{name}`" for name in key)
    stored = store.query(f"SELECT DISTINCT {columns} FROM {table} WHERE {condition}", parameters)
    known = set(_tuples(stored, key))
    return rows.filter(pa.array([identity not in known for identity in _tuples(rows, key)], pa.bool_()))


def _missing_batches(store: Store, rows: pa.Table) -> pa.Table:
    batches = _tuples(rows, _BATCH)
    calls = set(zip(batches, _tuples(rows, _CALL), strict=True))
    expected = Counter(batch for batch, _ in calls)
    condition, parameters = _box(rows, _BATCH)
    columns, call = ", ".join(_BATCH), ", ".join(_CALL)
    sql = f"""
        SELECT {columns}, min(n) AS n FROM
        (
            SELECT {columns}, toInt64(uniqExact({call})) AS n FROM {schemas.CALLS} WHERE {condition} GROUP BY {columns}
            UNION ALL
            SELECT {columns}, sum(calls) AS n FROM {schemas.CALL_MINUTES} FINAL WHERE {condition} GROUP BY {columns}
        )
        GROUP BY {columns} HAVING count() = 2
    """
    stored = store.query(sql, parameters)
    found = dict(zip(_tuples(stored, _BATCH), stored.column("n").to_pylist(), strict=True))
    broken = {batch for batch, n_calls in expected.items() if found.get(batch, 0) < n_calls}
    return rows.filter(pa.array([batch in broken for batch in batches], pa.bool_()))


def _box(rows: pa.Table, key: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """A condition that holds for every row, from the least to the greatest value of each column of its identity."""
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    for name in key:
        column = rows.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_list(column.type):
            continue
        kind = "Int64" if pa.types.is_integer(column.type) else "String"
        least, greatest = pc.min_max(column).as_py().values()
        conditions.append(f"`{name}` BETWEEN {{least_{name}:{kind}}} AND {{greatest_{name}:{kind}}}")
        parameters |= {f"least_{name}": least, f"greatest_{name}": greatest}
    return " AND ".join(conditions), parameters


def _tuples(rows: pa.Table, key: tuple[str, ...]) -> list[tuple[Any, ...]]:
    columns = [rows.column(name).to_pylist() for name in key]
    return [tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in zip(*columns, strict=True)]
