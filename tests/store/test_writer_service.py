"""The writer's loop on the embedded engine: every row once in the tables, whoever fails, and when."""

import random
import threading
from dataclasses import replace

import pytest

from pacehound.clock import ManualClock
from pacehound.errors import InvalidInput, Unavailable
from pacehound.model.codec import decode, encode
from pacehound.model.topics import DEAD_LETTERS
from pacehound.runtime.metric_names import (
    WRITER_DEAD_LETTERS,
    WRITER_FAILURES,
    WRITER_HELD_BYTES,
    WRITER_LAG,
    WRITER_REPEATS,
    WRITER_ROWS,
)
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import StoreSettings
from storage import gather_ahead, schemas
from storage.blocks import BLOCK_OFFSETS
from storage.service import WriterService
from tests.fakes.events import START_NS, call_batch, incident, one_of_each
from tests.fakes.partitioned_log import Letters, LogConsumer, PartitionedLog
from tests.fakes.seeds import seeds

MINUTES = "SELECT * FROM call_minutes ORDER BY ALL"
NOISE = b"\xff" * (4 * 1024 * 1024 + 9)
FLUSH_S = StoreSettings().flush_s


class Death(Exception):
    """A writer that ends here."""


class FaultyStore:
    """The store of one writer: fails, or ends it, before or after an insert, as its plan says."""

    def __init__(self, store, plan=lambda: None):
        self._store, self._plan, self.unneeded = store, plan, store.unneeded

    def insert(self, table, rows, token=""):
        fault = self._plan()
        if fault in ("away before", "dies before"):
            raise Unavailable("away") if fault.startswith("away") else Death
        self._store.insert(table, rows, token)
        if fault in ("away after", "dies after"):
            raise Unavailable("away") if fault.startswith("away") else Death

    def query(self, sql, parameters=None):
        return self._store.query(sql, parameters)

    def command(self, sql):
        self._store.command(sql)

    def close(self):
        pass


@pytest.fixture
def log():
    return PartitionedLog(2)


@pytest.fixture
def clock():
    return ManualClock(START_NS)


class Writing:
    """One writer process, with what a test wants to see of it."""

    def __init__(self, store, log, clock, plan=lambda: None, places=None, settings=None, letters=None, open_store=None):
        self.telemetry, self.letters = Telemetry(), letters or Letters()

        def subscribe(on_revoked):
            self.consumer = LogConsumer(log, on_revoked, places)
            return self.consumer

        self.service = WriterService(
            open_store=open_store or (lambda: FaultyStore(store, plan)),
            subscribe=subscribe,
            letters=self.letters,
            settings=settings or StoreSettings(),
            log="log",
            telemetry=self.telemetry,
            clock=clock,
        )
        self._clock = clock

    def step(self, seconds=0.0):
        self._clock.advance_s(seconds)
        self.service.step(0.0)


def number(store, table, column="count()"):
    return store.query(f"SELECT {column} AS n FROM {table}").column("n")[0].as_py()


def finish(store, log, clock):
    last = Writing(store, log, clock)
    for _ in range(50):
        last.step(FLUSH_S)
        if log.is_committed:
            return last
    raise AssertionError(f"not committed: {log.committed}")


def assert_once(store, log, batches):
    """Without FINAL: what is in the table is what was sent, once."""
    assert log.is_committed
    calls = sum(len(batch) for batch in batches)
    sql = "SELECT count() AS n, uniqExact(communicator, rank, seq) AS calls FROM stored_calls"
    assert store.query(sql).to_pylist() == [{"n": calls, "calls": calls}]
    assert number(store, schemas.BATCHES) == len(batches)
    assert number(store, schemas.CALL_MINUTES, "sum(calls)") == calls
    assert number(store, "call_minutes", "sum(calls)") == calls


