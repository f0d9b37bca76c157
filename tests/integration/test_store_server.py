"""A ClickHouse server over HTTP: the claims of the embedded store, and those that only a server can break."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.rig.clickhouse import ClickHouseProcess
from pacehound.clock import ManualClock
from pacehound.errors import InvalidInput, Unavailable
from pacehound.runtime.metric_names import WRITER_FAILURES, WRITER_HELD_BYTES
from storage.client import Store
from storage.migrate import known_migrations, migrate
from tests.fakes.events import call_batch, incident
from tests.fakes.partitioned_log import PartitionedLog
from tests.fakes.shared_store import forget_rows, made_by
from tests.store.test_asking import ask
from tests.store.test_store_contract import (  # noqa: F401  (the same tests, with the store of this file)
    test_a_call_batch_reads_back_as_it_was_written,
    test_a_filter_on_the_latest_incidents_does_not_revive_an_older_version,
    test_a_question_that_would_take_all_memory_is_refused,
    test_a_reader_cannot_write_whatever_the_statement_looks_like,
    test_a_wrong_question_is_answered_with_the_engines_own_words,
    test_any_text_and_number_in_an_incident_survives_the_store,
    test_bytes_that_are_no_event_become_dead_letters_and_the_rest_is_written,
    test_every_event_is_written_once_and_what_has_no_table_is_counted,
    test_every_named_query_runs_on_an_empty_store,
    test_incidents_are_the_latest_versions_and_exactly_the_events,
    test_migrating_twice_changes_nothing,
    test_repeated_messages_in_other_portions_show_every_row_once,
    test_rows_of_any_time_are_kept,
    test_rows_that_do_not_fit_a_table_are_an_error_that_says_so,
    test_the_columns_the_writer_fills_are_those_of_the_tables,
    test_times_keep_their_nanoseconds,
    test_vitals_and_stacks_can_be_asked_for_by_name,
    write,
)
from tests.store.test_writer_service import FLUSH_S, START_NS, FaultyStore, Writing, assert_once, finish, number

pytestmark = [pytest.mark.integration]

ROOT = Path(__file__).parents[2]

MIGRATE = """
import json, sys
from storage.client import Store
sys.stdin.readline()
with Store.connect(sys.argv[1]) as store:
    rows = store.query("SELECT number FROM schema_migrations FINAL ORDER BY number").column("number").to_pylist()
    print(json.dumps(rows))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ClickHouseProcess(tmp_path_factory.mktemp("server") / "data", "default:", "writer:it's secret") as running:
        yield running


@pytest.fixture
def url(server, request):
    """A database of its own for each test."""
    name = "t" + "".join(c if c.isalnum() else "_" for c in request.node.name)[-60:]
    return f"{server.url}/{name}"


@pytest.fixture(scope="module")
def shared(server):
    with Store.connect(f"{server.url}/shared") as connected:
        yield connected


@pytest.fixture
def store(shared):
    """An empty one: to make all tables anew takes longer than to empty them."""
    as_made = made_by(shared)
    yield shared
    forget_rows(shared)
    assert made_by(shared) == as_made


def test_a_login_comes_from_the_settings_or_from_the_url(server):
    with Store.connect(f"{server.url}/logins", "writer", "it's secret") as store:
        assert store.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    address = server.url.replace("http://", "http://writer:it%27s%20secret@")
    with Store.connect(f"{address}/logins", "somebody", "else") as store:
        assert store.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_the_answer_of_a_server_is_counted_as_it_is_read(store):
    with pytest.raises(InvalidInput, match="the answer is larger than 256 MiB"):
        store.answer("SELECT repeat('x', 1000) AS x FROM numbers(500000)")
    for sql in ("SELECT 1 AS n, 'x' AS x WHERE 0", "SELECT 1 AS n", "SHOW TABLES"):
        assert store.answer(sql).equals(store.query(sql))


@pytest.mark.parametrize(("user", "password"), [("writer", "a wrong one"), ("nobody", "a wrong one"), ("writer", "")])
def test_a_refused_login_names_the_user_and_the_host_and_never_the_password(server, user, password):
    with pytest.raises(
        InvalidInput, match=rf"at 127\.0\.0\.1:\d+ refuses the user '{user}'; check store\.user"
    ) as error:
        Store.connect(server.url, user, password)
    everything = str(error.value) + repr(error.value.__cause__)
    assert "a wrong one" not in everything


