"""How long each table keeps its rows, as settings, applied where it differs; and from when on minutes are one row.

A rollup has a row for each batch, so that one which comes again takes the place of the first. Agents send nothing again
that is older than a week (what an outage has left, docs/promises.md). Then a server adds up the rows of a host in each
minute when it merges parts. An embedded store does not: it may rest for longer than that with a batch in two parts
that were never merged, and would count it twice. It is small.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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


MINUTES_MERGED_AFTER_DAYS = 8
"""Of rows in a server's rollup (derived: agents send again what is up to 7 days old)."""

_MINUTE = "job, attempt, minute, communicator, op, source, host"
_SUMS = (
    "calls = sum(calls), bytes = sum(bytes), timed = sum(timed), busy_ns = sum(busy_ns), longest_ns = max(longest_ns), "
    "durations = quantilesDDIfMergeState(0.01, 0.5, 0.99)(durations), stored_at = max(stored_at)"
)
"""As in migration 0004; expiry counts from when the latest of them was stored."""


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
    has = {row["name"]: _intervals(row["engine_full"]) for row in store.query(sql).to_pylist()}
    changed = []
    for table, interval in intervals(settings).items():
        ttl = [interval]
        if table == schemas.CALL_MINUTES and settings.url and settings.rollup_days > MINUTES_MERGED_AFTER_DAYS:
            ttl.append(f"toIntervalDay({MINUTES_MERGED_AFTER_DAYS})")
        if has[table] != ttl:
            set_ttl(store, table, ttl)
            changed.append(table)
    return changed


def set_ttl(store: Store, table: str, ttl: Sequence[str]) -> None:
    """When rows of a table are removed, and, where a second interval is given, when those of a minute become one."""
    told = f"toDateTime(stored_at) + {ttl[0]}"
    for merged in ttl[1:]:
        told += f", toDateTime(stored_at) + {merged} GROUP BY {_MINUTE} SET {_SUMS}"
    store.command(f"ALTER TABLE {table} MODIFY TTL {told}")


def _intervals(engine: str) -> list[str]:
    """The intervals in a table's definition.

    >>> _intervals("MergeTree ORDER BY a TTL toDateTime(stored_at) + toIntervalDay(30) SETTINGS a = 1")
    ['toIntervalDay(30)']
    """
    return re.findall(r"toDateTime\(stored_at\) \+ (toInterval\w+\(\d+\))", engine)
