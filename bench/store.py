"""The store: what the writer's blocks cost beside a bare insert, and how fast minutes are answered beside raw calls.

The embedded engine, in a folder of its own. `PACEHOUND_BENCH_CALLS` says how many calls are stored (5 million).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pacehound.bus import Message
from pacehound.clock import SystemClock
from pacehound.model.calls import DTYPE_CODE, OP_CODE, CallBatch
from pacehound.model.codec import encode
from storage import schemas
from storage.block_boundaries import BlockBoundaries
from storage.blocks import Span
from storage.client import Store
from storage.gather import gather
from storage.rows import calls_table
from storage.writer import Writer

BATCH_CALLS, BLOCK_BATCHES, SECOND_NS = 1_450, 256, 1_000_000_000
START_NS = 1_790_000_000 * SECOND_NS

MINUTES = """
    SELECT minute, op, sum(calls) AS calls, sum(bytes) AS bytes, sum(busy_s) / sum(timed) AS mean_s, max(p99_s) AS p99_s
    FROM call_minutes WHERE job = 'j' GROUP BY minute, op ORDER BY minute, op
"""
RAW = """
    SELECT toStartOfMinute(time) AS minute, op, count() AS calls, sum(count) AS elements,
        avg(end_ns - start_ns) AS mean_ns, quantileTDigest(0.99)(end_ns - start_ns) AS p99_ns
    FROM {table} WHERE job = 'j' GROUP BY minute, op ORDER BY minute, op
"""


def run() -> list[dict[str, Any]]:
    """One row per figure."""
    n_calls = int(os.environ.get("PACEHOUND_BENCH_CALLS", "5000000"))
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        return [*_writing(store), *_asking(store, n_calls)]


def _writing(store: Store, blocks: int = 5) -> list[dict[str, Any]]:
    """The same calls as blocks of messages, as bare inserts into their table, and into one without a rollup."""
    order = ", ".join(schemas.IDENTITY[schemas.CALLS])
    store.command(f"CREATE TABLE bare AS stored_calls ENGINE = ReplacingMergeTree ORDER BY ({order})")
    writer, boundaries, clock = Writer(store), BlockBoundaries(store, "bench"), SystemClock()
    block_s: list[float] = []
    bare_s: list[float] = []
    same_s: list[float] = []
    busy: dict[str, list[float]] = {}

    def timed(what: str, work: Callable[[], object]) -> float:
        """Seconds; and what it takes of a processor, the engine's threads and those that merge meanwhile included."""
        before_s = time.process_time()
        took_s = _seconds(work)
        busy.setdefault(what, []).append(time.process_time() - before_s)
        return took_s

    for number in range(blocks):
        batches = [_batch(f"w{i % 8}", number * BLOCK_BATCHES + i) for i in range(BLOCK_BATCHES)]
        first = number * BLOCK_BATCHES
        messages = tuple(
            Message(topic="calls", key="c", partition=0, offset=first + i, value=encode(b))
            for i, b in enumerate(batches)
        )
        quarter = BLOCK_BATCHES // 4
        parts = [calls_table(batches[i : i + quarter]) for i in range(0, BLOCK_BATCHES, quarter)]
        bare_s.append(timed("bare insert, no rollup", partial(_insert, store, "bare", parts)))
        span = Span(topic="calls", partition=0, first=first, last=messages[-1].offset)

        def write(span: Span = span, messages: tuple[Message, ...] = messages) -> None:
            found: list[Any] = []
            timed("writer, of which where a block ends", lambda: found.extend(boundaries.decide([span])))
            timed("writer, of which reading its messages", lambda: found.append(gather(messages, clock)))
            writer.write_block(found[0], found[1], "bench", is_repeat=False)

        block_s.append(timed("writer", write))
        other = [_renamed(part, "elsewhere") for part in parts]
        same_s.append(timed("bare insert, same table", partial(_insert, store, schemas.CALLS, other)))
    store.command("DROP TABLE bare")
    calls = BATCH_CALLS * BLOCK_BATCHES
    case = f"blocks of {BLOCK_BATCHES} messages of {BATCH_CALLS} calls"
    figures = {
        "writer": (calls / _median(block_s), "calls/s"),
        "Arrow insert, same table": (calls / _median(same_s), "calls/s"),
        "Arrow insert, no rollup": (calls / _median(bare_s), "calls/s"),
        "writer of insert, same table": (100 * _median(same_s) / _median(block_s), "%"),
        "writer of insert, no rollup": (100 * _median(bare_s) / _median(block_s), "%"),
    }
    figures |= {f"{what}, processor": (1e6 * _median(took) / calls, "us/call") for what, took in busy.items()}
    return [{"case": case, "figure": f, "value": value, "unit": unit} for f, (value, unit) in figures.items()]


def _insert(store: Store, table: str, parts: list[pa.Table]) -> None:
    for part in parts:
        store.insert(table, part)