def test_whole_blocks_are_written_at_once_and_the_rest_when_its_time_is_up(store, log, clock):
    batches = [call_batch(ordinal=i, n_calls=2) for i in range(BLOCK_OFFSETS + 5)]
    for batch in batches:
        log.append(batch, partition=0)
    writing = Writing(store, log, clock)
    writing.step()
    assert (log.committed, number(store, "stored_calls")) == ({("calls", 0): BLOCK_OFFSETS}, 2 * BLOCK_OFFSETS)
    assert writing.telemetry.value(WRITER_LAG) == 5
    writing.step(FLUSH_S)
    assert_once(store, log, batches)
    assert writing.telemetry.value(WRITER_LAG) == writing.telemetry.value(WRITER_HELD_BYTES) == 0
    assert writing.telemetry.value(WRITER_ROWS, table=schemas.CALLS) == 2 * len(batches)
    assert writing.telemetry.value(WRITER_REPEATS) == 0


def test_the_next_block_is_read_while_the_engine_takes_this_one(store, log, clock, monkeypatch):
    is_read, waited = threading.Event(), []
    gather = gather_ahead.gather

    def watched(messages, clock):
        gathered = gather(messages, clock)
        if messages[0].offset == BLOCK_OFFSETS:
            is_read.set()
        return gathered

    class Slow(FaultyStore):
        def insert(self, table, rows, token=""):
            if table == schemas.CALLS and not waited:
                waited.append(is_read.wait(30))
            super().insert(table, rows, token)

    monkeypatch.setattr(gather_ahead, "gather", watched)
    batches = [call_batch(ordinal=i, n_calls=2) for i in range(2 * BLOCK_OFFSETS)]
    for batch in batches:
        log.append(batch, partition=0)
    writing = Writing(store, log, clock, open_store=lambda: Slow(store))
    writing.step()
    assert waited == [True]
    writing.step()
    assert_once(store, log, batches)


def test_messages_of_which_nothing_is_stored_are_committed_without_a_trace(store, log, clock):
    progress = next(e for e in one_of_each() if type(e).__name__ == "Progress")
    for _ in range(3):
        log.append(progress, partition=0)
    writing = Writing(store, log, clock)
    writing.step()
    writing.step(FLUSH_S)
    assert log.is_committed
    assert number(store, schemas.CUTS) == 0


@pytest.mark.parametrize("seed", seeds(4, in_suite=1))
def test_every_row_is_there_once_whatever_fails_and_however_often_writers_follow_each_other(store, log, clock, seed):
    """The store fails before or after taking a block, writers end there, commits are refused, messages trickle in."""
    rng = random.Random(seed)
    batches = [call_batch(ordinal=i, n_calls=4, communicator=f"c{i % 3}", host=f"n{i % 3}") for i in range(180)]
    waiting = list(batches)
    faults = ["away before", "away after", "dies before", "dies after"]

    def plan():
        return rng.choice(faults) if rng.random() < 0.2 else None

    writing = Writing(store, log, clock, plan)
    while waiting:
        for _ in range(rng.randint(1, 25)):
            if waiting:
                log.append(waiting.pop(0), partition=rng.randint(0, 1))
        writing.consumer.refuses_commits = rng.random() < 0.3
        try:
            writing.step(rng.choice([0.1, FLUSH_S, 20.0]))
        except Death:
            writing = Writing(store, log, clock, plan)
    finish(store, log, clock)
    assert_once(store, log, batches)


def test_a_writer_that_was_stopped_and_wakes_up_doubles_nothing(store, log, clock):
    """It had read a few messages and decided nothing; meanwhile another has taken its partition, and more messages."""
    batches = [call_batch(ordinal=i, n_calls=2) for i in range(12)]
    for batch in batches[:5]:
        log.append(batch, partition=0)
    zombie = Writing(store, log, clock)
    zombie.step()  # read, too early to write
    for batch in batches[5:]:
        log.append(batch, partition=0)
    heir = Writing(store, log, clock)
    heir.step()
    heir.step(FLUSH_S)
    assert_once(store, log, batches)
    zombie.consumer.refuses_commits = True
    zombie.service._write_what_is_due(FLUSH_S)  # before it has heard that the partition is no longer its own
    assert_once(store, log, batches)
    assert zombie.telemetry.value(WRITER_FAILURES) == 0  # it waits for the block that the other one has cut
    zombie.step(FLUSH_S)
    assert_once(store, log, batches)


