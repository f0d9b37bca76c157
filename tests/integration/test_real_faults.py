"""What is around a real job may fail or be in the way; the job must not notice."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob
from pacehound.bus.recording import Recording
from pacehound.model.codec import decode, encode
from pacehound.settings import Settings
from streams.pipeline import Pipeline
from tests.fakes.webhook import FakeWebhook

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_a_killed_agent_costs_no_call_and_no_time(tmp_path: Path) -> None:
    """kill -9 of the agent, twice: it comes back, every call is stored once, steps take as long as before.

    The machine is not ours alone: in one of three runs nothing else may have slowed the job down.
    """
    said = []
    for attempt in realjob.attempts(tmp_path):
        said.append(_with_killed_agents(attempt))
        if said[-1][0] == [] and said[-1][1] == pytest.approx(1, rel=0.05):
            break
    incidents, slowdown = said[-1]
    assert incidents == [], said
    assert slowdown == pytest.approx(1, rel=0.05), said


def _with_killed_agents(folder: Path) -> tuple[list[dict[str, Any]], float]:
    """The incidents of a job whose agent was killed twice, and how much longer its steps took from then on."""
    steps = folder / "steps.csv"
    run = realjob.start(folder, realjob.torchrun("--iterations", 500, "--csv", steps))
    try:
        for seen in (100, 250):
            realjob.until("iterations", lambda seen=seen: run.iterations_seen() >= seen, 90)
            (agent,) = realjob.agents(run)
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
        assert int(row["calls"]) == int(row["rounds"]) == int(row["span"]) >= 500, row
    assert _iterations(run) == 500
    times = realjob.script_steps(steps)
    quiet, killed = times[20:100], times[100:450]
    return run.incidents(), statistics.median(killed) / statistics.median(quiet)


def _iterations(run: realjob.Run) -> int:
    (row,) = run.sql("SELECT count() AS seen FROM iterations")
    return int(row["seen"])


# One write per line: what two ranks print must not run into each other.
SHADOWED = """
import collector, os, storage, streams
words = ("collector", collector.WHOSE, "storage", storage.WHOSE, "streams", streams.WHOSE, "site", os.environ["SITE"])
os.write(1, (" ".join(words) + chr(10)).encode())
"""


def test_a_script_beside_modules_of_our_names_runs_as_without_us(tmp_path: Path) -> None:
    """collector.py, storage/, streams/ and sitecustomize.py of the user come first, with and without Pacehound."""
    folder = tmp_path / "theirs"
    for package in ("storage", "streams"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text('WHOSE = "theirs"\n')
    (folder / "collector.py").write_text('WHOSE = "theirs"\n')
    (folder / "sitecustomize.py").write_text('import os\nos.environ["SITE"] = "theirs"\n')
    training = realjob.SCRIPT.read_text()
    (folder / "train_ddp.py").write_text(training + SHADOWED)
    command = [*realjob.TORCHRUN, "--standalone", "--nproc-per-node", "2", "train_ddp.py", "--iterations", "40"]
    env = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    run = realjob.start(tmp_path, command, cwd=folder, env=env)
    assert run.wait(120) == 0, run.text()
    alone = subprocess.run(
        command, cwd=folder, env=realjob.environment(env), capture_output=True, text=True, timeout=120, check=False
    )
    said = "collector theirs storage theirs streams theirs site theirs"
    for text in (run.text(), alone.stdout):
        assert text.count(said) == 2, text
    assert _iterations(run) == 40  # and it was watched


def test_a_recorded_real_incident_replays_to_the_same_bytes(tmp_path: Path) -> None:
    """A real run is recorded; its communicators' streams, replayed, give the same events, byte for byte."""
    recording = tmp_path / "job.rec"
    store = tmp_path / "store"
    log = (tmp_path / "head.log").open("wb")
    head = subprocess.Popen(
        [*realjob.PACEHOUND, "up", "--listen", "127.0.0.1:0", "--store", str(store), "--record", str(recording)],
        stdout=log,
        stderr=log,
        env=realjob.environment(),
        cwd="/",
    )
    try:
        realjob.until("the head", lambda: (store / "head.json").exists(), 60)
        run = realjob.start(
            tmp_path, realjob.torchrun("--iterations", 260, "--slow-rank", 1, "--slow-from", 150, "--slow-by", 0.5)
        )
        assert run.wait(120) == 0, run.text()
        (incident,) = realjob.until(
            "a closed incident", lambda: [i for i in run.incidents() if i["state"] == "closed"], 20
        )
    finally:
        head.terminate()
        head.wait(30)
        log.close()
    messages = list(Recording(recording))
    first, second = _replayed(messages), _replayed(messages)
    assert first == second
    by_stream = sorted(messages, key=lambda message: (message.topic, message.key))  # one communicator after the other
    assert sorted(_replayed(by_stream)) == sorted(first)
    said = [event for message in first for event in decode(message)]
    closed = [event for event in said if type(event).__name__ == "Incident" and event.state == "closed"]
    assert [event.id for event in closed] == [incident["id"]]
    answers = {realjob.pacehound("replay", str(recording), "--json") for _ in range(2)}
    assert len(answers) == 1
    assert json.loads(answers.pop())["schema"] == 1


def _replayed(messages: list) -> list[bytes]:
    pipeline = Pipeline(Settings())
    events = [event for message in messages for event in decode(message.value)]
    return [encode(out) for event in events for out in pipeline.on_event(event)]


def test_an_incident_reaches_a_webhook_once_per_state(tmp_path: Path) -> None:
    """From a real stopped rank to a real HTTP request: opened, relieved and closed, each once."""
    with FakeWebhook() as hook:
        settings = ["hang.suspect_after_s=3", f"alerts.webhook_url={hook.url}"]
        command = realjob.torchrun(0.05, tmp_path, script=realjob.STEADY)
        run = realjob.start(tmp_path, command, settings=settings)
        try:
            realjob.until("iterations", lambda: run.iterations_seen() >= 60, 90)
            pid = realjob.rank_pids(run.process.pid, realjob.STEADY)[1]
            os.kill(pid, signal.SIGSTOP)
            assert hook.wait_for(1, 60)
            os.kill(pid, signal.SIGCONT)
            assert hook.wait_for(2, 60)
            (tmp_path / "stop").touch()
            assert run.wait(120) == 0, run.text()
        finally:
            run.stop()
        assert sorted(state for _, state in hook.delivered) == ["closed", "open", "relieved"]
    assert len({incident for incident, _ in hook.delivered}) == 1


def test_the_job_exits_as_it_would_without_us(tmp_path: Path) -> None:
    run = realjob.start(tmp_path, [sys.executable, "-c", "import sys; sys.exit(7)"])
    assert run.wait(60) == 7
