"""`pacehound plan`: options for the open incident of a job, priced and timed by what the store knows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pacehound import cli
from pacehound.cli.history import OpenedHistory
from pacehound.model.events import Cost, Instant, IterationSample
from storage.client import Store
from storage.read import ask
from tests.fakes.events import SECOND_NS, START_NS, finding, incident, topology
from tests.store.test_store_contract import write

MINUTE_NS = 60 * SECOND_NS


def step(attempt: int, number: int, end_s: float, took_s: float, planned: str = "") -> IterationSample:
    end_ns = START_NS + round(end_s * SECOND_NS)
    return IterationSample(
        job="j", attempt=attempt, time_ns=end_ns, communicator="world", step=number, ranks=(0, 1, 2, 3),
        ends_ns=(end_ns,) * 4, step_time_s=took_s, boundary="optimizer_step", planned=planned,
    )  # fmt: skip


def iterations(*, is_taken_up_later: bool = False) -> list[IterationSample]:
    """Two attempts: a checkpoint of 30 s in the first, a restart of 95 s, a checkpoint of 20 s and a hold of 3 s.

    With `is_taken_up_later` a third a day after.
    """
    first = [step(0, n, float(n), 1.0) for n in range(10)]
    first += [step(0, 10, 41.0, 31.0, "checkpoint")]
    second = [step(1, n, 136.0 + n, 1.0) for n in range(1, 10)]
    second = [step(1, 0, 136.0, 0.0), *second]
    second += [step(2, 0, 90_000.0, 0.0)] if is_taken_up_later else []
    second += [step(1, 10, 166.0, 21.0, "checkpoint"), step(1, 11, 170.0, 4.0, "hold"), step(1, 12, 200.0, 1.0)]
    return [*first, *second]


def earlier(number: int, minutes: float, closed_why: str) -> list[Any]:
    """An incident of another job, that lasted so long."""
    onset = Instant(step=1, time_ns=START_NS - 10_000 * MINUTE_NS)
    end_ns = onset.time_ns + round(minutes * MINUTE_NS)
    relief = Instant(step=9, time_ns=end_ns) if closed_why == "relieved" else None
    job = f"before{number}"
    slow = finding(id=f"p{number}", job=job, onset=onset, detected=onset, relief=relief)
    over = incident(
        id=f"q{number}", job=job, findings=(slow,), opened_ns=onset.time_ns, time_ns=end_ns, state="closed",
        closed_ns=end_ns, closed_why=closed_why,
    )  # fmt: skip
    return [slow, over]


@pytest.fixture
def watched(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store that somebody watches into: what is open in it is open."""
    slow = finding(attempt=1, magnitude=1.0, onset=Instant(step=11, time_ns=START_NS + 180 * SECOND_NS))
    is_open = incident(
        attempt=1, findings=(slow,), cost=Cost(excess_s=4.0, ranks=4), time_ns=START_NS + 196 * SECOND_NS,
        opened_ns=START_NS + 190 * SECOND_NS,
    )  # fmt: skip
    world = topology(members=(0, 1, 2, 3), world_size=4)
    write(store, [world, *iterations(), slow, is_open])

    @contextlib.contextmanager
    def opened(*_: object) -> Iterator[OpenedHistory]:
        yield OpenedHistory(store, is_watched=True)

    monkeypatch.setattr("pacehound.cli.history.history", opened)
    return store


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(cli.pacehound, ["plan", *arguments])


def answer_of(*arguments: str) -> dict[str, Any]:
    told = plan("--json", *arguments)
    assert told.exit_code == 0, told.output
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


