"""A real torch.distributed job under `pacehound run`: what issue after issue builds upon.

Each proof has a short form, run by `make test`, and a long one (`make prove`) that repeats it. Every run decides; one
that its control calls disturbed is counted as not measured.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import SkipTest

import pytest

from bench.rig import realjob
from pacehound.bus import Message
from pacehound.bus.recording import Recording
from pacehound.model.codec import decode, encode
from pacehound.settings import Settings
from streams.pipeline import Pipeline
from tests.fakes.shared_store import copy_store

pytestmark = [pytest.mark.integration, pytest.mark.timed, pytest.mark.timeout(600)]


def new_folder(parent: Path, number: int) -> Path:
    folder = parent / str(number)
    folder.mkdir()
    return folder


def step_times_agree(run: realjob.Run, steps: Sequence[float]) -> float:
    """Each iteration is stored once, and a mean of a hundred is that of the script's own log; the largest error."""
    ours = [row["step_time_s"] for row in run.sql("SELECT step_time_s FROM iterations ORDER BY step")]
    assert len(ours) == len(steps)
    worst = realjob.worst_difference(steps, ours)
    assert worst <= 0.01
    return worst


@dataclass(frozen=True)
class SlowRun:
    """A finished job whose rank 2 took 40 % longer for a while, and what its head was told."""

    run: realjob.Run
    steps: list[float]
    recording: Path
    slow: range

    def disturbance(self) -> str:
        first, last = self.slow.start, self.slow.stop
        return realjob.unsteady(self.steps, (slice(20, first), slice(first, last), slice(last, None)))


def slow_run(folder: Path, slow: range, iterations: int) -> SlowRun:
    csv = folder / "steps.csv"
    fault = ("--slow-rank", 2, "--slow-from", slow.start, "--slow-until", slow.stop, "--slow-by", 0.4)
    with realjob.recording_head(folder) as recording:
        run = realjob.start(folder, realjob.forked("--iterations", iterations, *fault, "--csv", csv))
        assert run.wait(180) == 0, run.text()
    return SlowRun(run, realjob.script_steps(csv), recording, slow)


def says_who_is_slow(made: SlowRun) -> str:
    with realjob.unless_disturbed(made.disturbance):
        incidents = made.run.incidents()
        assert [len(incident["findings"]) for incident in incidents] == [1], incidents
        (incident,) = incidents
        (finding,) = incident["findings"]
        assert (finding["kind"], finding["cause"]) == ("slow", "S1"), finding
        assert realjob.is_as_sure_as_it_can_be(finding), finding
        assert finding["culprits"] == [2]
        assert finding["victims"] == [0, 1, 3]
        onset, detected, relief = (finding[name]["step"] for name in ("onset", "detected", "relief"))
        assert abs(onset - made.slow.start) <= 5, finding
        assert detected <= made.slow.start + 30, finding
        assert abs(relief - made.slow.stop) <= 10, finding
        assert incident["state"] == "closed"
        assert incident["cost"]["gpu_hours"] > 0
    worst = step_times_agree(made.run, made.steps)
    said = f"onset {onset}, said at {detected}, relief {relief}, {finding['magnitude']:+.0%}"
    return f"{said}, iteration time off by {worst:.2%} at most"


