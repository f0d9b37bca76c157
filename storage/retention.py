"""How long each table keeps its rows, as settings, applied where it differs."""

from __future__ import annotations

import re

from pacehound.settings import StoreSettings
from storage import schemas
from storage.client import Store


def intervals(settings: StoreSettings) -> dict[str, str]:
    """The interval of each table that forgets, as ClickHouse writes it; verdicts, decisions and commands stay.

    >>> intervals(StoreSettings(raw_calls_hours=6))["stored_calls"]
    'toIntervalHour(6)'
    """
    raw = f"toIntervalHour({settings.raw_calls_hours})"
    host, window = f"toIntervalDay({settings.host_days})", f"toIntervalDay({settings.window_days})"
    rollup, letters = f"toIntervalDay({settings.rollup_days})", f"toIntervalDay({settings.dead_letter_days})"
    return {
        schemas.CALLS: raw,
        schemas.OPERATIONS: raw,
        schemas.MARKERS: host,
        schemas.HOST_SAMPLES: host,
        schemas.HOST_VITALS: host,
        schemas.HOST_EVIDENCE: window,
        schemas.COMMAND_RESULTS: window,
        schemas.INCIDENT_CALLS: window,
        schemas.CALL_MINUTES: rollup,
        schemas.BATCHES: rollup,
        schemas.TOPOLOGY: rollup,
        schemas.ITERATIONS: rollup,
        schemas.CHANGEPOINTS: rollup,
        schemas.GROUP_OUTLIERS: rollup,
        schemas.LEARNT_ROUNDS: rollup,
        schemas.PRICES: rollup,
        schemas.DEAD_LETTERS: letters,
    }


def apply_retention(store: Store, settings: StoreSettings) -> list[str]:
    """Change what differs; returns the tables that were changed.

    Rows expire by when they were stored, never by event time: a recording from last year may be replayed today. A
    shorter time removes rows soon, in the background; a longer one brings nothing back.

    Raises
    ------
    Unavailable
        The store does not answer.

    """
    sql = "SELECT name, engine_full FROM system.tables WHERE database = currentDatabase() AND name LIKE 'stored_%'"
    has = {row["name"]: _interval(row["engine_full"]) for row in store.query(sql).to_pylist()}
    changed = []
    for table, interval in intervals(settings).items():
        if has[table] != interval:
            store.command(f"ALTER TABLE {table} MODIFY TTL toDateTime(stored_at) + {interval}")
            changed.append(table)
    return changed


def _interval(engine: str) -> str:
    """The interval in a table's definition.

    >>> _interval("MergeTree ORDER BY a TTL toDateTime(stored_at) + toIntervalDay(30) SETTINGS a = 1")
    'toIntervalDay(30)'
    """
    found = re.search(r" TTL toDateTime\(stored_at\) \+ (toInterval\w+\(\d+\))", engine)
    return found[1] if found else ""
