"""A real torch.distributed job under `pacehound run`: what issue after issue builds upon.

Each proof has a short form, run by `make test`, and a long one (`make prove`) that repeats it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.rig import realjob

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

REPEATS = [
    pytest.param(1, id="short"),
    pytest.param(10, id="long", marks=[pytest.mark.prove, pytest.mark.timeout(3600)]),
]


def run_undisturbed(folder: Path, timeout_s: float, steady: Sequence[slice], *arguments: object) -> realjob.Run:
    """A whole run of the script; its log is the file `steps.csv`.

    One that something else on the machine has disturbed in these parts, by that log, proves nothing: it is repeated.
    """
    steps = folder / "steps.csv"
    for attempt in realjob.attempts(folder):
        run = realjob.start(attempt, realjob.torchrun(*arguments, "--csv", steps))
        assert run.wait(timeout_s) == 0, run.text()
        times = realjob.script_steps(steps)
        if all(realjob.is_steady(times[part]) for part in steady):
            break
        print(f"{attempt.name} was disturbed")
    return run


def slow_rank(folder: Path) -> str:
    """One run with rank 2 slowed by 40 % over iterations 200 to 299; a line of figures."""
    fault = ("--slow-rank", 2, "--slow-from", 200, "--slow-until", 300, "--slow-by", 0.4)
    steady = (slice(20, 200), slice(200, 300), slice(300, 360))
    run = run_undisturbed(folder, 180, steady, "--iterations", 360, *fault)
    steps = folder / "steps.csv"
    (incident,) = run.incidents()
    (finding,) = incident["findings"]
    assert (finding["kind"], finding["verdict"], finding["cause"]) == ("slow", "culprit", "S1"), finding
    assert finding["culprits"] == [2]
    assert finding["victims"] == [0, 1, 3]
    onset, detected, relief = (finding[name]["step"] for name in ("onset", "detected", "relief"))
    assert abs(onset - 200) <= 5, finding
    assert detected <= 230, finding
    assert abs(relief - 300) <= 10, finding
    assert incident["state"] == "closed"
    assert incident["cost"]["gpu_hours"] > 0
    ours = [row["step_time_s"] for row in run.sql("SELECT step_time_s FROM iterations ORDER BY step")]
    worst = realjob.worst_difference(realjob.script_steps(steps), ours)
    assert len(ours) == 360
    assert worst <= 0.01
    return (
        f"onset {onset}, said at {detected}, relief {relief}, {finding['magnitude']:+.0%}, "
        f"iteration time off by {worst:.2%} at most"
    )


@pytest.mark.parametrize("repeats", REPEATS)
def test_the_slow_rank_is_named_within_30_iterations(tmp_path: Path, repeats: int) -> None:
    for number in range(repeats):
        folder = tmp_path / str(number)
        folder.mkdir()
        print(f"slow rank, run {number + 1}: {slow_rank(folder)}")


def clean(folder: Path, iterations: int) -> str:
    """So many iterations in which nothing is wrong."""
    run = run_undisturbed(folder, 240, (slice(20, None),), "--iterations", iterations)
    steps = folder / "steps.csv"
    incidents = run.incidents()
    assert incidents == [], [finding for incident in incidents for finding in incident["findings"]]
    ours = [row["step_time_s"] for row in run.sql("SELECT step_time_s FROM iterations ORDER BY step")]
    assert len(ours) == iterations
    worst = realjob.worst_difference(realjob.script_steps(steps), ours)
    assert worst <= 0.01
    return f"{iterations} iterations, no incident, iteration time off by {worst:.2%} at most"


@pytest.mark.parametrize("repeats", REPEATS)
def test_a_clean_job_has_no_incident(tmp_path: Path, repeats: int) -> None:
    iterations = 1_000 if repeats > 1 else 310
    for number in range(repeats):
        folder = tmp_path / str(number)
        folder.mkdir()
        print(f"clean, run {number + 1}: {clean(folder, iterations)}")


def stopped_rank(folder: Path, rank: int) -> str:
    """SIGSTOP on one rank, SIGCONT after the verdict."""
    settings = ["hang.suspect_after_s=3"]
    run = realjob.start(folder, realjob.torchrun("--iterations", 400), settings=settings)
    try:
        realjob.until("sixty iterations", lambda: run.iterations_seen() >= 60, 90)
        pid = realjob.rank_pids(run.process.pid)[rank]
        os.kill(pid, signal.SIGSTOP)
        (incident,) = realjob.until("the verdict", run.incidents, 60)
        os.kill(pid, signal.SIGCONT)
        (finding,) = incident["findings"]
        assert (finding["kind"], finding["verdict"], finding["culprits"]) == ("hang", "culprit", [rank]), finding
        delay_s = (finding["detected"]["time_ns"] - finding["onset"]["time_ns"]) / 1e9
        assert 3.0 <= delay_s <= 6.0
        assert any("is stopped" in sentence for sentence in finding["evidence"]), finding
        assert run.wait(120) == 0, run.text()
    finally:
        run.stop()
    (incident,) = run.incidents()
    assert (incident["state"], incident["closed_why"]) == ("closed", "relieved"), incident
    return f"rank {rank}: named {delay_s:.1f} s after its peers began to wait, closed after SIGCONT"


@pytest.mark.parametrize("repeats", REPEATS)
def test_a_stopped_rank_is_named_and_its_incident_closes_when_it_goes_on(tmp_path: Path, repeats: int) -> None:
    for number in range(repeats):
        folder = tmp_path / str(number)
        folder.mkdir()
        print(f"SIGSTOP, run {number + 1}: {stopped_rank(folder, number % 4)}")
