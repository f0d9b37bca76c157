"""Handles of the engine that only read: each serves one question at a time, and none holds up another or the writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from pacehound.errors import InvalidInput
from storage.address import ServerAddress
from storage.embedded_handle import STREAMED
from storage.engine_errors import code_of, engine_errors
from storage.statements import only_reads, only_the_history

LONGEST_ANSWER_S = 30
"""Who asks waits no longer; two questions that never end would else keep both threads that answer."""
MAX_ANSWER_BYTES = 256 * 1024**2
"""The pipeline may live in this process: a question must not take its memory."""
MAX_ANSWER_ROWS = 10_000_000
LIMITS: Mapping[str, int] = {
    "max_execution_time": LONGEST_ANSWER_S,
    "max_memory_usage": 1024**3,
    "max_result_bytes": MAX_ANSWER_BYTES,
    "max_result_rows": MAX_ANSWER_ROWS,
    # A function over a whole block cannot be broken off in its middle: an array of 100,000,000 elements took 6 s.
    "function_range_max_elements_in_block": 10_000_000,
}

# ClickHouse's own numbers: TOO_MANY_ROWS_OR_BYTES; TIMEOUT_EXCEEDED, TOO_SLOW; MEMORY_LIMIT_EXCEEDED; CANCELLED.
_TOO_LARGE, _TOO_LONG, _TOO_MUCH_MEMORY, _BROKEN_OFF = 396, (159, 160), 241, 394
_TOO_LARGE_SAID = (
    f"the answer is larger than {MAX_ANSWER_BYTES // 1024**2} MiB or {MAX_ANSWER_ROWS:,} rows:"
    " select fewer columns or rows"
)
_MOST_IDLE = 4


class Readers:
    """Handles that read one database.

    Parameters
    ----------
    open_handle
        Makes another clickhouse-connect client of it.
    server
        Where they are connected to; `None` for the embedded engine.

    """

    def __init__(self, open_handle: Callable[[], Any], server: ServerAddress | None = None) -> None:
        self._open_handle = open_handle
        self._server = server
        self._idle: list[Any] = []
        self._table_functions: frozenset[str] = frozenset()
        self._at_work = 0
        self._lock = threading.Lock()
        self._is_closed = False

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """The answer to one of our own questions, as a table.

        Parameters
        ----------
        sql
            One SELECT, WITH, SHOW, DESCRIBE, EXPLAIN or EXISTS; `{name:Type}` stands for a parameter.
        parameters
            Values by name.

        Raises
        ------
        InvalidInput
            The SQL is not a question, the engine refuses it, or the answer is too large or takes too long.

        """
        statement = only_reads(sql)
        with self._handle() as handle:
            table: pa.Table = handle.query_arrow(statement, parameters=dict(parameters or {}))
        return table

    def answer(self, sql: str) -> pa.Table:
        """The answer to somebody else's question: of the history, and of nothing else that this process can read.

        Raises
        ------
        InvalidInput
            As `query`; or it asks for files, other servers, or tables of the engine that may hold secrets.

        """
        statement = only_reads(sql)
        if not self._table_functions:
            names = self.query("SELECT name FROM system.table_functions").column("name").to_pylist()
            self._table_functions = frozenset(name.lower() for name in names)
        # The engine reads the text as it will when it answers: no comment, quote or case hides anything from it.
        with self._handle() as handle:
            tree = handle.raw_query(f"EXPLAIN AST {statement}").decode().splitlines()
        only_the_history(tree, self._table_functions)
        return self._counted(statement, is_streamed=tree[0].split()[0] in STREAMED)

    def _counted(self, statement: str, *, is_streamed: bool) -> pa.Table:
        """The answer, broken off where it gets larger than it may: the engine does not count what is constant in it."""
        schema: pa.Schema | None = None
        batches: list[pa.RecordBatch] = []
        n_bytes = 0
        with self._handle() as handle:
            if self._server is None and not is_streamed:
                whole: pa.Table = handle.query_arrow(statement)
                return whole
            with handle.arrow_streams(statement) if self._server is None else _streams(handle, statement) as streams:
                for stream in streams:
                    schema = schema or stream.schema
                    for batch in stream:
                        n_bytes += batch.nbytes
                        if n_bytes > MAX_ANSWER_BYTES:
                            raise InvalidInput(_TOO_LARGE_SAID)
                        batches.append(batch)
            if schema is None:  # an answer without rows has no block
                schema = handle.query_arrow(f"SELECT * FROM (\n{statement}\n) LIMIT 0").schema
        return pa.Table.from_batches(batches, schema)

    def close(self) -> bool:
        """Take no more questions; whether none is being answered any more."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            is_quiet = self._at_work == 0
        for handle in idle:
            handle.close()
        return is_quiet

    @contextmanager
    def _handle(self) -> Iterator[Any]:
        with self._lock:
            if self._is_closed:
                raise InvalidInput("the store is being closed; ask again")
            handle = self._idle.pop() if self._idle else None
            self._at_work += 1
        is_sound = False
        try:
            with engine_errors("the query failed", InvalidInput, server=self._server):
                try:
                    handle = handle or self._open_handle()
                    yield handle
                except Exception as error:
                    if reason := self._over_the_limit(error):
                        raise InvalidInput(reason) from error
                    raise
            is_sound = True
        finally:
            with self._lock:
                self._at_work -= 1
                # After an answer that broke off, the embedded engine puts the rest of it before the next one.
                if is_kept := is_sound and not self._is_closed and len(self._idle) < _MOST_IDLE:
                    self._idle.append(handle)
            if handle is not None and not is_kept:
                handle.close()

    def _over_the_limit(self, error: Exception) -> str:
        code = code_of(error)
        # Over the limit chDB may end the answer in its middle instead of saying so; a server says it.
        broke_off = self._server is None and isinstance(error, (pa.ArrowException, OSError))
        if broke_off or code == _TOO_LARGE:
            likely = "broke off; most likely it " if broke_off else ""
            return _TOO_LARGE_SAID.replace("the answer is", f"the answer {likely}is")
        if code in _TOO_LONG:
            return f"the answer takes longer than {LONGEST_ANSWER_S} s: ask for less, as in WHERE job = … or time > …"
        if code == _TOO_MUCH_MEMORY:
            return "the answer takes more than 1 GiB of memory to find: ask for fewer rows, groups or columns"
        if code == _BROKEN_OFF:
            return "the question was broken off, for the store is being closed: ask again"
        return ""


@contextmanager
def _streams(client: Any, statement: str) -> Iterator[Iterator[pa.RecordBatchReader]]:
    """A server's answer: one stream."""
    with client.query_arrow_stream(statement) as stream:
        yield iter((stream.gen,))
