"""Messages into a store at once, without a bus; what they held."""

from __future__ import annotations

from collections.abc import Sequence

from pacehound.bus import Message
from pacehound.clock import Clock, SystemClock
from storage.client import Store
from storage.gather import Gathered, gather


def write(store: Store, messages: Sequence[Message], clock: Clock | None = None) -> Gathered:
    gathered = gather(messages, clock or SystemClock())
    for insert in gathered.inserts:
        store.insert(insert.table, insert.rows)
    return gathered
