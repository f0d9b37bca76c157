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
from tests.contract.test_store_contract import write
from tests.fakes.events import SECOND_NS, finding, incident

NAMES = [name.removeprefix("fleet/") for name in query_names("fleet")]


def fleet(*arguments: object) -> Result:
    return CliRunner().invoke(cli.pacehound, ["fleet", *map(str, arguments)])


@pytest.fixture
def folder(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An incident a day ago, as of the clock of the command."""
    opened_ns = incident().opened_ns
    slow = finding(kind="slow", cause="S1", magnitude=0.5)
    write(store, [slow, incident(findings=(slow,))])
    store.close()
    monkeypatch.setattr("pacehound.clock.SystemClock.now_ns", lambda self: opened_ns + 86_400 * SECOND_NS)
    return tmp_path / "store"


def test_help_lists_every_question_with_what_it_answers() -> None:
    lines = fleet("--help").stdout.splitlines()
    for name in NAMES:
        assert any(line.split()[:1] == [name] and len(line.split()) > 5 for line in lines), name


def test_without_a_name_every_question_is_answered(folder: Path) -> None:
    answer = fleet("--store", folder)
    assert answer.exit_code == 0, answer.output
    blocks = answer.stdout.split("\n\n")
    assert [block.partition(":")[0] for block in blocks] == NAMES
    by_name = dict(zip(NAMES, blocks, strict=True))
    assert by_name["actions"].endswith("\nnothing")
    _heading, columns, row = by_name["causes"].splitlines()
    assert dict(zip(columns.split("\t"), row.split("\t"), strict=True))["cause"] == "S1"


def test_one_question_for_a_script(folder: Path) -> None:
    def losses(*options: str) -> dict[str, Any]:
        answer = json.loads(fleet("losses", "--store", folder, "--json", *options).stdout)
        assert answer["schema"] == 1
        assert list(answer["queries"]) == ["losses"]
        found: dict[str, Any] = answer["queries"]["losses"]
        return found

    assert losses()["columns"] == ["week", "cause", "incidents", "rank_hours", "gpu_hours"]
    assert [row[1:3] for row in losses()["rows"]] == [["S1", 1]]
    assert losses("--since", "25h")["rows"] == losses()["rows"]
    assert losses("--since", "23h")["rows"] == []


def test_what_cannot_be_asked_is_refused(folder: Path) -> None:
    assert fleet("--store", folder, "--since", "a while").exit_code == 2
    assert "write a number and s, m, h or d" in fleet("--store", folder, "--since", "a while").stderr
    assert fleet("nothing-like-it", "--store", folder).exit_code == 2
    assert "there is no store" in fleet("--store", folder.parent / "nowhere").stderr