def _renamed(rows: pa.Table, communicator: str) -> pa.Table:
    """The same calls on another communicator: not the same rows."""
    index = rows.schema.get_field_index("communicator")
    names = pa.array([communicator] * rows.num_rows).dictionary_encode()
    return rows.set_column(index, rows.schema.field(index), names)


def _asking(store: Store, n_calls: int) -> list[dict[str, Any]]:
    store.command("TRUNCATE TABLE stored_calls")
    store.command("TRUNCATE TABLE stored_call_minutes")
    template = calls_table([_batch(f"n{i % 8}", 0, communicator=f"c{i}") for i in range(64)])
    inserts = -(-n_calls // template.num_rows)
    fill_s = _seconds(lambda: _insert(store, schemas.CALLS, [_later(template, second) for second in range(inserts)]))
    stored = store.query("SELECT sum(calls) AS n FROM call_minutes").column("n")[0].as_py()
    rolled = store.query("SELECT count() AS n FROM stored_call_minutes").column("n")[0].as_py()
    sizes = store.query(
        "SELECT table, sum(data_compressed_bytes) AS bytes FROM system.parts WHERE active AND database = 'pacehound'"
        " AND table IN ('stored_calls', 'stored_call_minutes') GROUP BY table"
    )
    per_call = {row["table"]: row["bytes"] / stored for row in sizes.to_pylist()}
    case = f"{stored / 1e6:.1f} M calls, {rolled} rows of minutes"
    figures = {
        "filled": (stored / fill_s, "calls/s"),
        "per minute, from the rollup": (_median([_seconds(lambda: store.query(MINUTES)) for _ in range(5)]), "s"),
        "per minute, from the raw table": (_seconds(lambda: store.query(RAW.format(table="stored_calls"))), "s"),
        "per minute, from the raw view": (_seconds(lambda: store.query(RAW.format(table="calls"))), "s"),
        "raw calls on disk": (per_call["stored_calls"], "B/call"),
        "minutes on disk": (per_call["stored_call_minutes"], "B/call"),
    }
    rows_ = [{"case": case, "figure": f, "value": value, "unit": unit} for f, (value, unit) in figures.items()]
    # Ten times as many, without the hours that it takes to write their calls.
    columns = ", ".join(store.query(f"DESCRIBE {schemas.CALL_MINUTES}").column("name").to_pylist())
    store.command(
        f"INSERT INTO {schemas.CALL_MINUTES} ({columns}) SELECT {columns.replace('minute', 'minute + again * 7200')}"
        f" FROM {schemas.CALL_MINUTES} ARRAY JOIN range(1, 10) AS again"
    )
    asked_s = _median([_seconds(lambda: store.query(MINUTES)) for _ in range(5)])
    many = store.query("SELECT sum(calls) AS n, uniqExact(minute) AS m FROM call_minutes").to_pylist()[0]
    case = f"minutes of {many['n'] / 1e6:.0f} M calls, {many['m']} minutes"
    return [*rows_, {"case": case, "figure": "per minute, from the rollup", "value": asked_s, "unit": "s"}]


def _batch(host: str, ordinal: int, communicator: str = "c") -> CallBatch:
    """A second of eight ranks on one communicator."""
    rng = np.random.default_rng(ordinal)
    index = np.arange(BATCH_CALLS)
    launch_ns = START_NS + ordinal * SECOND_NS + index * (SECOND_NS // BATCH_CALLS)
    ops = [OP_CODE[name] for name in ("all_reduce", "all_gather", "reduce_scatter")]
    columns = {
        "rank": index % 8,
        "seq": ordinal * BATCH_CALLS + index // 8,
        "op": np.array(ops)[index // 8 % 3],
        "count": np.full(BATCH_CALLS, 1 << 20),
        "dtype": np.full(BATCH_CALLS, DTYPE_CODE["bfloat16"]),
        "launch_ns": launch_ns,
        "start_ns": launch_ns + 5_000,
        "end_ns": launch_ns + 5_000 + rng.lognormal(13, 0.3, BATCH_CALLS).astype(np.int64),
    }
    return CallBatch.from_columns(
        columns, job="j", attempt=0, host=host, communicator=communicator, source="profiler", ordinal=ordinal
    )


def _later(rows: pa.Table, second: int) -> pa.Table:
    """The same calls, that many seconds later."""
    for name, step in (
        ("seq", BATCH_CALLS),
        ("launch_ns", SECOND_NS),
        ("start_ns", SECOND_NS),
        ("end_ns", SECOND_NS),
        ("ordinal", 1),
    ):
        column = rows.column(name).to_numpy() + second * step
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), pa.array(column))
    return rows


def _seconds(work: Callable[[], object]) -> float:
    before_s = time.perf_counter()
    work()
    return time.perf_counter() - before_s


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