def test_the_rest_of_a_block_that_another_writer_has_cut_is_read_however_full_this_one_is(store, log, clock):
    batches = [call_batch(ordinal=i, n_calls=2) for i in range(BLOCK_OFFSETS + 44)]
    for batch in batches:
        log.append(batch, partition=0)
    faults = iter(["dies before"])

    def plan():
        return next(faults, None) if number(store, schemas.CUTS) else None

    with pytest.raises(Death):
        Writing(store, log, clock, plan).step(FLUSH_S)  # has cut, and not written
    small = Writing(store, log, clock, settings=StoreSettings(max_held_bytes=1))
    small.consumer.max_poll = 28
    for _ in range(120):
        if log.is_committed:
            break
        small.step(FLUSH_S)
    assert_once(store, log, batches)


def test_partitions_that_move_between_writers_lose_and_double_nothing(store, log, clock):
    rng = random.Random(7)
    batches = [call_batch(ordinal=i, n_calls=2, communicator=f"c{i % 2}") for i in range(36)]
    places = [("calls", 0), ("calls", 1)]
    writers = [Writing(store, log, clock, places=[place]) for place in places]
    for number_, batch in enumerate(batches):
        log.append(batch, partition=number_ % 2)
        if number_ % 7 == 0:
            mine = rng.sample(places, rng.randint(0, 2))
            writers[0].consumer.take(mine)
            writers[1].consumer.take([place for place in places if place not in mine])
        for writer in writers:
            writer.step(rng.choice([0.1, FLUSH_S]))
    finish(store, log, clock)
    assert_once(store, log, batches)


def test_a_server_that_remembers_a_block_and_has_lost_it_gets_it_again(own_store, log, clock):
    """The engine writes a token down just before the rows become visible; killed in between, it has the one only."""
    batches = [call_batch(ordinal=i, n_calls=4) for i in range(3)]
    events = [e for e in one_of_each() if type(e).__name__ != "Topology"]
    for event in batches:
        log.append(event, partition=0)
    for event in events:
        log.append(event)
    faults = iter(["dies after"])

    def plan():
        return next(faults, None) if number(own_store, "stored_batches") else None

    writing = Writing(own_store, log, clock, plan)
    writing.step()
    with pytest.raises(Death):
        writing.step(FLUSH_S)
    assert number(own_store, "stored_calls") == 12
    for table in ("stored_calls", "stored_call_minutes", "stored_batches"):
        # What is left is the memory of the token: a mutation leaves the log of tokens as it is.
        own_store.command(f"ALTER TABLE {table} DELETE WHERE 1 SETTINGS mutations_sync = 2")
        assert number(own_store, table) == 0
    last = finish(own_store, log, clock)
    assert last.telemetry.value(WRITER_REPEATS) >= 1
    assert_once(own_store, log, batches)
    assert number(own_store, "stored_findings") == 3


def test_a_store_that_is_away_is_waited_for_with_a_bound_on_what_is_held(store, log, clock):
    batches = [call_batch(ordinal=i, n_calls=20) for i in range(100)]
    size = len(encode(batches[0]))
    is_away = [True]

    def open_store():
        if is_away[0]:
            raise Unavailable("nobody listens")
        return FaultyStore(store)

    settings = StoreSettings(max_held_bytes=10 * size)
    writing = Writing(store, log, clock, settings=settings, open_store=open_store)
    for batch in batches:
        log.append(batch, partition=0)
        writing.step(1.0)
        assert writing.telemetry.value(WRITER_HELD_BYTES) <= 11 * size
    assert writing.consumer.is_paused
    assert writing.consumer.polled == len(batches)  # it stays in its group
    assert 5 <= writing.telemetry.value(WRITER_FAILURES) <= 15  # with longer and longer pauses
    assert writing.telemetry.value(WRITER_LAG) == len(batches)
    assert log.committed == {}
    is_away[0] = False
    for _ in range(60):
        if log.is_committed:
            break
        writing.step(FLUSH_S)
    assert_once(store, log, batches)


