"""What `top` shows on screens of any size: who loses most, since when, and nothing that a terminal would obey."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from rich.cells import cell_len

from pacehound.pages.terminal import PlainConsole
from pacehound.pages.top import Choice, in_order, top_page

NOW_NS = 1_790_000_000 * 10**9
Row = Mapping[str, Any]


def job(name: str, state: str = "running", **changes: object) -> Row:
    row = {"job": name, "attempt": 0, "state": state, "world_size": 16, "step_time_s": 1.0, "spark_s": [1.0, 1.0]}
    return row | {"lost_rank_hours": 0.0, "open_incidents": 0} | changes


def incident(job: str = "a", state: str = "open", **changes: object) -> Row:
    row = {"id": "0123456789abcdef", "job": job, "attempt": 0, "state": state, "opened_ns": NOW_NS - 300 * 10**9}
    words = {"what": "Rank 2 slows the job down: computation (S1)", "verdict": "culprit", "rank_hours": 1.25}
    return row | words | changes


def screen(
    jobs: Sequence[Row], incidents: Sequence[Row] = (), choice: Choice | None = None, width: int = 100,
    height: int | None = None, **how: str,
) -> list[str]:  # fmt: skip
    console = PlainConsole(io.StringIO())
    console.width = width
    console.print(
        top_page(in_order(jobs), incidents, choice or Choice(), width=width, height=height, now_ns=NOW_NS, **how)
    )
    return str(console.file.getvalue()).splitlines()


def test_whoever_is_slow_and_has_lost_most_stands_first_and_what_has_ended_last() -> None:
    jobs = [
        job("ended", "ended", lost_rank_hours=99.0),
        job("quiet"),
        job("little", "slow", lost_rank_hours=0.1),
        job("much", "slow", lost_rank_hours=7.0),
        job("silent", "silent"),
    ]
    assert [row["job"] for row in in_order(jobs)] == ["much", "little", "quiet", "silent", "ended"]


def test_a_line_says_how_fast_it_goes_beside_how_fast_it_usually_goes_and_what_it_has_lost() -> None:
    lines = screen(
        [job("gpt", "slow", attempt=2, spark_s=[1.0, 1.5], lost_rank_hours=3.25, open_incidents=1)],
        [incident("gpt", attempt=2)],
    )
    assert "jobs: 1 slow  open incidents: 1" in lines[0]
    assert lines[3].split() == ["gpt", "#2", "slow", "16", "1.5", "s", "1.0", "s", "3.25", "1"]
    assert "open     Rank 2 slows the job down: computation (S1) [culprit]" in lines
    assert any("gpt #2, since 5 min, 1.25 rank-hours lost, 0123456789ab" in line for line in lines)


def test_inside_a_job_its_own_incidents_are_shown_and_those_that_are_over() -> None:
    jobs = [job("a", "slow"), job("b")]
    incidents = [incident("a"), incident("b", "closed", what="Rank 5 has left the job")]
    outside = "\n".join(screen(jobs, incidents))
    assert "Rank 2" in outside
    assert "Rank 5" not in outside
    inside = "\n".join(screen(jobs, incidents, Choice(place=1, is_inside=True)))
    assert "incidents of b" in inside
    assert "Rank 5" in inside
    assert "Rank 2" not in inside
    assert "no open incidents" in "\n".join(screen([job("a")]))
    assert "jobs: none" in screen([])[0]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [12, 24, 60])
@pytest.mark.parametrize(("n_jobs", "n_incidents"), [(0, 0), (1, 9), (80, 0), (80, 50)])
def test_a_screen_of_any_size_is_never_overfull(width: int, height: int, n_jobs: int, n_incidents: int) -> None:
    jobs = [job(f"pretraining-{n}-" + "x" * 50, "slow", lost_rank_hours=float(n)) for n in range(n_jobs)]
    incidents = [incident(f"pretraining-{n}-" + "x" * 50) for n in range(n_incidents)]
    for place in {0, n_jobs // 2, max(n_jobs - 1, 0)}:
        lines = screen(jobs, incidents, Choice(place=place), width, height, keys="q: end")
        assert len(lines) <= height
        assert max(map(cell_len, lines)) <= width
        assert lines[-1].strip() == "q: end"
        if n_jobs:
            assert [line[:1] for line in lines].count(">") == 1, "the chosen job is always in sight"
        if n_incidents:
            assert any("Rank 2" in line for line in lines)


def test_names_of_others_are_text_and_a_source_that_is_away_is_said() -> None:
    text = "\n".join(
        screen([job("\x1b]0;evil\x07[bold]")], [incident(what="\x1b[2J[red]")], problem="nothing newer: gone")
    )
    assert "\x1b" not in text
    assert "\\x1b]0;evil\\x07[bold]" in text
    assert "\\x1b[2J[red]" in text
    assert text.splitlines()[-1] == "nothing newer: gone"


def test_a_choice_never_leaves_the_list() -> None:
    choice = Choice()
    for key in ("up", "down", "down", "down", "enter", "down"):
        choice = choice.after(key, 2)
    assert choice == Choice(place=1, is_inside=True)
    assert choice.after("back", 2) == Choice(place=1)
    assert choice.after("", 0).place == 0
    assert not Choice().after("enter", 0).is_inside
