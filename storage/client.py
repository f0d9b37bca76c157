"""Store: the history of every job, opened for this process."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from pacehound.errors import InvalidInput, Unavailable
from storage.migrate import migrate
from storage.ownership import Ownership
from storage.statements import only_reads

DATABASE = "pacehound"

# A store stands beside a training job on a small machine as often as on one of its own.
_ENGINE_SETTINGS = {"max_threads": 2, "max_insert_threads": 1}

# The pipeline may live in this process: a question must not take its memory.
MAX_ANSWER_BYTES = 256 * 1024**2
_READER_LIMITS = {"max_memory_usage": 1024**3, "max_result_bytes": MAX_ANSWER_BYTES}

# A block of rows with hostile times may span more than 100 days; that must cost time, not the rows.
_INSERT_SETTINGS = {"max_partitions_per_insert_block": 0}


class Store:
    """The tables of `migrations/`, migrated and ready.

    Writes go through one handle of the engine and reads through another, read-only one, so that a long question
    does not hold up the writer. Safe to use from several threads; each handle serves one call at a time.

    Parameters
    ----------
    writer, reader
        Two clickhouse-connect clients of the same database.
    ownership
        Released on `close`; `None` for a server.

    """

    def __init__(self, writer: Any, reader: Any, ownership: Ownership | None = None) -> None:
        self._writer = writer
        self._reader = reader
        self._ownership = ownership
        migrate(self)
        self._reader.set_client_setting("readonly", "1")

    @classmethod
    def open(cls, directory: Path) -> Store:
        """Open the store in `directory`; it is created, or brought to this version, where needed.

        Raises
        ------
        StoreOwned
            Another process has it open.
        InvalidInput
            The folder cannot be used, or was written by a newer version.
        Unavailable
            The engine does not start.

        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"the store {directory} cannot be made: {error.strerror}") from error
        ownership = Ownership(directory)
        clients: list[Any] = []
        try:
            with _own_job_control(), _engine_errors(f"the store {directory} does not open"):
                # Here, because the engine takes half a second to import and only those who open a store need it.
                from clickhouse_connect import get_client

                path = str(directory / "data")
                clients.append(get_client(interface="chdb", path=path, settings=dict(_ENGINE_SETTINGS)))
                clients[0].command(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
                clients[0].database = DATABASE
                clients.append(
                    get_client(
                        interface="chdb", path=path, database=DATABASE, settings={**_ENGINE_SETTINGS, **_READER_LIMITS}
                    )
                )
            return cls(clients[0], clients[1], ownership)
        except BaseException:
            for client in clients:
                client.close()
            ownership.release()
            raise

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """The answer to one question, as a table.

        Parameters
        ----------
        sql
            One SELECT, WITH, SHOW, DESCRIBE, EXPLAIN or EXISTS; `{name:Type}` stands for a parameter.
        parameters
            Values by name.

        Raises
        ------
        InvalidInput
            The SQL is not a question, or the engine refuses it; the message is the engine's.

        """
        statement = only_reads(sql)
        with _engine_errors("the query failed", InvalidInput):
            try:
                table: pa.Table = self._reader.query_arrow(statement, parameters=dict(parameters or {}))
            except (pa.ArrowException, OSError) as error:
                # Over the limit chDB ends the answer in its middle instead of saying so.
                raise InvalidInput(
                    f"the answer broke off; most likely it is larger than {MAX_ANSWER_BYTES // 1024**2} MiB:"
                    " select fewer columns or rows"
                ) from error
        return table

    def insert(self, table: str, rows: pa.Table) -> None:
        """Append rows; when it returns they survive a kill of this process.

        Raises
        ------
        Unavailable
            The engine did not take them; the same rows may be written again.

        """
        if rows.num_rows == 0:
            return
        with _engine_errors(f"{rows.num_rows} rows were not written to {table}"):
            self._writer.insert_arrow(table, rows, settings=dict(_INSERT_SETTINGS))

    def command(self, sql: str) -> None:
        """Run a statement that answers nothing (migrations)."""
        with _engine_errors("a statement failed"):
            self._writer.command(sql)

    def close(self) -> None:
        """Close both handles and let the next process have the store."""
        try:
            self._reader.close()
            self._writer.close()
        finally:
            if self._ownership is not None:
                self._ownership.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _own_job_control() -> Iterator[None]:
    """Keep Ctrl-Z working: the engine installs a handler for SIGTSTP that swallows it."""
    before = signal.getsignal(signal.SIGTSTP)
    try:
        yield
    finally:
        # Python sets handlers from its main thread only; elsewhere the engine's handler stays.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTSTP, before)


@contextmanager
def _engine_errors(what: str, kind: type[Unavailable] | type[InvalidInput] = Unavailable) -> Iterator[None]:
    """Translate what the engine and its client raise, in one place."""
    try:
        yield
    except ImportError as error:
        raise Unavailable(f"{what}: {error}; install pacehound[embedded]") from error
    except Exception as error:
        if not _is_engine_error(error):
            raise
        raise kind(f"{what}: {_first_sentence(error)}") from error


def _is_engine_error(error: Exception) -> bool:
    # The client's errors, what Arrow says of an answer that is none, and a full disk.
    module = type(error).__module__
    return module.startswith("clickhouse_connect") or isinstance(error, (pa.ArrowException, OSError))


def _first_sentence(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    first = text.replace(" FORMAT Arrow", "").splitlines()[0]
    # The engine wraps its own words once per layer: Code: 47. DB::Exception: Code: 47. … (version …). (NAME)
    words = re.sub(r"Code: \d+\. DB::Exception: |\(version [^)]*\)\.? ?", "", first)
    return re.sub(r"(\. \(\w+\))(?: ?\(\w+\)| ?\. \(\w+\))+$", r"\1", words.strip())