def test_a_server_that_is_away_is_unavailable_and_asked_again_when_it_is_back(tmp_path):
    with ClickHouseProcess(tmp_path / "data") as server, Store.connect(server.url) as store:
        write(store, [incident()])
        server.kill()
        for ask in (
            lambda: store.query("SELECT 1"),
            lambda: store.command("SELECT 1"),
            lambda: write(store, [incident()]),
        ):
            with pytest.raises(
                Unavailable, match=r"the store at 127\.0\.0\.1:\d+ does not answer \(Connection refused\)"
            ):
                ask()
        with pytest.raises(Unavailable, match=r"does not open.*Connection refused"):
            Store.connect(server.url)
        server.start()
        assert number(store, "incidents") == 1


def test_several_clients_write_and_ask_at_the_same_time(url):
    """Threads share a store, and stores share a server."""
    with Store.connect(url) as first, Store.connect(url) as second:

        def work(thread):
            store = (first, second)[thread % 2]
            for ordinal in range(5):
                write(
                    store, [call_batch(ordinal=ordinal, communicator=f"c{thread}"), incident(id=f"i{thread}.{ordinal}")]
                )
                assert store.query("SELECT count() AS n FROM incidents").column("n")[0].as_py() > 0

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert number(second, "stored_calls") == number(first, "call_minutes", "sum(calls)") == 4 * 5 * 20
        assert number(first, "stored_incidents") == 4 * 5


@pytest.mark.prove
def test_two_processes_that_migrate_at_once_both_find_every_migration_applied(server, url):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for round_ in range(2):
        command = [sys.executable, "-c", MIGRATE, f"{url}_{round_}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment, "cwd": ROOT}
        both = [subprocess.Popen(command, **pipes) for _ in range(2)]
        for process in both:
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.communicate(timeout=120)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        assert [json.loads(answer) for answer in answers] == [[m.number for m in known_migrations()]] * 2
        with Store.connect(f"{url}_{round_}") as store:
            assert migrate(store) == []
            write(store, [call_batch()])
            assert number(store, "call_minutes", "sum(calls)") == 20  # one view feeds it, not two


MOMENTS = [
    *(f"{moment}:{table}:1" for moment in ("received", "inserted") for table in ("stored_cuts", "stored_calls")),
    "inserted:stored_batches:2",
    *(["amid:stored_calls:2"] * 3),
]
IN_THE_SUITE = (5,)
"""The others are proofs."""
DEATHS = [
    pytest.param(moment, id=f"{number}-{moment}", marks=[pytest.mark.prove] * (number not in IN_THE_SUITE))
    for number, moment in enumerate(MOMENTS)
]


@pytest.mark.parametrize("die", DEATHS)
def test_a_server_killed_in_the_middle_of_an_insert_has_every_row_once_when_it_is_back(tmp_path, die):
    """Without FINAL in the tables, and in the rollup; and so it has when the writer dies with it."""
    log, clock = PartitionedLog(2), ManualClock(START_NS)
    batches = [call_batch(ordinal=i, n_calls=600, communicator=f"c{i % 2}") for i in range(100)]
    for batch in batches:
        log.append(batch, partition=batch.ordinal % 2)
    with ClickHouseProcess(tmp_path / "data") as server:
        Store.connect(server.url).close()
        server.kill()
        server.start(die)
        with Store.connect(server.url) as store:
            writing = Writing(store, log, clock, open_store=lambda: FaultyStore(Store.connect(server.url)))
            for _ in range(3):
                writing.step(FLUSH_S)
            server.wait()  # it killed itself
            assert writing.telemetry.value(WRITER_FAILURES) >= 1
            assert not log.is_committed
            server.start()
            for _ in range(10):
                writing.step(20.0)
            assert_once(store, log, batches)
            assert writing.telemetry.value(WRITER_HELD_BYTES) == 0
            log.committed.clear()  # and another writer begins again, from the start
            finish(store, log, clock)
            assert_once(store, log, batches)


def test_a_server_is_asked_as_it_is_and_gets_no_database_by_being_asked(server, tmp_path):
    started = f"{server.url}/asked"
    url = ("--set", f"store.url={started}", "--store", tmp_path / "unused")
    for command in (("incidents",), ("sql", "SELECT 1")):
        answer = ask(*command, *url)
        assert (answer.exit_code, "asked" in answer.stderr) == (2, True), answer.output
    with Store.connect(started) as store:
        write(store, [incident(job="on the server")])
    rows = json.loads(ask("sql", "SELECT job FROM incidents", *url, "--json").stdout)["rows"]
    assert "on the server" in str(rows)
    assert json.loads(ask("incidents", *url, "--json").stdout)["incidents"][0]["job"] == "on the server"
    assert ask("sql", "SELECT file('/etc/passwd')", *url).exit_code == 2
    assert not (tmp_path / "unused").exists()
