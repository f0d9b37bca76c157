"""`pacehound fleet`: the statistics, for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pacehound import cli
from storage.client import Store
from storage.named_queries import query_names
from tests.fakes.events import SECOND_NS, finding, incident
from tests.store.test_store_contract import write

NAMES = [name.removeprefix("fleet/") for name in query_names("fleet")]


def fleet(*arguments: object) -> Result:
    return CliRunner().invoke(cli.pacehound, ["fleet", *map(str, arguments)])


@pytest.fixture
def a_day_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the command."""
    opened_ns = incident().opened_ns
    monkeypatch.setattr("pacehound.clock.SystemClock.now_ns", lambda self: opened_ns + 86_400 * SECOND_NS)


def write_incident(store: Store) -> None:
    slow = finding(kind="slow", cause="S1", magnitude=0.5)
    write(store, [slow, incident(findings=(slow,))])


def test_help_lists_every_question_with_what_it_answers() -> None:
    lines = fleet("--help").stdout.splitlines()
    for name in NAMES:
        assert any(line.split()[:1] == [name] and len(line.split()) > 5 for line in lines), name


@pytest.mark.usefixtures("a_day_later")
def test_without_a_name_every_question_is_answered(own_store: Store, tmp_path: Path) -> None:
    write_incident(own_store)
    own_store.close()
    answer = fleet("--store", tmp_path / "store")
    assert answer.exit_code == 0, answer.output
    blocks = answer.stdout.split("\n\n")
    assert [block.partition(":")[0] for block in blocks] == NAMES
    by_name = dict(zip(NAMES, blocks, strict=True))
    assert by_name["actions"].endswith("\nnothing")
    _heading, columns, row = by_name["causes"].splitlines()
    assert dict(zip(columns.split("\t"), row.split("\t"), strict=True))["cause"] == "S1"


@pytest.mark.usefixtures("a_day_later")
def test_one_question_for_a_script(answering_store: Store) -> None:
    write_incident(answering_store)

    def losses(*options: str) -> dict[str, Any]:
        answer = json.loads(fleet("losses", "--json", *options).stdout)
        assert answer["schema"] == 1
        assert list(answer["queries"]) == ["losses"]
        found: dict[str, Any] = answer["queries"]["losses"]
        return found

    assert losses()["columns"] == ["week", "cause", "incidents", "rank_hours", "gpu_hours"]
    assert [row[1:3] for row in losses()["rows"]] == [["S1", 1]]
    assert losses("--since", "25h")["rows"] == losses()["rows"]
    assert losses("--since", "23h")["rows"] == []


@pytest.mark.usefixtures("answering_store")
def test_what_cannot_be_asked_is_refused() -> None:
    unclear = fleet("--since", "a while")
    assert (unclear.exit_code, "write a number and s, m, h or d" in unclear.stderr) == (2, True)
    assert fleet("nothing-like-it").exit_code == 2


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "there is no store" in fleet("--store", tmp_path / "nowhere").stderr
    assert list(tmp_path.iterdir()) == []
