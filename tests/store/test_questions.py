"""What somebody else may ask of a store: the history, within limits, and nothing that holds up anybody else."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from pacehound.errors import InvalidInput
from storage import readers
from storage.client import Store
from storage.readers import Readers

ENDLESS = "SELECT count() FROM numbers(100000000000) WHERE sipHash64(number) = 7"

# {path} is a file that this process can read. Each of these, or its like, was a way to it, or to another machine.
WAYS_OUT = [
    "SELECT * FROM file('{path}', 'LineAsString')",
    "SELECT file('{path}')",
    "SELECT FiLe('{path}')",
    "SELECT /* a question */ file /**/ ('{path}')",
    "SELECT * FROM `file`('{path}')",
    "SELECT * FROM \"file\"('{path}')",
    "DESCRIBE file('{path}')",
    "DESC TABLE FILE('{path}')",
    "EXPLAIN SELECT * FROM file('{path}')",
    "EXPLAIN AST SELECT * FROM file('{path}')",
    "EXPLAIN TABLE OVERRIDE mysql('h', 'd', 't', 'u', 'p')",
    "SELECT * FROM (SELECT * FROM (DESCRIBE file('{path}')))",
    "WITH a AS (SELECT * FROM file('{path}')) SELECT * FROM a",
    "WITH (SELECT file('{path}')) AS a SELECT a",
    "WITH file AS f SELECT f('{path}')",
    "SELECT 1 WHERE 'x' IN (SELECT file('{path}'))",
    "SELECT count() FROM calls PREWHERE file('{path}') != ''",
    "SELECT 1 UNION ALL SELECT length(file('{path}'))",
    "SELECT arrayMap(file, ['{path}'])",
    "SELECT arrayMap(p -> file(p), ['{path}'])",
    "SELECT * APPLY(file) FROM (SELECT '{path}' AS p)",
    "SELECT * REPLACE(file(p) AS p) FROM (SELECT '{path}' AS p)",
    "SELECT COLUMNS('p') APPLY file FROM (SELECT '{path}' AS p)",
    "SELECT * FROM view(SELECT * FROM file('{path}'))",
    "SELECT * FROM eval('SELECT file(''{path}'')')",
    "SELECT * FROM fileCluster('default', '{path}')",
    "SELECT * FROM sqlite('{path}', 't')",
    "SELECT * FROM filesystem('{path}')",
    "SELECT * FROM executable('cat', 'LineAsString', 'a String')",
    "SELECT * FROM input('a String')",
    "SELECT * FROM python('os')",
    "DESCRIBE Python(os)",
    "DESCRIBE url('http://127.0.0.1:1/')",
    "DESCRIBE s3('http://127.0.0.1:1/bucket/key.csv')",
    "SELECT * FROM url('http://127.0.0.1:1/', CSV, 'a String')",
    "SELECT * FROM remote('127.0.0.1:1', system.one)",
    "SELECT * FROM remoteSecure('127.0.0.1:1', system.one)",
    "SELECT * FROM cluster('default', system.one)",
    "SELECT * FROM mysql('127.0.0.1:1', 'd', 't', 'u', 'p')",
    "SELECT * FROM postgresql('127.0.0.1:1', 'd', 't', 'u', 'p')",
    "SELECT * FROM mongodb('127.0.0.1:1', 'd', 't', 'u', 'p', 'a String')",
    "SELECT * FROM redis('127.0.0.1:1', 'a', 'a String')",
    "SELECT * FROM hdfs('hdfs://127.0.0.1:1/a')",
    "SELECT * FROM dictionary('d')",
    "SELECT dictGet('d', 'a', 1)",
    "SELECT * FROM merge('system', 'users')",
    "SELECT * FROM loop(system.users)",
    "SELECT aiGenerate('a')",
    "SELECT arrayMap(aiGenerate, ['a'])",
    "SELECT sleep(3)",
    "SELECT * FROM system.processes",
    "SELECT * FROM `system`.`users`",
    "SELECT * FROM system.named_collections",
    "SELECT 1 IN system.users",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM INFORMATION_SCHEMA.tables",
    "SHOW CREATE USER default",
    "SHOW GRANTS",
    "SHOW PROCESSLIST",
    "SHOW NAMED COLLECTIONS",
    "SELECT 1 INTO OUTFILE '{path}.copy'",
    "SELECT 1 INTO /**/ OUTFILE '{path}.copy'",
    "SELECT 1 SETTINGS max_execution_time = 0",
    "SELECT * FROM system.one SETTINGS readonly = 0",
    "CREATE TABLE t (a String) ENGINE = File(CSV, '{path}')",
    "ATTACH TABLE t FROM '{path}' (a String) ENGINE = Memory",
    "SYSTEM SHUTDOWN",
    "KILL QUERY WHERE 1",
    "SELECT 1; SELECT file('{path}')",
    "SELECT $$'$$; SELECT file('{path}'); SELECT $$'$$",
    "SELECT ‘'’; SELECT file('{path}'); SELECT ‘'’",
]

QUESTIONS = [
    "SELECT count() FROM calls",
    "(SELECT job FROM incidents) UNION ALL (SELECT job FROM findings)",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n",
    "SELECT rank, quantile(0.5)(end_ns - launch_ns) OVER (PARTITION BY rank) FROM calls JOIN findings AS f USING job",
    "SELECT arrayMap(x -> x + 1, [1]), format('{{}}', job), 'file(x)', `job` FROM incidents -- file('x')",
    "SELECT * FROM numbers(3) WHERE number IN (SELECT 1)",
    "SELECT name, total_rows FROM system.tables WHERE database = currentDatabase()",
    "DESCRIBE calls",
    "DESCRIBE (SELECT 1 AS a)",
    "SHOW TABLES",
    "SHOW CREATE TABLE calls",
    "SHOW COLUMNS FROM calls",
    "EXISTS calls",
    "EXPLAIN indexes = 1 SELECT * FROM calls",
]


def test_a_question_reads_no_file_no_other_machine_and_no_secret(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "secret").write_text("1,2\n")
    answered = []
    for sql in WAYS_OUT:
        try:
            store.answer(sql.replace("{path}", str(folder / "secret")))
            answered.append(sql)
        except InvalidInput:
            pass
    assert answered == []
    assert sorted(path.name for path in folder.iterdir()) == ["secret"]


def test_a_question_about_the_history_is_answered(store: Store) -> None:
    for sql in QUESTIONS:
        store.answer(sql)


def test_every_kind_of_function_that_the_engine_has_was_looked_at(store: Store) -> None:
    """A new version may bring functions that reach out: `statements.FUNCTIONS_THAT_REACH_OUT` has to name them."""
    sql = "SELECT DISTINCT categories AS kind FROM system.functions WHERE NOT is_aggregate"
    harmless = """Arithmetic,Arrays,Bit,Bitmap,Comparison,Conditional,Dates and Times,Distance,Encoding,Encryption,
        Financial,Geo,Geo Polygon,Hash,IP Address,Internal,JSON,Logical,Map,Mathematical,Null,NumericIndexedVector,QBit,
        Random Number,Rounding,String,String Replacement,String Search,String Splitting,Time Series,Time Window,Tuple,
        Type Conversion,URL,UUID"""
    looked_at = {kind.strip() for kind in harmless.split(",")}
    partly = {"AI", "Dictionary", "Embedded Dictionary", "Introspection", "Machine Learning", "Other", ""}
    assert {row["kind"] for row in store.query(sql).to_pylist()} <= looked_at | partly


def test_a_question_that_takes_too_long_is_broken_off_and_the_next_is_answered(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(readers.LIMITS, "max_execution_time", 1)
    monkeypatch.setattr(own_store._readers, "_idle", [])  # those that were opened with the limit as it is
    began_s = time.monotonic()
    with pytest.raises(InvalidInput, match="takes longer than"):
        own_store.answer(ENDLESS)
    assert time.monotonic() - began_s < 10
    assert own_store.answer("SELECT 5 AS n").to_pylist() == [{"n": 5}]


def test_what_an_answer_left_behind_that_broke_off_is_in_no_other_answer(store: Store) -> None:
    """The embedded engine puts it before the next answer of the same handle."""
    for _ in range(5):
        with pytest.raises(InvalidInput, match="larger than 256 MiB"):
            store.answer("SELECT number FROM numbers(1000000000)")
        assert store.answer("SELECT 5 AS n").to_pylist() == [{"n": 5}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 1000) AS x FROM numbers(2500000)",
        "SELECT range(500) AS a FROM numbers(1000000)",
        "WITH (SELECT randomString(100000)) AS x SELECT x FROM numbers(100000000) WHERE number % 10000 = 0",
    ],
)
def test_what_is_the_same_in_every_row_is_counted_as_it_is_read(store: Store, sql: str) -> None:
    """To the engine a constant column is nothing: these were answered, in up to 3 GiB of memory."""
    before_mib = _peak_memory_mib()
    with pytest.raises(InvalidInput, match="the answer is larger than 256 MiB or 10,000,000 rows: select fewer"):
        store.answer(sql)
    assert _peak_memory_mib() - before_mib < 1_500  # of which the engine may take 1,024
    assert store.answer("SELECT 5 AS n").to_pylist() == [{"n": 5}]


def _peak_memory_mib() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024


def test_an_answer_has_the_columns_of_the_question_also_without_rows(store: Store) -> None:
    values = "toDateTime64(0, 9, 'UTC') AS t, toLowCardinality('x') AS l, [1] AS a, map('a', 1) AS m, NULL AS n, 1, 1"
    for sql in (f"SELECT {values}", f"SELECT {values} WHERE 0 -- none", f"SELECT {values} FROM numbers(200000)"):
        assert store.answer(sql).equals(store.query(sql))


def test_while_one_question_is_answered_others_are_and_the_store_is_written_and_closed(
    own_store: Store, tmp_path: Path
) -> None:
    failures: list[str] = []

    def ask() -> None:
        try:
            own_store.answer(ENDLESS)
        except InvalidInput as error:
            failures.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    running = "SELECT count() AS n FROM system.processes WHERE query LIKE '%sipHash64%'"
    while own_store.query(running).to_pylist() == [{"n": 1}]:  # itself
        time.sleep(0.01)
    began_s = time.monotonic()
    own_store.insert(
        "schema_migrations", own_store.query("SELECT toUInt32(number) AS number, name FROM schema_migrations")
    )
    assert own_store.answer("SELECT count() > 0 AS n FROM schema_migrations").to_pylist() == [{"n": 1}]
    assert own_store.close()
    assert time.monotonic() - began_s < 5
    asking.join()
    assert "broken off" in failures[0]
    Store.open(tmp_path / "store").close()


def test_the_store_is_let_go_of_only_when_a_handle_that_failed_is_closed() -> None:
    """An open handle holds the engine, and the next process would find the store in use."""
    let_go, began = threading.Event(), threading.Event()

    class Handle:
        def query_arrow(self, *args: object, **how: object) -> None:
            raise pa.ArrowInvalid("broken off")

        def close(self) -> None:
            began.set()
            let_go.wait()

    def ask() -> None:
        with pytest.raises(InvalidInput):
            readers_of.query("SELECT 1")

    readers_of = Readers(Handle)
    asking = threading.Thread(target=ask)
    asking.start()
    began.wait()
    assert not readers_of.close()
    let_go.set()
    asking.join()
    assert readers_of.close()


def test_a_question_that_the_engine_cannot_break_off_does_not_hold_up_the_end() -> None:
    let_go, began = threading.Event(), threading.Event()

    class Handle:
        def query_arrow(self, *args: object, **how: object) -> None:
            began.set()
            let_go.wait()

        def close(self) -> None:
            """Nothing."""

    deaf = Readers(Handle)
    asking = threading.Thread(target=deaf.query, args=("SELECT 1",))
    asking.start()
    began.wait()
    assert not deaf.close()
    let_go.set()
    asking.join()
    assert deaf.close()
