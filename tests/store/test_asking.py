"""Asking for the history: of what is there, without making anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pacehound import cli
from pacehound.model.events import HostVitals, IterationSample
from storage.client import Store
from tests.fakes.events import START_NS, call_batch, incident, one_of_each, topology
from tests.store.test_store_contract import write

ROOT = Path(__file__).resolve().parents[2]

ASKING = """
import sys
from pacehound.cli.without_pandas import leave_out_pandas
leave_out_pandas()
from pacehound.cli import pacehound
for statement in sys.argv[2:]:
    pacehound(["sql", "--json", "--store", sys.argv[1], statement], standalone_mode=False)
"""


def ask(*arguments: object) -> Result:
    return CliRunner().invoke(cli.pacehound, [str(argument) for argument in arguments])


@pytest.mark.parametrize("command", [("incidents",), ("sql", "SELECT 1"), ("whatif", "--job", "j")])
def test_asking_a_store_that_is_not_there_says_so_and_makes_nothing(tmp_path: Path, command: tuple[str, ...]) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        answer = ask(*command, "--store", folder)
        assert answer.exit_code == 2
        assert f"there is no store in {folder}" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_incidents_say_what_was_seen_and_of_an_unknown_job_that_nothing_was(own_store: Store, tmp_path: Path) -> None:
    write(own_store, [*one_of_each(), call_batch()])
    own_store.close()
    seen = ask("incidents", "--store", tmp_path / "store", "--json")
    assert seen.exit_code == 0
    answer = json.loads(seen.stdout)
    assert answer["not_watched_because"] == ""
    assert answer["seen"]["calls"] > 0 < answer["seen"]["ranks"]
    unknown = ask("incidents", "--store", tmp_path / "store", "--job", "it's unknown")
    assert unknown.stdout == "not watched: nothing of job it's unknown has reached this store\n"
    counted = ask("sql", "--store", tmp_path / "store", "SELECT count() AS n FROM incidents")
    assert counted.stdout.split() == ["n", "1"], counted.output


def test_what_the_docs_ask_and_whole_tables_are_answered(own_store: Store, tmp_path: Path) -> None:
    """In a process of its own, as people do: it has no pandas, which Arrow would make times in nanoseconds of."""
    timed = [
        replace(event, time_ns=event.time_ns + 1)
        for event in one_of_each()
        if isinstance(event, (HostVitals, IterationSample))
    ]
    write(own_store, [*one_of_each(), *timed, call_batch()])
    own_store.close()
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    asked = re.findall(r'pacehound sql "([^"…]+)"', "\n".join(texts))
    assert len(asked) >= 10
    statements = [*asked, "SELECT * FROM iterations", "SELECT * FROM host_vitals"]
    command = [sys.executable, "-c", ASKING, str(tmp_path / "store"), *statements]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [bool(json.loads(line)["columns"]) for line in ran.stdout.splitlines()] == [True] * len(statements)


def test_incidents_are_those_of_the_last_job_unless_all_are_asked_for(answering_store: Store) -> None:
    hour_ns = 3600 * 10**9
    early, late = START_NS, START_NS + hour_ns
    write(
        answering_store,
        [
            topology(),
            incident(id="a" * 32, job="early it's", time_ns=early, opened_ns=early),
            incident(id="b" * 32, job="late", attempt=3, time_ns=late, opened_ns=late),
        ],
    )

    def jobs(*arguments: str) -> set[str]:
        answer = json.loads(ask("incidents", "--json", *arguments).stdout)
        return {one["job"] for one in answer["incidents"]}

    assert jobs() == jobs("--last") == {"late"}
    assert jobs("--all") == {"late", "early it's"}
    assert jobs("--job", "early it's") == {"early it's"}
    assert "of other jobs in this store there are 1: --all" in ask("incidents").stdout
    both = ask("incidents", "--job", "late", "--all")
    assert (both.exit_code, "--job late and --all exclude each other" in both.stderr) == (2, True)

    def rows(*arguments: str) -> list[dict[str, object]]:
        answer = json.loads(ask("sql", "--json", *arguments).stdout)
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    of_job = "SELECT job, attempt FROM incidents WHERE job = {job:String} AND attempt = {attempt:UInt32}"
    assert rows(of_job) == [{"job": "late", "attempt": 3}]
    assert rows(of_job, "--job", "early it's") == [{"job": "early it's", "attempt": 0}]
    unknown = ask("sql", of_job, "--job", "unknown")
    assert (unknown.exit_code, "nothing of job unknown is in the store" in unknown.stderr) == (2, True)
