"""Small JSON files and answers of others: one that is damaged is none, whatever the damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from collector.agent.run_folder import RunFolder
from pacehound.errors import InvalidInput
from pacehound.launcher.attempt import parse_answer
from pacehound.model.truth.file import TruthFile
from pacehound.runtime.head.attempts import FILE_NAME, next_attempt
from pacehound.runtime.head.owner import OWNER_FILE, announced
from pacehound.runtime.head.query_server import parse_question
from pacehound.runtime.watched import WATCHED_FILE, read_watched

NESTED = b'{"x": ' + b"[" * 100_000
DAMAGED = [NESTED, b'{"why": "\xff", "job": "\xff", "receiver_said": "\xff"}', b'{"job": ', b"\x00", b""]


@pytest.mark.parametrize("damaged", DAMAGED, ids=["nested", "no text", "cut", "zero", "empty"])
def test_a_damaged_document_is_none_and_no_fault(tmp_path: Path, damaged: bytes) -> None:
    for name in ("job.json", "ended.json", "command.json", WATCHED_FILE, OWNER_FILE, FILE_NAME):
        (tmp_path / name).write_bytes(damaged)
    run = RunFolder(tmp_path)
    assert (run.ended(), run.command(), read_watched(tmp_path), announced(tmp_path)) == (None, None, None, None)
    assert (next_attempt(tmp_path, "j"), parse_answer(damaged).attempt) == (0, 0)
    with pytest.raises(InvalidInput, match="does not describe a job"):
        run.job()
    with pytest.raises(InvalidInput, match="no file of answers"):
        TruthFile.read(tmp_path / "job.json")
    with pytest.raises(web.HTTPBadRequest):
        parse_question(damaged)
