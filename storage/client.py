"""Store: the history of every job, opened for this process."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from pacehound.clock import SystemClock
from pacehound.errors import InvalidInput
from storage.address import DATABASE, ServerAddress, server_address
from storage.embedded_handle import EmbeddedHandle
from storage.engine_code import UnneededCode
from storage.engine_errors import engine_errors
from storage.migrate import migrate
from storage.ownership import Ownership
from storage.readers import LIMITS, Readers

# A store stands beside a training job on a small machine as often as on one of its own.
_ENGINE_SETTINGS = {"max_threads": 2, "max_insert_threads": 1}

# Threads that wait for work keep memory of their own; merging is no work for two cores beside a training job. Each
# insert wakes whoever may merge its table. Without one the engine looks at each table ten times a second, and at its
# own memory twenty times: of a head beside a quiet job that was a quarter.
_ENGINE_OPTIONS = {
    "max_thread_pool_free_size": 2,
    "background_pool_size": 1,
    "background_processing_pool_thread_sleep_seconds_if_nothing_to_do": 30,
    "background_streaming_processing_pool_thread_sleep_seconds_if_nothing_to_do": 60,
    "memory_worker_period_ms": 1000,
}

# A server that does not let us in within this does not answer; a migration of a large table may take long.
_CONNECT_S, _ANSWER_S = 5, 300

_BROKEN_OFF_WITHIN_S = 3.0

# A block of rows with hostile times may span more than 100 days; that must cost time, not the rows.
# A block of Arrow is one piece: threads to take it apart only wait for each other.
_INSERT_SETTINGS = {"max_partitions_per_insert_block": 0, "input_format_parallel_parsing": 0, "max_threads": 1}


class Store:
    """The tables of `migrations/`, migrated and ready: embedded (`open`) or on a server (`connect`).

    Writes go through one handle of the engine and each question through one of its own, so that a long question holds
    up neither the writer nor another question. Safe to use from several threads.

    Parameters
    ----------
    writer
        A clickhouse-connect client of the database.
    readers
        Handles that only read it.
    ownership
        Released on `close`; `None` for a server.
    server
        Where the clients are connected to; `None` for the embedded engine.

    Attributes
    ----------
    unneeded
        The engine's code, to be given back now and then.

    """

    def __init__(
        self, writer: Any, readers: Readers, ownership: Ownership | None = None, server: ServerAddress | None = None
    ) -> None:
        self._writer = writer
        self._ownership = ownership
        self._server = server
        self._readers = readers
        self.unneeded = UnneededCode(SystemClock())
        migrate(self)

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
            with _own_job_control(), engine_errors(f"the store {directory} does not open"):
                # Here, because the engine takes half a second to import and only those who open a store need it.
                from clickhouse_connect import get_client

                path = str(directory / "data")
                engine = get_client(
                    interface="chdb", path=path, settings=dict(_ENGINE_SETTINGS), chdb_options=dict(_ENGINE_OPTIONS)
                )
                clients.append(engine)
                clients[0].command(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
                clients[0].database = DATABASE

                def reader() -> Any:
                    settings = {**_ENGINE_SETTINGS, **LIMITS}
                    client = get_client(interface="chdb", path=path, database=DATABASE, settings=settings)
                    return EmbeddedHandle(_reading(client), path, DATABASE, settings)

            return cls(clients[0], Readers(reader), ownership)
        except BaseException:
            for client in clients:
                client.close()
            ownership.release()
            raise

    @classmethod
    def connect(cls, url: str, user: str = "", password: str = "") -> Store:
        """Connect to a ClickHouse server over HTTP; its database is made, or brought to this version, where needed.

        Parameters
        ----------
        url
            `http(s)://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`; with https, certificates are checked.
        user, password
            Where the URL has none.

        Raises
        ------
        InvalidInput
            The URL is none, the login is refused, or a newer version wrote the database.
        Unavailable
            The server does not answer.

        """
        address = server_address(url, user, password)
        clients: list[Any] = []
        try:
            with engine_errors("the store does not open", server=address):
                writer = _http_client(address, {})
                clients.append(writer)
                if not int(writer.command(f"EXISTS DATABASE {address.database}")):
                    writer.command(f"CREATE DATABASE IF NOT EXISTS {address.database}")
                writer.database = address.database
            return cls(writer, server_readers(address), server=address)
        except BaseException:
            for client in clients:
                client.close()
            raise

    def insert(self, table: str, rows: pa.Table, token: str = "") -> None:
        """Append rows; when it returns they survive a kill of this process.

        Parameters
        ----------
        table
            Where to.
        rows
            All of them arrive, or none does; over midnight (UTC) those of one day may arrive without the others.
        token
            Names these very rows. The table, and every table that a materialized view fills from it, drops rows of
            a token that it has seen among its last ones (`non_replicated_deduplication_window`). Empty: none.

        Raises
        ------
        Unavailable
            The engine did not take them; the same rows may be written again.

        """
        if rows.num_rows == 0:
            return
        settings = {**_INSERT_SETTINGS, "insert_deduplication_token": token} if token else dict(_INSERT_SETTINGS)
        with engine_errors(f"{rows.num_rows} rows were not written to {table}", server=self._server):
            self._writer.insert_arrow(table, rows, settings=settings)
        self.unneeded.is_used()

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """The answer to one of our own questions (`Readers.query`, which says what it raises)."""
        self.unneeded.is_used()
        return self._readers.query(sql, parameters)

    def answer(self, sql: str) -> pa.Table:
        """The answer to somebody else's question (`Readers.answer`, which says what it raises)."""
        self.unneeded.is_used()
        return self._readers.answer(sql)

    def command(self, sql: str) -> None:
        """Run a statement that answers nothing (migrations)."""
        with engine_errors("a statement failed", server=self._server):
            self._writer.command(sql)

    def close(self) -> bool:
        """Break off what is being asked, and let the next process have the store.

        False where a question goes on all the same, in the middle of a function that the engine cannot break off: what
        is written is on disk, but only the end of this process lets go of the store.
        """
        try:
            is_quiet = self._readers.close() or self._break_off()
            if is_quiet:
                self._writer.close()
        finally:
            if self._ownership is not None:
                self._ownership.release()
        return is_quiet

    def _break_off(self) -> bool:
        deadline_s = time.monotonic() + _BROKEN_OFF_WITHIN_S
        while not self._readers.close() and time.monotonic() < deadline_s:
            # Of this process alone: others of a server have theirs.
            if self._server is None:
                self.command("KILL QUERY WHERE query_kind IN ('Select', 'Show', 'Explain') ASYNC")
            time.sleep(0.05)
        return self._readers.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def server_readers(address: ServerAddress) -> Readers:
    """Handles that read the database of a server; none is connected before the first question."""
    return Readers(lambda: _reading(_http_client(address, LIMITS, address.database)), address)


def _reading(client: Any) -> Any:
    client.set_client_setting("readonly", "1")  # the last of its settings: from here on none can be changed
    return client


def _http_client(address: ServerAddress, settings: Mapping[str, Any], database: str | None = None) -> Any:
    from clickhouse_connect import get_client

    # It warns of every try that failed; whoever asked gets the error and says what comes of it.
    logging.getLogger("clickhouse_connect.driver._backend.http_sync").setLevel(logging.ERROR)
    return get_client(
        interface=address.scheme,
        host=address.host,
        port=address.port,
        username=address.user,
        password=address.password,
        database=database,
        settings=dict(settings),
        connect_timeout=_CONNECT_S,
        send_receive_timeout=_ANSWER_S,
        # Several threads share a client, which a session does not allow.
        autogenerate_session_id=False,
    )


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
