"""Whoever can answer questions about a store: the head that has it open, else this process.

Apart from `pacehound.runtime.embedded` because who asks needs nothing of what a head is made of,
and waits for each import.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pacehound.clock import SystemClock
from pacehound.errors import StoreOwned
from pacehound.model.events import Decision, Incident
from pacehound.runtime.head.client import HeadClient, live_owner
from pacehound.runtime.head.interrupted import interrupted
from pacehound.runtime.head.owner import OWNER_LEAVES_WITHIN_S

if TYPE_CHECKING:
    import pyarrow as pa

    from storage.client import Store


@dataclass(frozen=True, slots=True)
class OwnedHistory:
    """Asks the head that has the store open."""

    client: HeadClient

    def incidents(self, job: str | None) -> tuple[list[Incident], list[Decision]]:
        """As the head knows them."""
        return self.client.incidents(job)

    def sql(self, statement: str) -> pa.Table:
        """Rows, sent as an Arrow stream."""
        import pyarrow as pa

        with pa.ipc.open_stream(self.client.sql(statement)) as reader:
            return reader.read_all()


@dataclass(frozen=True, slots=True)
class OpenedHistory:
    """Reads the store in this process; nobody watches, so nothing in it can still be open."""

    store: Store

    def incidents(self, job: str | None) -> tuple[list[Incident], list[Decision]]:
        """What a head left open is shown as interrupted, as the next head will write it."""
        from storage.read import decisions, incidents

        stored = incidents(self.store, job)
        closed = {incident.id: incident for incident in interrupted(stored, SystemClock().now_ns())}
        return [closed.get(incident.id, incident) for incident in stored], list(decisions(self.store))

    def sql(self, statement: str) -> pa.Table:
        """Rows."""
        return self.store.answer(statement)


History = OwnedHistory | OpenedHistory
"""Answers questions about a store, whoever has it open."""


@contextlib.contextmanager
def history(folder: Path) -> Iterator[History]:
    """Whoever can answer about the store in `folder`: the head that has it, else this process.

    Raises
    ------
    StoreOwned
        Somebody has it and does not answer.

    """
    deadline_s = time.monotonic() + OWNER_LEAVES_WITHIN_S
    while True:
        owner = live_owner(folder)
        if owner is not None:
            yield OwnedHistory(owner[1])
            return
        from storage.client import Store

        try:
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
