"""The raw calls around an incident, kept when all other raw calls have expired."""

from __future__ import annotations

import pyarrow as pa

from pacehound.model.events import Incident
from pacehound.model.evidence import read_json
from pacehound.model.incident_window import AROUND_NS, window_of
from pacehound.model.sql_text import sql_text
from pacehound.settings import StoreSettings
from storage import schemas
from storage.client import Store

SECOND_NS = 1_000_000_000

# Calls reach the store a flush after they reach the bus, and one more try later when something goes wrong.
_ARRIVED_AFTER_FLUSHES = 3


def keep_due_windows(store: Store, now_ns: int, settings: StoreSettings) -> int:
    """Copy the window of every version of an incident that has none yet and is old enough; returns how many.

    Each is copied once. A copy that is cut off, or done by two writers at the same time, is made again: the same call
    of the same incident is one row.

    Parameters
    ----------
    store
        Has the incidents and the calls.
    now_ns
        Unix time. A window waits until the seconds after the detection have been stored.
    settings
        Incidents older than the raw calls have nothing to copy.

    Raises
    ------
    Unavailable
        The store does not answer.

    """
    wait_ns = AROUND_NS + int(_ARRIVED_AFTER_FLUSHES * settings.flush_s * SECOND_NS)
    sql = """
        SELECT event FROM incidents
        WHERE (id, version) NOT IN (SELECT incident, version FROM incident_windows)
            AND toUnixTimestamp64Milli(stored_at) * 1000000 <= {until_ns:Int64}
            AND toUnixTimestamp64Milli(stored_at) * 1000000 > {since_ns:Int64}
        ORDER BY id, version
    """
    since_ns = now_ns - settings.raw_calls_hours * 3600 * SECOND_NS
    events = store.query(sql, {"until_ns": now_ns - wait_ns, "since_ns": since_ns}).column("event").to_pylist()
    for event in events:
        incident = read_json(event, Incident)
        _keep(store, incident, *window_of(incident))
    return len(events)


def _keep(store: Store, incident: Incident, first_ns: int, last_ns: int) -> None:
    names = ", ".join(f"`{name}`" for name in schemas.CALL_TABLE.names)
    # No token: a SELECT may come in other blocks the next time, and a token would drop what belongs to them.
    store.command(
        f"INSERT INTO {schemas.INCIDENT_CALLS} (incident, {names}) SETTINGS max_partitions_per_insert_block = 0"
        f" SELECT {sql_text(incident.id)}, {names} FROM calls"
        f" WHERE job = {sql_text(incident.job)} AND attempt = {incident.attempt}"
        f" AND time >= fromUnixTimestamp64Nano({first_ns}) AND time <= fromUnixTimestamp64Nano({last_ns})"
    )
    row = {"incident": incident.id, "version": incident.version, "first_ns": first_ns, "last_ns": last_ns}
    store.insert(schemas.INCIDENT_WINDOWS, pa.Table.from_pylist([row], schema=schemas.WINDOW_TABLE))