def test_a_store_that_does_not_let_us_in_ends_the_writer(store, log, clock):
    def refuse():
        raise InvalidInput("the store at h:1 refuses the user 'u'")

    with pytest.raises(InvalidInput, match="refuses the user"):
        Writing(store, log, clock, open_store=refuse).step(FLUSH_S)


def test_a_bad_message_is_a_dead_letter_before_it_is_committed_and_the_partition_goes_on(store, log, clock):
    class Away(Letters):
        is_away = True

        def flush(self, timeout_s):
            if self.is_away:
                raise Unavailable("the broker is away")
            super().flush(timeout_s)

    batches = [call_batch(ordinal=i) for i in range(2)]
    log.append(batches[0], partition=0)
    log.append_bytes(("calls", 0), b"\xff\xfe no event")
    log.append_bytes(("calls", 0), NOISE)
    log.append(batches[1], partition=0)
    log.append_bytes((DEAD_LETTERS.name, 0), b"\xff a bad letter")
    letters = Away()
    writing = Writing(store, log, clock, letters=letters)
    writing.step()
    writing.step(FLUSH_S)
    assert log.committed == {} or log.committed == {(DEAD_LETTERS.name, 0): 1}
    letters.is_away = False
    writing.step(20.0)
    assert_once(store, log, batches)
    assert {topic for topic, _, _ in letters.published} == {DEAD_LETTERS.name}
    assert letters.flushed == len(letters.published) == 4  # each twice: the first time they were not acknowledged
    payloads = {letter.payload for _, _, value in letters.published for letter in decode(value)}
    assert NOISE in payloads
    assert writing.telemetry.value(WRITER_DEAD_LETTERS, error="MalformedMessage") == 5


def test_the_calls_around_an_incident_are_kept_once_per_version(store, log, clock):
    """The onset is at START, the detection 12 s later: from 60 s before to 72 s after."""
    second = 1_000_000_000
    batches = [
        call_batch(ordinal=i, n_calls=2, start_ns=START_NS + at * second) for i, at in enumerate((-61, -59, 0, 71, 73))
    ]
    for batch in [*batches, call_batch(ordinal=9, n_calls=2, communicator="other", job="k")]:
        log.append(batch, partition=0)
    log.append(incident())
    now = ManualClock(store.query("SELECT toUnixTimestamp64Nano(now64(9)) AS n").column("n")[0].as_py())
    writing = Writing(store, log, now)
    writing.step()
    writing.step(FLUSH_S)
    assert number(store, "incident_calls") == 0  # the minute after it has not been stored yet
    writing.step(90.0)
    assert number(store, "incident_calls") == number(store, "stored_incident_calls") == 6
    assert store.query("SELECT incident, version FROM incident_windows").to_pylist() == [
        {"incident": "i0", "version": 0}
    ]
    log.append(incident(version=1, state="closed"))
    for seconds in (0.0, FLUSH_S, 90.0, 90.0):
        writing.step(seconds)
    assert number(store, "incident_calls") == 6
    assert number(store, "stored_incident_windows") == 2


def test_how_long_rows_are_kept_follows_the_settings_and_is_changed_only_where_it_differs(own_store, log, clock):
    settings = replace(StoreSettings(), raw_calls_hours=6)
    Writing(own_store, log, clock, settings=settings).step(FLUSH_S)
    [engine] = (
        own_store.query("SELECT engine_full FROM system.tables WHERE name = 'stored_calls'").column(0).to_pylist()
    )
    assert "TTL toDateTime(stored_at) + toIntervalHour(6)" in engine
    from storage.retention import apply_retention

    assert apply_retention(own_store, settings) == []
    assert apply_retention(own_store, replace(settings, window_days=9)) == [
        schemas.HOST_EVIDENCE,
        schemas.COMMAND_RESULTS,
        schemas.INCIDENT_CALLS,
    ]
    on_a_server = replace(settings, window_days=9, url="http://127.0.0.1:1/pacehound")
    assert [apply_retention(own_store, on_a_server) for _ in range(2)] == [[schemas.CALL_MINUTES], []]
