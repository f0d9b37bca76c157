"""What a store promises, on the embedded engine: every row once, nothing lost, the events read back as they were."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.errors import InvalidInput, StoreOwned, Unavailable
from pacehound.model.codec import encode
from pacehound.model.events import (
    Changepoint,
    Cost,
    DeadLetter,
    Incident,
    Instant,
    IterationSample,
    LearntRounds,
    Notification,
    Topology,
)
from pacehound.model.routing import route
from storage import schemas
from storage.client import Store
from storage.gather import gather
from storage.migrate import known_migrations, migrate
from storage.named_queries import named_query, query_names
from storage.read import (
    ask,
    decisions,
    earlier_runs,
    incident_versions,
    incidents,
    last_attempt,
    told,
    usual_rounds,
)
from tests.fakes.events import SECOND_NS, START_NS, call_batch, finding, incident, one_of_each, operations
from tests.fakes.examples import examples
from tests.fakes.stored import write as write_messages

VIEWS = {table: table.removeprefix("stored_") for table in (schemas.CALLS, *schemas.ROW_TABLES)}


def messages_of(events):
    return [
        Message(topic=route(e)[0].name, key=route(e)[1], partition=0, offset=i, value=encode(e))
        for i, e in enumerate(events)
    ]


def write(store, events):
    result = write_messages(store, messages_of(events), ManualClock(START_NS))
    assert result.dead_letters == ()
    return result


def notification(state, after_ns, incident="i0"):
    return Notification(
        job="j", attempt=0, time_ns=START_NS + after_ns, incident=incident, state=state, idempotency_key="key"
    )


def counts(store):
    sql = " UNION ALL ".join(f"SELECT '{view}' AS view, count() AS n FROM {view}" for view in VIEWS.values())
    return {row["view"]: row["n"] for row in store.query(sql).to_pylist()}


def contents(store, view):
    columns = store.query(f"DESCRIBE {view}").column("name").to_pylist()
    names = ", ".join(f"`{name}`" for name in columns if name != "stored_at")
    return sorted(map(repr, store.query(f"SELECT {names} FROM {view}").to_pylist()))


def test_migrating_twice_changes_nothing(store):
    assert migrate(store) == []
    applied = store.query("SELECT number FROM schema_migrations FINAL ORDER BY number").column("number").to_pylist()
    assert applied == [m.number for m in known_migrations()]


def test_a_migration_that_stopped_halfway_is_finished_by_the_next_start(own_store, tmp_path):
    own_store.command("TRUNCATE TABLE schema_migrations")
    own_store.command("DROP TABLE stored_dead_letters")
    own_store.close()
    with Store.open(tmp_path / "store") as store:
        assert counts(store)["dead_letters"] == 0


def test_a_store_of_a_newer_version_is_not_touched(own_store, tmp_path):
    own_store.command("INSERT INTO schema_migrations (number, name) VALUES (999, 'later')")
    own_store.close()
    with pytest.raises(InvalidInput, match="0999"):
        Store.open(tmp_path / "store")
    with pytest.raises(InvalidInput, match="0999"):  # and not StoreOwned: the refused one let go of the lock
        Store.open(tmp_path / "store")


def test_the_columns_the_writer_fills_are_those_of_the_tables(store):
    arrow_of = {
        "Int16": "int16", "Int32": "int32", "Int64": "int64", "Float64": "double", "Bool": "bool",
        "String": "string", "Array(Int32)": "list<item: int32>", "Array(Int64)": "list<item: int64>",
        "Array(String)": "list<item: string>", "Map(String, Float64)": "map<string, double>",
        "Array(Tuple(Int32, Int32))": "list<item: struct<1: int32, 2: int32>>",
    }  # fmt: skip
    for table, schema in {schemas.CALLS: schemas.CALL_TABLE, **schemas.ROW_TABLES}.items():
        described = store.query(f"DESCRIBE {table}").to_pylist()
        # A column that came later has a default for the rows before it, and is filled from then on.
        filled = {
            row["name"]: row["type"]
            for row in described
            if row["default_type"] == "" or row["name"] in ("ordinal", "within_ns")
        }
        assert set(filled) == set(schema.names), table
        for name, kind in filled.items():
            plain = kind.replace("LowCardinality(String)", "String")
            plain = plain.removeprefix("Nullable(").removesuffix(")") if plain.startswith("Nullable(") else plain
            arrow = str(schema.field(name).type)
            arrow = "string" if arrow.startswith("dictionary") or arrow == "binary" else arrow
            assert arrow_of[plain] == arrow, (table, name)


def test_members_that_each_host_knows_in_part_are_whole_in_the_view_of_communicators(store):
    told = [
        Topology(job="j", attempt=0, time_ns=5, host=host, communicator="c", name="p", is_world=False,
                 members=members, host_ranks=tuple(rank for rank in members if rank >= 0), world_size=8)
        for host, members in (("a", (7, -1, -1)), ("b", (-1, 0, -1)), ("b", (-1, 0, 3)))
    ]  # fmt: skip
    write(store, told)
    (known,) = store.query("SELECT hosts, members, members[-1 - (-4)] AS at_place_2 FROM communicators").to_pylist()
    assert (sorted(known["hosts"]), known["members"], known["at_place_2"]) == (["a", "b"], [7, 0, 3], 3)


def test_what_makes_a_row_the_same_is_the_order_of_its_table(store):
    sql = "SELECT name, sorting_key FROM system.tables WHERE database = currentDatabase() AND name LIKE 'stored_%'"
    keys = {row["name"]: tuple(row["sorting_key"].split(", ")) for row in store.query(sql).to_pylist()}
    for table, identity in schemas.IDENTITY.items():
        assert keys[table] == identity


def test_every_event_is_written_once_and_what_has_no_table_is_counted(store):
    result = write(store, [call_batch(), operations(), *one_of_each()])
    assert result.not_stored == 3  # progress, tick, watermark
    expected = dict.fromkeys(VIEWS.values(), 1) | {"calls": 20, "host_samples": 2, "markers": 2, "findings": 3}
    expected |= {"host_vitals": 7, "host_evidence": 2, "operations": 3, "command_results": 2}
    assert counts(store) == expected
    assert {VIEWS[t]: n for t, n in result.rows.items()} == {v: n for v, n in expected.items() if n}


def test_vitals_and_stacks_can_be_asked_for_by_name(store):
    write(store, one_of_each())
    (agent,) = store.query("SELECT numbers['cpu_cores'] AS cores FROM host_vitals WHERE kind = 'agent'").to_pylist()
    assert agent == {"cores": 0.05}
    sql = "SELECT name, ranks, numbers['waited_ns'] AS waited_ns FROM host_vitals WHERE kind = 'rank'"
    assert store.query(sql).to_pylist() == [{"name": "11", "ranks": [2], "waited_ns": 30.0}]
    (host,) = store.query("SELECT numbers['stolen_ns'] AS ns FROM host_vitals WHERE kind = 'processors'").to_pylist()
    assert host == {"ns": 20_000.0}
    sql = "SELECT kind, name, ranks, state, numbers['xid'] AS xid FROM host_vitals WHERE kind = 'gpu'"
    expected = {"kind": "gpu", "name": "GPU-1", "ranks": [2], "state": "sw_power_cap", "xid": 79.0}
    assert store.query(sql).to_pylist() == [expected]
    sql = "SELECT rank, doing, frames FROM host_evidence WHERE has(kernel_log, '+12 s: NVRM: Xid (PCI:0000:c3:00): 79')"
    assert store.query(f"{sql} ORDER BY rank").to_pylist() == [
        {"rank": 2, "doing": "in_call", "frames": ["wait (a.py:1)"]},
        {"rank": 3, "doing": "storage", "frames": []},
    ]


def test_repeated_messages_in_other_portions_show_every_row_once(store):
    events = [call_batch(ordinal=i, host=f"node{i % 2}") for i in range(6)] + one_of_each()
    events += [incident(version=v, time_ns=START_NS + v) for v in range(1, 4)]
    write(store, events)
    before = {view: contents(store, view) for view in VIEWS.values()}
    write(store, events)
    for portion in (events[:3], events[2:9], events[::-1]):
        write(store, portion)
    assert {view: contents(store, view) for view in VIEWS.values()} == before
    assert len(incidents(store)) == 1


def test_aggregates_through_the_views_do_not_double_after_a_merge_either(store):
    events = [call_batch(ordinal=i) for i in range(4)]
    write(store, events)
    write(store, events)
    sql = "SELECT op, count() AS n, sum(end_ns - start_ns) AS busy_ns FROM calls WHERE rank = 1 GROUP BY op"
    before = store.query(sql).to_pylist()
    assert before == [{"op": "all_reduce", "n": 40, "busy_ns": 40 * 399_000}]
    store.command("OPTIMIZE TABLE stored_calls FINAL")
    assert store.query(sql).to_pylist() == before


def test_a_call_batch_reads_back_as_it_was_written(store):
    batch = call_batch(n_calls=50)
    write(store, [batch])
    names = ", ".join(f"`{name}`" for name in batch.rows.schema.names)
    stored = store.query(f"SELECT {names}, host FROM calls ORDER BY launch_ns").to_pylist()
    assert repr(stored) == repr([row | {"host": "node0"} for row in batch.rows.to_pylist()])


def test_times_keep_their_nanoseconds(store):
    write(store, [call_batch(n_calls=2, start_ns=START_NS + 1)])
    row = store.query("SELECT launch_ns, toUnixTimestamp64Nano(time) AS ns FROM calls ORDER BY seq, rank LIMIT 1")
    assert row.to_pylist() == [{"launch_ns": START_NS + 1, "ns": START_NS + 1}]


def test_rows_of_any_time_are_kept(store):
    """More than 100 days in one block, times before 1970 and beyond the calendar: all there, none expired."""
    batches = [
        call_batch(ordinal=0, n_calls=2, communicator=f"c{d}", start_ns=d * 86_400 * SECOND_NS) for d in range(102)
    ]
    batches += [call_batch(n_calls=2, communicator="past", start_ns=-(1 << 62))]
    batches += [call_batch(n_calls=2, communicator="future", start_ns=(1 << 63) - 2_000_000_000)]
    write(store, batches)
    assert counts(store)["calls"] == 2 * 104
    store.command("OPTIMIZE TABLE stored_calls FINAL")
    assert counts(store)["calls"] == 2 * 104


def test_incidents_are_the_latest_versions_and_exactly_the_events(store):
    first = incident()
    closed = incident(
        version=2, state="closed", closed_ns=START_NS + 99, closed_why="job ended", cost=Cost(excess_s=1e-9)
    )
    other = incident(id="i1", job="k", opened_ns=START_NS + 90 * SECOND_NS, findings=(finding(id="f9", job="k"),))
    write(store, [closed, other, incident(version=1, state="relieved"), first])
    assert incidents(store) == [other, closed]
    assert incidents(store, job="j") == [closed]
    assert incidents(store, job="it's nobody") == []
    assert [i.version for i in incident_versions(store, "i0")] == [2, 1, 0]
    assert incident_versions(store, "nothing") == []


def test_a_filter_on_the_latest_incidents_does_not_revive_an_older_version(store):
    write(store, [incident(), incident(version=1, state="closed")])
    assert store.query("SELECT id FROM latest_incidents WHERE state = 'open'").num_rows == 0


def test_a_recorded_decision_reads_back_as_it_was(store):
    decision = next(e for e in one_of_each() if type(e).__name__ == "Decision")
    write(store, [decision])
    assert decisions(store) == decisions(store, "i0") == [decision]
    assert decisions(store, "i1") == []


_PARAMETER = re.compile(r"\{(\w+): *(\w+)")
_ANY_OF = {"String": "", "Int32": 0, "Int64": 1, "UInt32": 1, "Bool": False, "Array": []}


def test_every_named_query_runs_on_an_empty_store(store):
    for name in query_names():
        parameters = {parameter: _ANY_OF[kind] for parameter, kind in _PARAMETER.findall(named_query(name))}
        rows = ask(store, name, **parameters).to_pylist()
        assert not any(value for row in rows for value in row.values()), name


def test_the_jobs_overview_counts_each_job_once(store):
    write(store, [*one_of_each(), incident(id="i1", version=1, state="closed")])
    sample = next(e for e in one_of_each() if isinstance(e, IterationSample))
    write(
        store, [IterationSample(**{f: getattr(sample, f) for f in sample.__slots__} | {"step": 6, "step_time_s": 0.75})]
    )
    [job] = ask(store, "jobs").to_pylist()
    assert (job["job"], job["world_size"], job["hosts"], job["iterations"]) == ("j", 4, 1, 2)
    assert (job["incidents"], job["open_incidents"]) == (2, 1)
    assert job["median_step_time_s"] in (0.25, 0.75)


def test_who_keeps_coming_back_is_counted_by_host_over_jobs(store):
    def world(job, host, ranks):
        return Topology(
            job=job, attempt=0, time_ns=START_NS, host=host, communicator=f"w-{job}", name="world", is_world=True,
            members=(0, 1, 2, 3), host_ranks=ranks, world_size=4,
        )  # fmt: skip

    write(
        store,
        [
            *(world(job, host, ranks) for job in ("a", "b") for host, ranks in (("good", (0, 1)), ("bad", (2, 3)))),
            finding(id="f0", job="a"),
            finding(id="f0", job="a", version=1),
            finding(id="f1", job="b", culprits=(3,), cause="S2"),
            finding(id="f2", job="b", culprits=(0,), verdict="suspected"),
        ],
    )
    [row] = ask(store, "fleet/hosts", since_ns=0, until_ns=2**62).to_pylist()
    assert (row["host"], row["findings"], row["jobs"], row["ranks"], row["causes"]) == (
        "bad",
        2,
        2,
        [2, 3],
        ["S1", "S2"],
    )


def test_bytes_that_are_no_event_become_dead_letters_and_the_rest_is_written(store):
    bad = b"\xff\xfe"
    half = encode(incident()) + encode(finding()).replace(b"pacehound.finding", b"pacehound.nothing")
    values = [bad, half, encode(incident(id="i9", opened_ns=1 << 70))]
    messages = [Message(topic="incidents", key="j", partition=1, offset=4 + i, value=v) for i, v in enumerate(values)]
    result = write_messages(store, messages, ManualClock(START_NS))
    assert [(d.offset, d.error) for d in result.dead_letters] == [
        (4, "MalformedMessage"),
        (5, "UnknownSchema"),
        (6, "MalformedMessage"),
    ]
    assert result.dead_letters[0].payload == bad
    assert "opened_ns" in result.dead_letters[2].reason
    assert [i.id for i in incidents(store)] == ["i0"]
    write(store, result.dead_letters)
    kept = ask(store, "dead_letters").to_pylist()
    assert [bytes.fromhex(row["payload_hex"]) for row in kept] == [d.payload for d in result.dead_letters]


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_messages_are_stored_or_returned_and_never_stop_the_writer(store, data):
    value = bytearray(encode(data.draw(st.sampled_from([call_batch(n_calls=2), incident(), *one_of_each()]))))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    value = value[: data.draw(st.integers(0, len(value)))] if data.draw(st.booleans()) else value
    result = write_messages(store, [Message(topic="calls", key="", partition=0, offset=0, value=bytes(value))])
    assert bool(result.dead_letters) + bool(result.rows) + bool(result.not_stored) == 1
    assert all(letter.payload == bytes(value) for letter in result.dead_letters)


def test_integers_of_any_size_in_a_message_are_a_dead_letter_and_nothing_else(store):
    for field in (b'"attempt":', b'"time_ns":', b'"version":', b'"culprits":['):
        [message] = messages_of([incident()])
        record = LogsData.FromString(message.value)
        body = record.resource_logs[0].scope_logs[0].log_records[0].body
        body.bytes_value = body.bytes_value.replace(field, field + b"9" * 40)
        result = write_messages(store, [replace(message, value=record.SerializeToString())])
        assert [letter.error for letter in result.dead_letters] == ["MalformedMessage"], field
    assert incidents(store) == []


def test_two_dead_letters_of_one_offset_are_both_kept(store):
    """An embedded bus counts offsets from 0 in every process."""
    same = {"source_topic": "calls", "partition": 0, "offset": 0, "time_ns": START_NS, "error": "e", "reason": "r"}
    write(store, [DeadLetter(**same, payload=b"one"), DeadLetter(**same, payload=b"two")])
    assert counts(store)["dead_letters"] == 2


@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(max_size=30),
    number=st.integers(-(1 << 63), (1 << 63) - 1),
    real=st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_text_and_number_in_an_incident_survives_the_store(store, text, number, real):
    said = incident(id="any", version=0, job=text, time_ns=number, closed_why=text, cost=Cost(excess_s=real))
    result = write_messages(store, messages_of([said]))
    if result.dead_letters:  # what cannot be said in UTF-8
        assert not text.isascii()
    else:
        assert said in [i for i in incidents(store) if i.job == text]
    store.command("TRUNCATE TABLE stored_incidents")


def test_a_reader_cannot_write_whatever_the_statement_looks_like(store, tmp_path):
    write(store, [incident()])
    for sql in (
        "SELECT * FROM file('/etc/hostname', 'LineAsString')",
        "SELECT 1 SETTINGS readonly = 0",
        "WITH 1 AS x INSERT INTO stored_notifications (incident) SELECT 'x'",
        "EXPLAIN ANALYZE INSERT INTO stored_notifications (incident) SELECT 'x'",
    ):
        with pytest.raises(InvalidInput):
            store.query(sql)
    assert counts(store)["notifications"] == 0
    write(store, [incident(version=1)])  # the writer's handle is not the reader's


def test_a_question_that_would_take_all_memory_is_refused(store):
    with pytest.raises(
        InvalidInput,
        match=r"^the answer takes more than 1 GiB of memory to find: ",
    ):
        store.query("SELECT groupArray(number) FROM numbers(150000000)")
    with pytest.raises(InvalidInput, match="larger than 256 MiB"):
        store.query("SELECT repeat(toString(number), 1000) FROM numbers(300000)")


def test_ctrl_z_still_stops_a_process_that_has_a_store_open(store):
    caught = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigCgt"))
    assert int(caught.split()[1], 16) >> (signal.SIGTSTP - 1) & 1 == 0


def test_a_wrong_question_is_answered_with_the_engines_own_words(store):
    with pytest.raises(
        InvalidInput, match=r"^the query failed: Unknown expression identifier `nonsense`[^()]*\(UNKNOWN_IDENTIFIER\)$"
    ):
        store.query("SELECT nonsense FROM calls")


def test_rows_that_do_not_fit_a_table_are_an_error_that_says_so(store):
    with pytest.raises(Unavailable, match="1 rows were not written to stored_nowhere"):
        store.insert("stored_nowhere", store.query("SELECT 1 AS a"))


def test_a_second_owner_is_refused_at_once_and_told_whom_to_ask(own_store, tmp_path):
    with pytest.raises(StoreOwned, match=f"process {os.getpid()}"):
        Store.open(tmp_path / "store")
    assert counts(own_store)["calls"] == 0  # the first goes on


def test_a_store_that_was_emptied_takes_a_block_again(shared_store):
    """Many tests share one, and name their blocks alike."""
    store = shared_store.opened()
    (insert, *_) = gather(messages_of([call_batch()]), ManualClock(START_NS)).inserts
    for _ in range(2):
        for _ in range(2):
            store.insert(insert.table, insert.rows, "token")
        assert counts(store)["calls"] == store.query("SELECT sum(calls) AS n FROM call_minutes")["n"][0].as_py() == 20
        shared_store.empty()
        assert not any(counts(store).values())


def test_a_path_that_is_a_file_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="file"):
        Store.open(tmp_path / "file")


def test_what_was_told_is_remembered_by_incident_state_sink_and_level(own_store, tmp_path):
    slack = replace(notification("open", 7), sink="slack", level="page")
    write(own_store, [notification("open", 0), notification("open", 5), notification("closed", 9), slack, slack])
    own_store.close()
    with Store.open(tmp_path / "store") as store:
        found = sorted((one.incident, one.state, one.sink, one.level) for one in told(store))
        assert found == [("i0", "closed", "", ""), ("i0", "open", "", ""), ("i0", "open", "slack", "page")]
        assert slack.time_ns in [one.time_ns for one in told(store)]
        assert counts(store)["notifications"] == 3


def test_the_last_attempt_of_a_job_is_known(store):
    assert last_attempt(store, "j") is None
    write(store, [call_batch()])
    assert last_attempt(store, "j") == 0


def test_several_threads_write_and_ask_at_the_same_time(store):
    def work(thread):
        for ordinal in range(4):
            write(store, [call_batch(ordinal=ordinal, communicator=f"c{thread}")])
            write(store, [notification("open", 0, incident=f"i{thread}-{ordinal}")])
            counts(store)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert counts(store)["calls"] == 3 * 4 * 20
    assert counts(store)["notifications"] == 3 * 4


def test_an_incident_is_read_as_the_type_it_was_published_as(store):
    write(store, [incident()])
    assert [type(i) for i in incidents(store)] == [Incident]


def test_what_earlier_attempts_did_is_read_for_the_next_one(store):
    sample = next(event for event in one_of_each() if isinstance(event, IterationSample))
    change = next(event for event in one_of_each() if isinstance(event, Changepoint))
    change = replace(change, series="iteration", before_s=0.1, after_s=0.2)
    events = [
        *(replace(sample, job="j", attempt=attempt, step=step) for attempt in (0, 1, 2) for step in (10, 500)),
        *(replace(change, job="j", attempt=attempt, at=Instant(step=200, time_ns=START_NS)) for attempt in (0, 2)),
        replace(change, job="another", attempt=0),
    ]
    write(store, events)
    latest, first = earlier_runs(store, "j", 2)
    assert (latest.name, latest.last_step, latest.changes) == ("attempt 1", 500, ())
    assert (first.last_step, [(c.step, round(c.log_ratio, 3)) for c in first.changes]) == (500, [(200, 0.693)])
    assert earlier_runs(store, "j", 0) == []


def test_the_pace_and_the_shape_of_earlier_attempts_are_read(store):
    """The first steps and planned pauses are no part of the pace; of a run of a few steps there is none."""
    sample = next(event for event in one_of_each() if isinstance(event, IterationSample))
    topology = next(event for event in one_of_each() if isinstance(event, Topology))
    events = [replace(topology, job="j", attempt=0, host=host, world_size=16) for host in ("a", "b")]
    for step in range(300):
        step_time_s = 5.0 if step < 20 else 0.1
        events.append(replace(sample, job="j", attempt=0, step=step, step_time_s=step_time_s, planned=""))
        pause = replace(sample, job="j", attempt=0, step=1000 + step, step_time_s=9.0, planned="checkpoint")
        events += [pause, *([replace(events[-1], attempt=1)] if step < 100 else [])]
    write(store, events)
    short, whole = earlier_runs(store, "j", 2)
    assert (short.name, short.step_time_s) == ("attempt 1", 0.0)
    assert (whole.step_time_s, whole.world_size, whole.hosts) == (0.1, 16, 2)


def test_what_rounds_usually_take_is_the_median_over_jobs_of_two_runs_or_more(store):
    """One job that runs slowly again and again is one voice; what has been seen once is not usual."""
    learnt = next(event for event in one_of_each() if isinstance(event, LearntRounds))
    events = [replace(learnt, job="slow", attempt=attempt, longest_s=9.0) for attempt in range(5)]
    events += [replace(learnt, job=job, longest_s=longest_s) for job, longest_s in (("a", 0.01), ("b", 0.012))]
    write(store, [*events, replace(learnt, job="a", size_bytes=8)])
    (usual,) = usual_rounds(store)
    assert (usual.op, usual.size_bytes, usual.host_kind, usual.longest_s) == ("all_reduce", 1024, "2 processors", 0.012)


def test_merged_parts_are_given_back_after_a_minute_and_are_on_disk_before(store: Store) -> None:
    tables = store.answer(
        "SELECT name, engine_full FROM system.tables WHERE database = currentDatabase() AND name LIKE 'stored_%'"
    ).to_pylist()
    assert len(tables) > 20
    for table in tables:
        assert "old_parts_lifetime = 60" in table["engine_full"], table["name"]
        assert "min_rows_to_fsync_after_merge = 1" in table["engine_full"], table["name"]
