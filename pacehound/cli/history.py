"""Whoever can answer questions about a store: the head that has it open, else this process.

Apart from `pacehound.runtime.embedded` because who asks needs nothing of what a head is made of,
and waits for each import.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pacehound.clock import SystemClock
from pacehound.errors import InvalidInput, StoreOwned
from pacehound.model.events import Decision, Incident
from pacehound.runtime.head.client import HeadClient, live_owner
from pacehound.runtime.head.interrupted import interrupted
from pacehound.runtime.head.owner import OWNER_LEAVES_WITHIN_S, is_held
from pacehound.settings import StoreSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from storage.client import Store
    from storage.readers import Readers


@dataclass(frozen=True, slots=True)
class OwnedHistory:
    """Asks the head that has the store open."""

    client: HeadClient

    def incidents(self, job: str | None) -> tuple[list[Incident], list[Decision]]:
        """As the head knows them."""
        return self.client.incidents(job)

    def problems(self) -> tuple[str, ...]:
        """What is not as it should be there."""
        return self.client.health().problems

    def sql(self, statement: str) -> pa.Table:
        """Rows, sent as an Arrow stream."""
        return _table(self.client.sql(statement))

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Rows of one of the store's named queries."""
        return _table(self.client.ask(name, parameters))


@dataclass(frozen=True, slots=True)
class OpenedHistory:
    """Reads a store in this process; in a folder nobody watches then, so nothing in it can still be open."""

    store: Store | Readers
    is_watched: bool = False

    def incidents(self, job: str | None) -> tuple[list[Incident], list[Decision]]:
        """What a head left open is shown as interrupted, as the next head will write it."""
        from storage.read import decisions, incidents

        stored = incidents(self.store, job)
        if self.is_watched:
            return stored, list(decisions(self.store))
        closed = {incident.id: incident for incident in interrupted(stored, SystemClock().now_ns())}
        return [closed.get(incident.id, incident) for incident in stored], list(decisions(self.store))

    def problems(self) -> tuple[str, ...]:
        """Who writes it is not known here: `pacehound status` asks them."""
        return ()

    def sql(self, statement: str) -> pa.Table:
        """Rows."""
        return self.store.answer(statement)

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Rows of one of the store's named queries."""
        from storage.read import ask

        return ask(self.store, name, **parameters)


def _table(stream: bytes) -> pa.Table:
    import pyarrow as pa

    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()


History = OwnedHistory | OpenedHistory
"""Answers questions about a store, whoever has it open."""


@contextlib.contextmanager
def history(folder: Path, server: StoreSettings | None = None) -> Iterator[History]:
    """Whoever can answer about the store in `folder`: the head that has it, else this process.

    With `server.url` it is the store of that server instead. Nothing is made in order to be asked.

    Raises
    ------
    StoreOwned
        Somebody has it and does not answer.
    InvalidInput
        There is no such store.

    """
    if server is not None and server.url:
        from storage.address import server_address
        from storage.client import server_readers

        readers = server_readers(server_address(server.url, server.user, server.password))
        try:
            yield OpenedHistory(readers, is_watched=True)
        finally:
            readers.close()
        return
    deadline_s = time.monotonic() + OWNER_LEAVES_WITHIN_S
    while True:
        owner = live_owner(folder)
        if owner is not None:
            yield OwnedHistory(owner[1])
            return
        if not (folder / "data").is_dir() and not is_held(folder):
            raise InvalidInput(
                f"there is no store in {folder}: nothing was watched into it; give the --store DIR of the run, or"
                " set store.url"
            )
        from storage.client import Store

        try:
            if is_held(folder):
                raise StoreOwned(f"the store {folder} is open in a process that does not answer yet")
            store = Store.open(folder)
        except StoreOwned:
            # A head that is ending, or one that is starting: either way it is a matter of seconds.
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(0.2)
            continue
        try:
            yield OpenedHistory(store)
        finally:
            store.close()
        return
