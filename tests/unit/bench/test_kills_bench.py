"""What a hundred kills are counted by: who is killed when, and how long a rank stood still."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.kills import kills, lanes, page
from bench.rig.kills.field import RANKS, Field
from bench.rig.kills.job import STEP, expected
from bench.rig.kills.strikes import Kill, Struck


def test_each_is_killed_at_each_step_of_each_protocol_a_hundred_times_in_all() -> None:
    planned = kills(0)
    assert len(set(planned)) == len(planned) == 51
    assert {one.victim for one in planned if one.protocol == "validation"} == {
        "controller", "head", "agent", "worker", "rank",
    }  # fmt: skip
    assert sum(map(len, lanes(2).values())) == 102
    assert {one.protocol for one in lanes(2)["alone"]} == {"order"}


def written(folder: Path, times_s: list[float], *, wrong_rank: int = -1) -> Field:
    field = Field(folder, together=True)
    field.out = folder
    for rank in range(RANKS):
        wrong = float(rank == wrong_rank)
        steps = [(step, at_s, expected(step, RANKS) + wrong) for step, at_s in enumerate(times_s)]
        (folder / f"{rank}.steps").write_bytes(b"".join(STEP.pack(*one) for one in steps))
    return field


def test_how_long_a_rank_stood_still_is_read_off_its_own_steps(tmp_path: Path) -> None:
    field = written(tmp_path, [10.0, 10.1, 10.2, 12.7, 12.8])
    assert field.stood_still_s(0, 10.15) == pytest.approx(2.5)
    assert field.stood_still_s(0, 10.25) == pytest.approx(2.45), "since the kill"
    assert field.stood_still_s(0, 12.75) == pytest.approx(0.05)
    assert field.computes_what_it_should()


def test_a_step_that_added_up_something_else_is_seen(tmp_path: Path) -> None:
    assert not written(tmp_path, [10.0, 10.1, 10.2], wrong_rank=2).computes_what_it_should()


def test_what_is_not_as_promised_is_counted_and_said() -> None:
    one = Kill("hold", "held", "agent", 0)
    right = Struck(one, "held", 1.5, "somebody has let the ranks go", 10.0)
    wrong = Struck(one, "held", 12.0, "", 10.0, wrong="a rank stood still for 12.0 s")
    text = page([right, wrong], 60.0)
    assert "2 kills; 1 as promised." in text
    assert "| hold | held | agent | 2 | 1 | 2 went on | 12.0 | 10 |" in text
    assert text.endswith("WRONG: a rank stood still for 12.0 s\n")
