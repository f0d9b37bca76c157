"""Asking for the history: of what is there, without making anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pacehound import cli
from storage.client import Store
from tests.contract.test_store_contract import write
from tests.fakes.events import call_batch, one_of_each


def ask(*arguments: object) -> Result:
    return CliRunner().invoke(cli.pacehound, [str(argument) for argument in arguments])


@pytest.mark.parametrize("command", [("incidents",), ("sql", "SELECT 1"), ("whatif", "--job", "j")])
def test_asking_a_store_that_is_not_there_says_so_and_makes_nothing(tmp_path: Path, command: tuple[str, ...]) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        answer = ask(*command, "--store", folder)
        assert answer.exit_code == 2
        assert f"there is no store in {folder}" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_incidents_say_what_was_seen_and_of_an_unknown_job_that_nothing_was(store: Store, tmp_path: Path) -> None:
    write(store, [*one_of_each(), call_batch()])
    store.close()
    seen = ask("incidents", "--store", tmp_path / "store", "--json")
    assert seen.exit_code == 0
    answer = json.loads(seen.stdout)
    assert answer["not_watched_because"] == ""
    assert answer["seen"]["calls"] > 0 < answer["seen"]["ranks"]
    unknown = ask("incidents", "--store", tmp_path / "store", "--job", "it's unknown")
    assert unknown.stdout == "not watched: nothing of job it's unknown has reached this store\n"
