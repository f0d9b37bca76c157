"""A real gloo job under `pacehound run`, its script unchanged: paused, let go, validated; and nobody stays held."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob
from pacehound.instrument import hold, shim
from tests.fakes.shared_store import copy_store
from tests.integration.asked_job import AskedJob
from tests.integration.test_validate import quota

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
    pytest.mark.skipif(shim.reason_not_made() is not None, reason="no C compiler"),
]
JOB = Path(__file__).with_name("held_job.py")
RANKS = 3
ENDLESS = 10_000_000
STEP_S = ("0.008", "0.012")
"""How much of a processor and how much waiting a step takes; and one of a job from which nothing is to be taken."""
EASY_STEP_S = ("0", "0.03")
WITHIN_S = 120
PROVED = 20


class WatchedJob(AskedJob):
    """A job that runs, and the commands that are given to it.

    Each of its steps takes 8 ms of a processor and waits for 12, if nothing else is said: three ranks leave a processor
    of two free, so that what they lack was taken from them on purpose.
    """

    def __init__(self, folder: Path, *settings: str, steps: int = ENDLESS, step_s: tuple[str, str] = STEP_S) -> None:
        self.folder = folder
        self.store = folder / "store"
        out = folder / "out"
        out.mkdir(parents=True)
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [
                    *self.command("run", *(word for one in settings for word in ("--set", one))),
                    "--",
                    *realjob.forked(out, steps, *step_s, ranks=RANKS, script=JOB),
                ],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=log,
            )
        self.pids: list[int] = []

    def begin(self) -> None:
        paths = [self.folder / "out" / f"{rank}.pid" for rank in range(RANKS)]
        self.until(lambda: all(path.exists() and path.read_text() for path in paths), "it begins")
        self.pids = [int(path.read_text()) for path in paths]
        self.until(lambda: self.steps() > 40, "its calls are seen")

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pacehound", words[0], "--store", str(self.store), *words[1:]]

    def say(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=WITHIN_S)

    def validated(self) -> dict[str, Any]:
        done = self.say("validate", "--json")
        assert done.stdout, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def until(self, done: Any, what: str) -> None:
        realjob.until(what, done, WITHIN_S, 0.2, lambda: (self.folder / "log").read_text()[-2000:], self.process)

    def goes_on(self) -> None:
        """New iterations reach the store."""
        before = self.steps()
        self.until(lambda: self.steps() > before + 20, "it goes on")

    def end(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        self.process.terminate()
        self.process.wait(WITHIN_S)


@contextlib.contextmanager
def running(folder: Path, step_s: tuple[str, str]) -> Iterator[WatchedJob]:
    hold.build()
    job = WatchedJob(folder, step_s=step_s)
    try:
        job.begin()
        yield job
    finally:
        job.end()


@pytest.fixture(scope="module")
def job(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedJob]:
    folder = tmp_path_factory.mktemp("easy")
    copy_store(empty_store, folder / "store")
    with running(folder, EASY_STEP_S) as job:
        yield job


@pytest.fixture
def computing_job(tmp_path: Path) -> Iterator[WatchedJob]:
    with running(tmp_path, STEP_S) as job:
        yield job


def test_a_job_is_paused_as_a_whole_and_no_incident_comes_of_it(job: WatchedJob) -> None:
    neighbours = realjob.Neighbours()
    done = job.say("pause", "--for", "3")
    assert done.returncode == 0, done.stderr
    assert f"{RANKS} ranks are held" in done.stdout
    with realjob.unless_disturbed(neighbours.disturbance):  # a command that waits for a processor lets the ranks go
        assert "the time that was asked for is over" in done.stdout
    job.goes_on()
    # What goes on already may be of before the pause: the store is told of iterations a few seconds late.
    longest = "SELECT step_time_s, planned FROM iterations WHERE step_time_s > 2.5"
    job.until(lambda: job.rows(longest), "the held iteration is stored")
    assert job.rows(f"{longest} AND planned = 'hold'"), job.rows(longest)
    assert job.rows("SELECT kinds FROM incidents WHERE has(kinds, 'hang')") == []
    (row,) = job.rows("SELECT count() AS n FROM commands WHERE what = 'hold' AND why LIKE 'pacehound pause of %'")
    assert row["n"] >= 1
    # Other work on the processors slows the ranks down, too. A command that starts beside them does, for a moment.
    with realjob.unless_disturbed(neighbours.disturbance):
        assert job.rows("SELECT kinds, excess_s FROM incidents WHERE excess_s > 1") == []


def test_a_pause_that_is_killed_holds_nobody(job: WatchedJob) -> None:
    with subprocess.Popen(job.command("pause", "--for", "60"), stdout=subprocess.PIPE, text=True) as pausing:
        assert pausing.stdout is not None
        assert "ranks are held" in pausing.stdout.readline()
        pausing.kill()
    job.goes_on()


def test_somebody_else_lets_the_ranks_go(job: WatchedJob) -> None:
    neighbours = realjob.Neighbours()
    with subprocess.Popen(job.command("pause", "--for", "60"), stdout=subprocess.PIPE, text=True) as pausing:
        assert pausing.stdout is not None
        assert "ranks are held" in pausing.stdout.readline()
        done = job.say("resume")
        with realjob.unless_disturbed(neighbours.disturbance):  # as above: they may have been let go before
            assert "its ranks go on" in done.stdout, done.stderr
            assert "somebody has let the ranks go" in pausing.stdout.read()
        assert pausing.wait(WITHIN_S) == 0
    job.goes_on()


@contextlib.contextmanager
def throttled(pid: int) -> Iterator[None]:
    """A process that gets a tenth of a processor, a quarter of what it needs."""
    with quota(0.1) as members:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        home = next(line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] in ("", "cpu"))
        members.write_text(str(pid))
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                (members.parent.parent / home.lstrip("/") / "cgroup.procs").write_text(str(pid))


def assert_the_slow_rank_is_named(job: WatchedJob, rank: int) -> None:
    with throttled(job.pids[rank]):
        answer = job.validated()
    assert [one["rank"] for one in answer["culprits"]] == [rank], answer
    assert 0 < answer["held_s"] < 30


@pytest.mark.prove  # in the suite, tests/integration/test_attended_job.py measures one
def test_the_rank_that_gets_too_little_of_a_processor_is_proven_slow_while_the_job_runs(
    computing_job: WatchedJob,
) -> None:
    assert_the_slow_rank_is_named(computing_job, 1)
    proven = "SELECT ranks, measured, ratio FROM validations WHERE verdict = 'culprit'"
    computing_job.until(lambda: computing_job.rows(proven), "it is stored")
    (row,) = computing_job.rows(proven)
    assert row["ranks"] == [1]
    assert row["ratio"] > 1.25
    computing_job.goes_on()


@pytest.mark.prove
def test_twenty_times_the_slow_rank_is_named(computing_job: WatchedJob) -> None:
    for run in range(PROVED):
        assert_the_slow_rank_is_named(computing_job, run % RANKS)
    computing_job.goes_on()
