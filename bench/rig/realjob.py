"""Runs real torch.distributed jobs under `pacehound run` and reads what was said about them."""

from __future__ import annotations

import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacehound.cli.history import OwnedHistory
from pacehound.errors import Unavailable
from pacehound.runtime.head.client import live_owner

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "examples" / "train_ddp.py"
STEADY = Path(__file__).with_name("steady_job.py")
"""A job that counts its own calls."""
PACEHOUND = (sys.executable, "-m", "pacehound")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


def torchrun(
    *script_arguments: object, ranks: int = 4, options: Sequence[str] = ("--standalone",), script: Path = SCRIPT
) -> list[str]:
    """The command of the README, with whatever port is free."""
    return [*TORCHRUN, *options, "--nproc-per-node", str(ranks), str(script), *map(str, script_arguments)]


@dataclass
class Run:
    """A job that is being watched, in a process of its own."""

    process: subprocess.Popen[bytes]
    store: Path
    output: Path

    def wait(self, timeout_s: float) -> int:
        """Its exit status."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"the job did not end within {timeout_s} s; it printed:\n{self.text()}") from None

    def stop(self) -> None:
        """End whatever is left of it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def text(self) -> str:
        """What it has printed."""
        return self.output.read_text(errors="replace")

    def incidents(self, job: str | None = None) -> list[dict[str, Any]]:
        """What `pacehound incidents --json` answers now."""
        extra = ["--job", job] if job else []
        answer = pacehound("incidents", "--json", "--store", str(self.store), *extra)
        found: list[dict[str, Any]] = json.loads(answer)["incidents"]
        return found

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Rows of a statement, by `pacehound sql`."""
        answer = json.loads(pacehound("sql", "--json", "--store", str(self.store), statement))
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    def live_sql(self, statement: str) -> list[dict[str, Any]]:
        """Rows of a statement as its head answers now, none while it is not up.

        For questions asked again and again: starting a command each time would slow down the job that is measured.
        """
        owner = live_owner(self.store)
        if owner is None:
            return []
        try:
            rows: list[dict[str, Any]] = OwnedHistory(owner[1]).sql(statement).to_pylist()
        except Unavailable:
            return []
        return rows

    def iterations_seen(self) -> int:
        """How many its head has stored so far."""
        return sum(int(row["seen"]) for row in self.live_sql("SELECT count() AS seen FROM iterations"))


def environment(extra: Mapping[str, str] = {}) -> dict[str, str]:
    """The environment of a user's shell: this interpreter first on the path, the project importable."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **extra}


def pacehound(*arguments: str, timeout_s: float = 60.0) -> str:
    """A command of ours; what it prints on stdout."""
    done = subprocess.run(
        [*PACEHOUND, *arguments], capture_output=True, timeout=timeout_s, env=environment(), cwd="/", check=False
    )
    assert done.returncode == 0, f"pacehound {' '.join(arguments)}: {done.stderr.decode()}"
    return done.stdout.decode()


def start(
    folder: Path,
    command: Sequence[str],
    *options: str,
    settings: Sequence[str] = (),
    prefix: Sequence[str] = (),
    cwd: Path | None = None,
    name: str = "run",
    env: Mapping[str, str] = {},
) -> Run:
    """`pacehound run … -- command`, its output in a file."""
    store, output = folder / "store", folder / f"{name}.log"
    sets = [word for setting in settings for word in ("--set", setting)]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*prefix, *PACEHOUND, "run", "--store", str(store), *options, *sets, "--", *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment(env),
            cwd=cwd or folder,
        )
    return Run(process, store, output)


def script_steps(path: Path) -> list[float]:
    """The script's own log: seconds of each step."""
    with path.open() as file:
        return [float(row["step_time_s"]) for row in csv.DictReader(file)]


def descendants(pid: int) -> list[int]:
    """Every process below another one, by /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def words_of(pid: int, what: str) -> list[bytes]:
    """The words of a process's `cmdline` or `environ`; none when it is gone."""
    try:
        return (Path("/proc") / str(pid) / what).read_bytes().split(b"\0")
    except OSError:
        return []


def agents(run: Run) -> list[int]:
    """The agent processes of a run."""
    return [pid for pid in descendants(run.process.pid) if b"agent" in words_of(pid, "cmdline")]


def rank_pids(runner: int, script: Path = SCRIPT) -> dict[int, int]:
    """Pid of each rank of a script among the descendants of `pacehound run`."""
    found: dict[int, int] = {}
    for pid in descendants(runner):
        rank = next((int(word[5:]) for word in words_of(pid, "environ") if word.startswith(b"RANK=")), None)
        if rank is not None and any(word.endswith(script.name.encode()) for word in words_of(pid, "cmdline")):
            found.setdefault(rank, pid)
    return found


def until(what: str, condition: Any, timeout_s: float, poll_s: float = 1.0) -> Any:
    """Wait for a condition on real processes; its value. (Asking often costs the cores that the job needs.)"""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        time.sleep(poll_s)


MOST_ATTEMPTS = 3


def attempts(folder: Path) -> Iterator[Path]:
    """A folder for each attempt at an undisturbed run, for the machine is not ours alone; who has one breaks off."""
    for number in range(MOST_ATTEMPTS):
        attempt = folder / f"attempt-{number}"
        attempt.mkdir(parents=True)
        yield attempt


def is_steady(times: Sequence[float], window: int = 20, within: float = 0.1) -> bool:
    """No `window` steps took longer or shorter than the others by more: nothing but the job was at work.

    By the script's own log. Where that machine is not ours alone, a job in which nothing is wrong may be slow.
    """
    typical = statistics.median(times)
    medians = [statistics.median(times[first : first + window]) for first in range(len(times) - window + 1)]
    return all(abs(median / typical - 1) <= within for median in medians)


def worst_difference(script: Sequence[float], ours: Sequence[float], window: int = 100) -> float:
    """The largest relative difference between the means of `window` iterations, script's log against ours."""
    worst = 0.0
    for first in range(1, min(len(script), len(ours)) - window + 1, window):
        theirs, mine = (statistics.fmean(times[first : first + window]) for times in (script, ours))
        worst = max(worst, abs(mine / theirs - 1))
    return worst