@pytest.fixture(scope="module")
def short_slow_run(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> SlowRun:
    folder = tmp_path_factory.mktemp("slow")
    copy_store(empty_store, folder / "store")
    return slow_run(folder, range(90, 140), 180)


def test_the_slow_rank_is_named_within_30_iterations(short_slow_run: SlowRun) -> None:
    print(says_who_is_slow(short_slow_run))


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_the_slow_rank_is_named_within_30_iterations_in_every_run(tmp_path: Path) -> None:
    realjob.measure(10, lambda n: says_who_is_slow(slow_run(new_folder(tmp_path, n), range(200, 300), 360)))


def test_a_recorded_real_incident_replays_to_the_same_bytes(short_slow_run: SlowRun) -> None:
    """What the head was told, replayed by communicator or as it came, gives the same events, byte for byte."""
    messages = list(Recording(short_slow_run.recording))
    first, second = replayed(messages), replayed(messages)
    assert first == second
    by_stream = sorted(messages, key=lambda message: (message.topic, message.key))  # one communicator after the other
    assert sorted(replayed(by_stream)) == sorted(first)
    said = [event for message in first for event in decode(message)]
    closed = [event for event in said if type(event).__name__ == "Incident" and event.state == "closed"]
    assert {event.id for event in closed} == {incident["id"] for incident in short_slow_run.run.incidents()} != set()
    answers = {realjob.pacehound("replay", str(short_slow_run.recording), "--json") for _ in range(2)}
    assert len(answers) == 1
    assert json.loads(answers.pop())["schema"] == 1


def replayed(messages: Sequence[Message]) -> list[bytes]:
    pipeline = Pipeline(Settings())
    events = [event for message in messages for event in decode(message.value)]
    return [encode(out) for event in events for out in pipeline.on_event(event)]


def clean(folder: Path, iterations: int) -> str:
    """So many iterations in which nothing is wrong."""
    csv = folder / "steps.csv"
    run = realjob.start(folder, realjob.torchrun("--iterations", iterations, "--csv", csv))
    assert run.wait(240) == 0, run.text()
    steps = realjob.script_steps(csv)
    with realjob.unless_disturbed(lambda: realjob.unsteady(steps, (slice(20, None),))):
        assert run.incidents() == []
    worst = step_times_agree(run, steps)
    return f"{iterations} iterations, no incident, iteration time off by {worst:.2%} at most"


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_a_clean_job_has_no_incident(tmp_path: Path) -> None:
    realjob.measure(10, lambda number: clean(new_folder(tmp_path, number), 1_000))


KILLS = (80,)
"""Once so many iterations are seen."""
AFTER = 80
"""Steps within which what a kill costs is seen."""
LEAST = 20
"""Steps that show how long one takes."""


def killed_agent(folder: Path, iterations: int) -> str:
    """kill -9 of the agent of a clean job: another one comes; steps with the kill against the others of the run.

    The steps before and after it are the control: where they differ among themselves by more than what
    is claimed, or are missing, nothing was measured. The script's own log tells in which step a kill fell.
    """
    csv = folder / "steps.csv"
    run = realjob.start(folder, realjob.forked("--iterations", iterations, "--csv", csv))
    killed_ns: list[int] = []
    try:
        for seen in KILLS:
            realjob.until("iterations", lambda seen=seen: run.iterations_seen() >= seen, 90)
            (agent,) = realjob.agents(run)
            killed_ns.append(time.time_ns())
            os.kill(agent, signal.SIGKILL)
            realjob.until("another agent", lambda old=agent: set(realjob.agents(run)) - {old}, 60)
        assert run.wait(120) == 0, run.text()
    finally:
        run.stop()
    rows = run.sql(
        "SELECT rank, count() AS calls, uniqExact(seq) AS rounds, max(seq) + 1 AS span FROM calls GROUP BY rank"
    )
    assert len(rows) == 4
    for row in rows:
        assert int(row["calls"]) == int(row["rounds"]) == int(row["span"]) >= iterations, row
    steps, ended_ns = realjob.script_steps(csv), realjob.script_step_ends_ns(csv)
    worst = step_times_agree(run, steps)
    killed_at = [bisect(ended_ns, at_ns) for at_ns in killed_ns]
    parts = [
        slice(first, last)
        for first, last in zip([20, *(at + AFTER for at in killed_at)], [*killed_at, iterations], strict=True)
    ]
    if short := [steps[part] for part in parts if len(steps[part]) < LEAST]:
        raise SkipTest(f"not measured: kills in steps {killed_at} of {iterations} leave {len(short[0])} quiet ones")
    quiet = [statistics.median(steps[part]) for part in parts]
    spread = max(quiet) / min(quiet) - 1
    killed = statistics.median(time_s for at in killed_at for time_s in steps[at : at + AFTER])
    slowdown = killed / statistics.median(quiet)

    def disturbance() -> str:
        apart = f"the quiet parts of the run differ by {spread:.0%}" if spread > 0.05 else ""
        return apart or realjob.unsteady(steps, (slice(20, None),))

    with realjob.unless_disturbed(disturbance):
        assert slowdown == pytest.approx(1, rel=0.05)
        assert run.incidents() == []
    said = f"steps took {slowdown:.3f} times as long after a kill, the quiet parts differ by {spread:.1%}"
    return f"{said}; {iterations} iterations without an incident, off by {worst:.2%} at most"


@pytest.mark.prove
def test_a_clean_job_has_no_incident_and_killing_its_agent_costs_no_call_and_no_time(tmp_path: Path) -> None:
    print(killed_agent(tmp_path, 280))
