"""Three plain Python processes and the real agent: orders reach the script; whoever is killed, ranks never differ."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob
from pacehound.runtime.head.client import live_owner

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("made_store")]
SCRIPT = Path(__file__).with_name("ordered_script.py")
RANKS = 3
WITHIN_S = 120
JOB = "plain"


class Run:
    """`pacehound run` of the script."""

    def __init__(self, folder: Path) -> None:
        self.store, self.out = folder / "store", folder / "out"
        self.out.mkdir()
        self.log = folder / "log"
        script = [sys.executable, str(SCRIPT), str(self.out), str(RANKS)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command("run", "--job", JOB, "--", *script), stdout=log, stderr=log, env=dict(os.environ)
            )
        self.pids: list[int] = []

    def begin(self) -> None:
        self.until(lambda: all(self.step(rank) > 5 for rank in range(RANKS)), "the ranks begin")
        self.pids = [int((self.out / f"{rank}.pid").read_text()) for rank in range(RANKS)]
        environ = Path(f"/proc/{self.pids[0]}/environ").read_bytes().split(b"\0")
        self.run_dir = Path(
            next(one for one in environ if one.startswith(b"PACEHOUND_RUN_DIR=")).partition(b"=")[2].decode()
        )
        self.until(lambda: (self.run_dir / "trainer/agent.sock").exists(), "the agent listens")
        self.until(lambda: live_owner(self.store) is not None, "the head listens")

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pacehound", words[0], "--store", str(self.store), *words[1:]]

    def ordering(self, kind: str, *words: str) -> subprocess.Popen[str]:
        command = self.command("order", "--job", JOB, "--json", *words, kind)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def order(self, kind: str, *words: str) -> tuple[dict[str, Any], str]:
        out, err = self.ordering(kind, *words).communicate(timeout=WITHIN_S)
        assert out, err
        answer: dict[str, Any] = json.loads(out)
        return answer, err

    def step(self, rank: int) -> int:
        try:
            return int((self.out / f"{rank}.step").read_text() or -1)
        except FileNotFoundError:
            return -1

    def applied(self, rank: int) -> list[str]:
        return (self.out / f"{rank}.applied").read_text().splitlines()

    def agent_pid(self) -> int:
        return int((self.run_dir / "agent.lock").read_text())

    def until(self, done: Callable[[], bool], what: str) -> None:
        realjob.until(what, done, WITHIN_S, 0.05, lambda: self.log.read_text()[-2000:], self.process)

    def end(self) -> None:
        for rank in range(RANKS):
            try:
                os.kill(int((self.out / f"{rank}.pid").read_text()), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, ValueError):
                continue
        self.process.terminate()
        self.process.wait(WITHIN_S)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    running = Run(tmp_path)
    try:
        running.begin()
        yield running
    finally:
        running.end()


def test_an_order_is_applied_by_all_ranks_at_one_step_and_a_refusal_says_why(run: Run) -> None:
    answer, _ = run.order("microbatches", "--payload", "[3, 5, 4]")
    assert (answer["outcome"], [one["state"] for one in answer["ranks"]]) == ("applied", ["applied"] * RANKS)
    assert [run.applied(rank) for rank in range(RANKS)] == [[f"{answer['step']} microbatches {n}"] for n in (3, 5, 4)]
    unknown, told = run.order("collect")
    assert unknown["outcome"] == "kept"
    assert "nobody has applied it: rank" in told
    assert "its script takes no 'collect', only: microbatches" in told
    wrong, _ = run.order("microbatches", "--payload", "[3]")
    assert "not a number for each rank" in wrong["reason"]
    sql = run.command("sql", "--json", "SELECT what, why FROM commands WHERE what = 'confirm'")
    rows = json.loads(subprocess.run(sql, capture_output=True, text=True, timeout=WITHIN_S, check=True).stdout)["rows"]
    # It is said again each second until all ranks have applied it, so once or, on a busy machine, more often.
    assert {(what, why.startswith("pacehound order of ")) for what, why in rows} == {("confirm", True)}


@pytest.mark.prove
@pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
def test_ranks_of_torch_agree_by_themselves_and_are_those_that_their_rings_say(tmp_path: Path) -> None:
    out, store = tmp_path / "out", tmp_path / "store"
    out.mkdir()
    pacehound = [sys.executable, "-m", "pacehound"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = str(Path(__file__).with_name("ordered_ddp_job.py"))
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(
            [*pacehound, "run", "--store", str(store), "--", *torchrun, script, str(out)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
        )
    try:
        answer: dict[str, Any] = {}
        deadline_s = time.monotonic() + 2 * WITHIN_S
        while answer.get("outcome") != "applied":  # the job is not watched before its first calls were seen
            assert time.monotonic() < deadline_s, (answer, (tmp_path / "log").read_text()[-2000:])
            ordering = [*pacehound, "order", "--store", str(store), "--json", "collect"]
            done = subprocess.run(ordering, capture_output=True, text=True, timeout=2 * WITHIN_S)
            answer = json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}
            time.sleep(0.2)
        assert answer["step"] % 4 == 0
        assert [one["step"] for one in answer["ranks"]] == [answer["step"]] * 2
        assert {(out / f"{rank}.applied").read_text() for rank in range(2)} == {f"{answer['step']}\n"}
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(WITHIN_S)


@pytest.mark.parametrize("victim", ["agent", pytest.param("rank", marks=pytest.mark.prove)])
def test_whoever_is_killed_the_others_apply_it_together_or_not_at_all(run: Run, victim: str) -> None:
    """A hundred kills at every step are in test_kills.py."""
    ordering = run.ordering("microbatches", "--payload", "[1, 2, 3]")
    after_s = random.Random(victim).uniform(2, 9)
    time.sleep(after_s)  # the moment is what is drawn
    live = list(range(RANKS))
    os.kill(run.agent_pid() if victim == "agent" else run.pids[live.pop()], signal.SIGKILL)
    out, _ = ordering.communicate(timeout=WITHIN_S)
    # Further than the step that may have been chosen (APPLY_AHEAD_S in actuators/control), where nobody says which.
    enough = max(run.step(rank) for rank in live) + (50 if out else 600)
    run.until(lambda: all(run.step(rank) > enough for rank in live), "it goes on")
    found = {tuple(line.split()[0] for line in run.applied(rank)) for rank in live}
    assert len(found) == 1, f"{victim} after {after_s:.2f} s: {[run.applied(rank) for rank in live]}"
