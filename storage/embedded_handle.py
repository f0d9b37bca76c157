"""A handle of the embedded engine that reads: short answers whole, and those to other people's questions as they come.

clickhouse-connect has all of an embedded answer in memory before it gives any of it, packed, and the engine counts
neither that nor a column that is constant: one SELECT took 3 GiB. The engine's own connection gives block after block.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

# All others have an answer of a few rows, which the engine does not give in blocks.
STREAMED = frozenset({"SelectWithUnionQuery", "SelectIntersectExceptQuery", "SelectQuery"})


class EmbeddedHandle:
    """A clickhouse-connect client and a connection of the same engine beside it.

    Parameters
    ----------
    client
        Reads only.
    path
        Where the engine has its data.
    database, settings
        As the client has them.

    """

    def __init__(self, client: Any, path: str, database: str, settings: Mapping[str, Any]) -> None:
        import chdb

        self._client = client
        self.query_arrow = client.query_arrow
        self.raw_query = client.raw_query
        self._connection = chdb.connect(os.path.realpath(path))  # the engine compares paths by their letters
        self._connection.query(f"USE {database}")
        # Packing would cost time and save nothing: it goes nowhere.
        for name, value in {"output_format_arrow_compression_method": "'none'", **settings, "readonly": 1}.items():
            self._connection.query(f"SET {name} = {value}")

    @contextmanager
    def arrow_streams(self, statement: str) -> Iterator[Iterator[pa.RecordBatchReader]]:
        """The blocks of an answer, each an Arrow stream of its own; the question ends with the context."""
        answer = self._connection.send_query(statement, "ArrowStream")
        try:
            yield (pa.ipc.open_stream(block.bytes()) for block in answer)
        finally:
            answer.close()

    def close(self) -> None:
        """Let go of both."""
        self._connection.close()
        self._client.close()
