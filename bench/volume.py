"""Bytes per call on Kafka and in the store, and what they come to for a fleet.

Measured on the batches of a simulated host with eight ranks, cut as an agent cuts them. zstd is that of librdkafka
(level 3, each message for itself: messages of this size fill a batch of the producer). The store is chDB with the
product's own tables; its figures are the compressed parts after merging.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pacehound.model.calls import CallBatch
from pacehound.model.codec import encode
from pacehound.model.topology import Layout
from pacehound.settings import StoreSettings
from simulator.job import JobSpec, simulate
from storage import schemas
from storage.client import Store
from storage.retention import MINUTES_MERGED_AFTER_DAYS, set_ttl
from storage.rows import calls_table

RANKS_PER_HOST = 8
PER_FLUSH = {"1 s": 16, "8 s": 125}
"""Calls per rank and batch, by flush: 125 calls/s of a rank over 8 communicators."""

FLEET_GPUS = 10_000
COMMUNICATORS = 8
CALLS_PER_RANK_AND_S = 125
DAY_S = 86_400
KAFKA_HOURS = 6
STORE_HOURS = 48
INCIDENTS_PER_DAY = 50
WINDOW_GPUS = 1_024
WINDOW_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Bytes per call of batches of one size; the last two are per batch, and per communicator, host and minute."""

    message: float
    zstd: float
    stored: float
    rollup_per_batch: float
    rollup_per_minute: float


def run() -> list[dict[str, Any]]:
    """One row per flush and figure, measured ones first, then those of the fleet."""
    rows: list[dict[str, Any]] = []
    for flush, calls in PER_FLUSH.items():
        case = f"flush {flush}, {calls * RANKS_PER_HOST} rows"
        found = measure(batches(calls * RANKS_PER_HOST))
        for figure, value, unit in (
            ("message", found.message, "B/call"),
            ("message, zstd", found.zstd, "B/call"),
            ("stored", found.stored, "B/call"),
            ("rollup", found.rollup_per_batch, "B/batch"),
            ("rollup, merged", found.rollup_per_minute, "B/communicator, host and minute"),
            *fleet(found, float(flush.removesuffix(" s"))),
        ):
            rows.append({"case": case, "figure": figure, "value": value, "unit": unit})
    return rows


def fleet(found: Measured, flush_s: float) -> list[tuple[str, float, str]]:
    """What a fleet costs at each level, without copies: bytes that are added per day, and bytes that are held.

    >>> one = Measured(message=100.0, zstd=10.0, stored=20.0, rollup_per_batch=80.0, rollup_per_minute=90.0)
    >>> [round(value) for name, value, _ in fleet(one, 1.0) if name.startswith("Kafka")]
    [1080, 270]
    """
    calls_per_day = FLEET_GPUS * CALLS_PER_RANK_AND_S * DAY_S
    window_calls = INCIDENTS_PER_DAY * WINDOW_GPUS * CALLS_PER_RANK_AND_S * WINDOW_S
    batches_per_day = FLEET_GPUS / RANKS_PER_HOST * COMMUNICATORS * DAY_S / flush_s
    minutes_per_day = FLEET_GPUS / RANKS_PER_HOST * COMMUNICATORS * DAY_S / 60
    apart_days, days = MINUTES_MERGED_AFTER_DAYS, StoreSettings().rollup_days
    apart, merged = batches_per_day * found.rollup_per_batch, minutes_per_day * found.rollup_per_minute
    giga = 1e9
    return [
        ("messages of calls", batches_per_day / DAY_S, "1/s"),
        ("Kafka, per day", calls_per_day * found.zstd / giga, "GB"),
        (f"Kafka, held ({KAFKA_HOURS} h)", calls_per_day * found.zstd * KAFKA_HOURS / 24 / giga, "GB"),
        ("raw calls in the store, per day", calls_per_day * found.stored / giga, "GB"),
        (
            f"raw calls in the store, held ({STORE_HOURS} h)",
            calls_per_day * found.stored * STORE_HOURS / 24 / giga,
            "GB",
        ),
        ("windows around incidents, per day", window_calls * found.stored / giga, "GB"),
        ("rollups, per day", apart / giga, "GB"),
        ("rollups, per day, merged", merged / giga, "GB"),
        (f"rollups, held ({days} days)", (apart * apart_days + merged * (days - apart_days)) / giga, "GB"),
    ]


def batches(n_rows: int) -> list[CallBatch]:
    """The calls of one host's ranks, each communicator in batches of `n_rows`."""
    spec = JobSpec(layout=Layout(tp=4, dp=4), ranks_per_host=RANKS_PER_HOST, iterations=400)
    streams: dict[str, list[CallBatch]] = {}
    for event in simulate(spec).events():
        if isinstance(event, CallBatch) and event.host == "host0":
            streams.setdefault(event.communicator, []).append(event)
    cut = []
    for stream in streams.values():
        whole = pa.Table.from_batches([batch.rows for batch in stream]).unify_dictionaries().combine_chunks()
        for ordinal, first in enumerate(range(0, whole.num_rows - n_rows + 1, n_rows)):
            (rows,) = whole.slice(first, n_rows).to_batches()
            cut.append(replace(stream[0], ordinal=ordinal, dropped=0, rows=rows))
    return cut


def measure(cut: Sequence[CallBatch]) -> Measured:
    """What these batches take on Kafka and in a store of their own."""
    messages = [encode(batch) for batch in cut]
    calls = sum(len(batch) for batch in cut)
    codec = pa.Codec("zstd", compression_level=3)
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder))
        try:
            store.insert(schemas.CALLS, calls_table(cut))
            sizes = {}
            for table in ("stored_calls", "stored_call_minutes"):
                store.command(f"OPTIMIZE TABLE {table} FINAL")
                sizes[table] = _part_bytes(store, table)
            set_ttl(store, schemas.CALL_MINUTES, ["toIntervalDay(400)", "toIntervalDay(1)"])
            aged = f"ALTER TABLE {schemas.CALL_MINUTES} UPDATE stored_at = stored_at - INTERVAL 2 DAY WHERE 1"
            store.command(f"{aged} SETTINGS mutations_sync = 2")
            store.command(f"OPTIMIZE TABLE {schemas.CALL_MINUTES} FINAL")
            sizes["merged"] = _part_bytes(store, schemas.CALL_MINUTES)
            asked = f"SELECT uniqExact(communicator, minute) AS n FROM {schemas.CALL_MINUTES}"
            n_minutes = store.query(asked).column("n")[0].as_py()
        finally:
            store.close()
    return Measured(
        message=sum(map(len, messages)) / calls,
        zstd=sum(len(codec.compress(message)) for message in messages) / calls,
        stored=sizes["stored_calls"] / calls,
        rollup_per_batch=sizes["stored_call_minutes"] / len(cut),
        rollup_per_minute=sizes["merged"] / n_minutes,
    )


def _part_bytes(store: Store, table: str) -> int:
    query = f"SELECT sum(bytes_on_disk) AS size FROM system.parts WHERE active AND table = '{table}'"
    return int(store.query(query).column("size")[0].as_py())
