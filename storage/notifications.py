"""Which states of which incidents somebody has been told of, kept with the incidents themselves."""

from __future__ import annotations

import pyarrow as pa

from storage import schemas
from storage.client import Store


class NotificationLog:
    """The ledger of `alerts` (its protocol is `alerts.app.Ledger`), in the table `notifications`.

    In the store and not in a file of its own: who was told is asked together with what happened, one lock guards
    both, and several notifiers of a server see the same rows.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def sent(self) -> set[tuple[str, str]]:
        """(incident, state) of everything that was delivered."""
        table = self._store.query("SELECT incident, state FROM notifications")
        return set(zip(table.column("incident").to_pylist(), table.column("state").to_pylist(), strict=True))

    def record(self, incident: str, state: str, idempotency_key: str, sent_ns: int) -> None:
        """One delivery; on disk when it returns."""
        row = {"incident": [incident], "state": [state], "idempotency_key": [idempotency_key], "sent_ns": [sent_ns]}
        self._store.insert(schemas.NOTIFICATIONS, pa.table(row, schema=schemas.ROW_TABLES[schemas.NOTIFICATIONS]))