def test_prices_are_measured_from_the_jobs_own_steps(watched: Store) -> None:
    (row,) = ask(watched, "plan/measured", job="j").to_pylist()
    assert row == {
        "heard_ns": START_NS + 200 * SECOND_NS,
        "checkpoint_s": pytest.approx(20.0),
        "checkpoint_ns": START_NS + 166 * SECOND_NS,
        "hold_s": pytest.approx(3.0),
        "restart_s": pytest.approx(95.0),
    }
    write(watched, iterations(is_taken_up_later=True))
    (later,) = ask(watched, "plan/measured", job="j").to_pylist()
    assert (later["restart_s"], later["checkpoint_ns"]) == (pytest.approx(95.0), None)
    (nothing,) = ask(watched, "plan/measured", job="nobody").to_pylist()
    assert {nothing[name] for name in ("checkpoint_s", "checkpoint_ns", "hold_s", "restart_s")} == {None}


def test_the_past_tells_what_has_ended_from_what_was_cut_off(watched: Store) -> None:
    write(watched, [*earlier(0, 10, "relieved"), *earlier(1, 30, "job ended")])
    rows = ask(watched, "plan/past", kind="slow", cause="S1", incident="i0", before_ns=START_NS).to_pylist()
    assert [(row["duration_s"], bool(row["has_ended"]), row["hosts"]) for row in rows] == [
        (600.0, True, []),
        (1800.0, False, []),
    ]
    every = {"kind": "slow", "cause": "S1", "incident": "", "before_ns": START_NS + 10**15}
    (own,) = [row for row in ask(watched, "plan/past", **every).to_pylist() if row["duration_s"] < 600]
    assert (own["duration_s"], bool(own["has_ended"])) == (16.0, False)
    assert ask(watched, "plan/past", kind="hang", cause="S1", incident="", before_ns=START_NS).num_rows == 0
    assert ask(watched, "plan/places", job="j", attempt=0).to_pylist()[2] == {"rank": 2, "host": "h"}


def test_a_script_gets_the_options_with_the_jobs_prices(watched: Store) -> None:
    answer = answer_of("--job", "j")
    assert answer["schema"] == 1
    assert answer["incident"] == "i0"
    keys = {"action", "cost_s", "expected_gain", "due_in_s", "reversible", "reason", "uncertainty"}
    assert all(set(option) == keys for option in answer["options"])
    options = {option["action"]: option for option in answer["options"]}
    assert options["checkpoint_restart"]["cost_s"] == pytest.approx(115.0)
    # 4 s had been lost 4 s before the job was last heard of, and it loses half of its time.
    assert answer["loss_s"] == pytest.approx(6.0)
    assert answer["chosen"] == "adjust_microbatches"
    assert options["adjust_topology"]["due_in_s"] == pytest.approx(108.0)


def test_a_person_gets_a_table(watched: Store) -> None:
    told = plan("--job", "j")
    assert told.exit_code == 0, told.output
    lines = told.stdout.splitlines()
    assert lines[0].startswith("INCIDENT i0")
    (row,) = [line for line in lines if line.startswith("checkpoint_restart") and "115 s" in line]
    assert row.split()[1:3] == ["115", "s"]
    assert any(line.startswith("chosen: adjust_microbatches") for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_how_long_earlier_ones_lasted_moves_the_moments(watched: Store) -> None:
    before = {option["action"]: option["due_in_s"] for option in answer_of()["options"]}
    write(watched, [one for n in range(30) for one in earlier(n, 600 + n, "relieved")])
    after = answer_of()
    assert after["options"][-1]["due_in_s"] < before["checkpoint_restart"]
    assert "how long 30 at this time of day lasted" in after["timing"]


def test_without_an_open_incident_it_says_so_and_that_is_an_answer(store: Store, watched: Store) -> None:
    over = incident(version=5, state="closed", closed_ns=START_NS + 300 * SECOND_NS, closed_why="relieved", attempt=1)
    write(store, [over])
    assert answer_of() == {"schema": 1, "job": "j", "incident": None, "options": [], "chosen": None}
    assert "no incident of it is open; the last one was closed (relieved)" in plan().stdout


def test_a_job_that_nobody_knows_is_bad_input(watched: Store) -> None:
    told = plan("--job", "nobody")
    assert (told.exit_code, "nothing is known of job 'nobody'" in told.stderr) == (2, True)
