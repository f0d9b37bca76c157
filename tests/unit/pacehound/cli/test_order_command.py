"""`pacehound order`: what it refuses before anybody is asked, and what it says afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from actuators.control.applying import ApplyProcedure, At
from pacehound import cli
from pacehound.cli.order import lines, outcome
from pacehound.model.events import TrainerAnswer


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Collect now"], "order 'Collect now': no order that anybody writes: a kind 'Collect now'"),
        (["collect", "--payload", "{"], "a payload that is no JSON"),
        (["collect", "--payload", "1" * 9_000], "a payload of 9002 bytes; at most 8192"),
        (["collect"], "no job is watched in"),
    ],
)
def test_what_cannot_be_ordered_is_said(tmp_path: Path, words: list[str], said: str) -> None:
    answer = CliRunner().invoke(cli.pacehound, ["order", "--store", str(tmp_path), *words])
    assert (answer.exit_code, said in answer.stderr) == (2, True), answer.stderr


def test_who_has_applied_it_at_which_step_is_told_and_who_has_not_and_why() -> None:
    applying = ApplyProcedure(1, "collect", "null", 1, 0)
    answers = [TrainerAnswer(rank=rank, state="applied", step=40) for rank in range(3)]
    answers.append(TrainerAnswer(rank=3, state="kept", step=40, why="not all ranks had it"))
    applying.ranks = {one.rank: At(host="h", answer=one, heard_ns=0) for one in answers}
    applying.at_step = 40
    assert applying.outcome == "differs"
    told = outcome(applying, "j", "collect")
    assert (told["outcome"], told["step"]) == ("differs", 40)
    assert lines(told) == [
        "job j: ranks 0-2 applied collect at step 40",
        "rank 3 on h: kept, not all ranks had it",
    ]
