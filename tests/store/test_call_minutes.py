"""Calls per minute are right whatever is repeated, replayed or cut otherwise."""

import random

import numpy as np
import pytest

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.model.calls import DTYPE_CODE, OP_CODE, CallBatch
from pacehound.model.codec import encode
from storage.blocks import Span
from storage.gather import MAX_INSERT_CALLS, gather
from storage.retention import MINUTES_MERGED_AFTER_DAYS, set_ttl
from storage.schemas import CALL_MINUTES
from storage.writer import Writer
from tests.fakes.events import SECOND_NS, START_NS, call_batch
from tests.fakes.seeds import seeds

MINUTES = "SELECT * FROM call_minutes ORDER BY job, attempt, minute, communicator, op, source"


def batch_of(rng, ordinal, host, communicator, n_calls=40):
    """Calls of several operations over two minutes, some without a known end."""
    index = np.arange(n_calls)
    launch_ns = START_NS + (ordinal * 20 + index) * SECOND_NS
    took_ns = rng.lognormal(12, 2, n_calls).astype(np.int64)
    ends = np.where(rng.random(n_calls) < 0.9, launch_ns + took_ns, 0)
    columns = {
        "rank": index % 4 + (4 if host == "b" else 0),
        "seq": ordinal * n_calls + index // 4,
        "op": rng.choice([OP_CODE["all_reduce"], OP_CODE["broadcast"]], n_calls),
        "count": rng.integers(-1, 1 << 20, n_calls),
        "dtype": rng.choice([DTYPE_CODE["bfloat16"], DTYPE_CODE["float32"], DTYPE_CODE["unknown"]], n_calls),
        "launch_ns": launch_ns,
        "start_ns": np.where(rng.random(n_calls) < 0.5, launch_ns + 10, 0),
        "end_ns": ends,
    }
    return CallBatch.from_columns(
        columns, job="j", attempt=0, host=host, communicator=communicator, source="c10d", ordinal=ordinal
    )


def batches_of(seed):
    rng = np.random.default_rng(seed)
    return [batch_of(rng, i, host, c) for i in range(4) for host in "ab" for c in ("c0", "c1")]


def write(store, batches, log, first=0):
    """As one block of a log of its own: no token knows it."""
    messages = [
        Message(topic="calls", key="", partition=0, offset=first + i, value=encode(b)) for i, b in enumerate(batches)
    ]
    span = Span(topic="calls", partition=0, first=first, last=first + len(batches) - 1)
    Writer(store).write_block(span, gather(messages, ManualClock()), log, is_repeat=False)


def clear(store):
    for table in ("stored_calls", "stored_call_minutes", "stored_batches"):
        store.command(f"TRUNCATE TABLE {table}")


def test_a_minute_says_what_its_calls_say(store):
    batches = batches_of(1)
    write(store, batches, "once")
    sql = """
        WITH if(start_ns > 0, start_ns, launch_ns) AS began_ns, end_ns > 0 AS is_timed
        SELECT toStartOfMinute(time) AS minute, communicator, toString(op) AS op, count() AS calls,
            sum(greatest(count, 0) * multiIf(dtype = 'bfloat16', 2, dtype = 'float32', 4, 0)) AS bytes,
            countIf(is_timed) AS timed, sumIf(end_ns - began_ns, is_timed) / 1e9 AS busy_s,
            maxIf(end_ns - began_ns, is_timed) / 1e9 AS longest_s,
            quantileExactIf(0.5)(end_ns - began_ns, is_timed) / 1e9 AS median_s,
            quantileExactIf(0.99)(end_ns - began_ns, is_timed) / 1e9 AS p99_s
        FROM calls GROUP BY ALL ORDER BY minute, communicator, op
    """
    exact, rolled = store.query(sql).to_pylist(), store.query(MINUTES).to_pylist()
    assert len(exact) == len(rolled) > 4
    for one, other in zip(exact, rolled, strict=True):
        for name in ("communicator", "op", "calls", "bytes", "timed"):
            assert one[name] == other[name]
        assert one["minute"] == int(other["minute"].timestamp())
        for name in ("busy_s", "longest_s"):
            assert other[name] == pytest.approx(one[name], rel=1e-12)
        assert other["median_s"] == pytest.approx(one["median_s"], rel=0.35)  # between neighbours of 36 calls
    everything = store.query("SELECT quantilesDDIfMerge(0.01, 0.5, 0.99)(durations) AS q FROM stored_call_minutes")
    sql = (
        "SELECT quantilesExactIf(0.5, 0.99)(end_ns - if(start_ns > 0, start_ns, launch_ns), end_ns > 0) AS q FROM calls"
    )
    assert everything.column(0)[0].as_py() == pytest.approx(store.query(sql).column(0)[0].as_py(), rel=0.03)


@pytest.mark.parametrize("seed", seeds(6, in_suite=3))
def test_any_order_of_repeats_cuts_and_replays_gives_the_minutes_of_one_clean_write(store, seed):
    """An agent that was killed sends batches again, at other offsets; a writer that was killed writes blocks again."""
    batches = batches_of(seed)
    write(store, batches, "clean")
    expected = store.query(MINUTES).to_pylist()
    calls = store.query("SELECT count() AS n FROM calls").to_pylist()
    clear(store)
    rng = random.Random(seed)
    sent = batches + rng.choices(batches, k=rng.randint(1, 20))
    rng.shuffle(sent)
    position = 0
    while position < len(sent):
        portion = rng.randint(1, 9)
        for _ in range(rng.choice([1, 1, 2, 3])):
            write(store, sent[position : position + portion], rng.choice(["log", f"other {rng.random()}"]), position)
        if rng.random() < 0.3:
            store.command(f"OPTIMIZE TABLE {rng.choice(['stored_calls', 'stored_call_minutes'])} FINAL")
        position += portion
    assert repr(store.query(MINUTES).to_pylist()) == repr(expected)
    assert store.query("SELECT count() AS n FROM calls").to_pylist() == calls


def test_a_batch_is_whole_in_one_insert_however_large_the_block_is(store):
    batches = [call_batch(ordinal=i, n_calls=MAX_INSERT_CALLS * 2 // 3) for i in range(3)]
    batches.append(call_batch(ordinal=0, host="large", n_calls=MAX_INSERT_CALLS * 3, communicator="large"))
    write(store, batches, "once")
    sql = "SELECT host, ordinal, op, minute, count() AS n FROM stored_call_minutes GROUP BY ALL HAVING n > 1"
    assert store.query(sql).num_rows == 0
    total = sum(len(batch) for batch in batches)
    assert store.query("SELECT sum(calls) AS n FROM call_minutes").to_pylist() == [{"n": total}]


def test_batches_of_a_producer_that_counts_wrongly_are_kept_apart_by_their_first_call(store):
    batches = [call_batch(ordinal=i) for i in range(3)]
    same = [CallBatch.from_columns(
        {name: b.column(name) for name in ("rank", "seq", "launch_ns", "end_ns")},
        job="j", attempt=0, host="h", communicator="c", source="otlp", ordinal=0) for b in batches]  # fmt: skip
    write(store, [same[0]], "alone")
    write(store, same, "together")
    assert store.query("SELECT sum(calls) AS n FROM call_minutes").to_pylist() == [{"n": 60}]


def test_calls_of_hostile_times_have_a_minute_too(store):
    batches = [call_batch(ordinal=i, start_ns=at) for i, at in enumerate((-(1 << 62), 0, (1 << 63) - 2_000_000_000))]
    write(store, batches, "once")
    assert store.query("SELECT sum(calls) AS n FROM call_minutes").to_pylist() == [{"n": 60}]


def test_rows_of_a_minute_become_one_when_nobody_sends_a_batch_again(own_store):
    everything = batches_of(3)
    set_ttl(own_store, CALL_MINUTES, ["toIntervalDay(400)", f"toIntervalDay({MINUTES_MERGED_AFTER_DAYS})"])
    write(own_store, everything, "first")
    write(own_store, everything[4:9], "again")
    expected = own_store.query(MINUTES).to_pylist()
    own_store.command(f"OPTIMIZE TABLE {CALL_MINUTES} FINAL")
    per_batch = number_of_rows(own_store)
    for part in (5, 11):  # whatever is added to minutes that are merged already, as after an outage
        aged(own_store)
        assert number_of_rows(own_store) < per_batch
        assert str(own_store.query(MINUTES).to_pylist()) == str(expected)
        write(own_store, [batch_of(np.random.default_rng(part), 100 + part, "a", "c9")], f"late {part}")
        expected = own_store.query(MINUTES).to_pylist()
    aged(own_store)
    keys = "job, attempt, minute, communicator, op, source, host"
    most = f"SELECT max(n) AS n FROM (SELECT count() AS n FROM {CALL_MINUTES} GROUP BY {keys})"
    assert own_store.query(most).to_pylist() == [{"n": 1}]
    assert str(own_store.query(MINUTES).to_pylist()) == str(expected)


def number_of_rows(store):
    return store.query(f"SELECT count() AS n FROM {CALL_MINUTES}").to_pylist()[0]["n"]


def aged(store):
    """All that is there was stored so long ago that nothing of it comes again."""
    days = MINUTES_MERGED_AFTER_DAYS + 1
    store.command(
        f"ALTER TABLE {CALL_MINUTES} UPDATE stored_at = now64(3) - INTERVAL {days} DAY WHERE 1 "
        "SETTINGS mutations_sync = 2"
    )
    store.command(f"OPTIMIZE TABLE {CALL_MINUTES} FINAL")
