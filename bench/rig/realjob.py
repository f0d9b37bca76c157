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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import SkipTest

import msgspec

from pacehound.cli.history import OwnedHistory
from pacehound.cli.known_jobs import known_jobs
from pacehound.errors import Unavailable
from pacehound.pages.incidents import incidents_answer
from pacehound.runtime.head.client import live_owner
from pacehound.runtime.head.owner import OWNER_FILE

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "examples" / "train_ddp.py"
FORKED = Path(__file__).with_name("forked_ranks.py")
STEADY = Path(__file__).with_name("steady_job.py")
"""A job that counts its own calls."""
PACEHOUND = (sys.executable, "-m", "pacehound")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


def torchrun(
    *script_arguments: object, ranks: int = 4, options: Sequence[str] = ("--standalone",), script: Path = SCRIPT
) -> list[str]:
    """The command of the README, with whatever port is free."""
    return [*TORCHRUN, *options, "--nproc-per-node", str(ranks), str(script), *map(str, script_arguments)]


def forked(*script_arguments: object, ranks: int = 4, script: Path = SCRIPT) -> list[str]:
    """The same ranks without torchrun and without an import of torch for each: a third of the processor time."""
    return [sys.executable, str(FORKED), str(ranks), str(script), *map(str, script_arguments)]


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
        """What `pacehound incidents --json` answers now.

        While its head is up it is asked from here: a command each second takes two fifths of a processor, and this is
        asked again and again beside jobs that need them all.
        """
        owner = live_owner(self.store)
        if owner is not None:
            with suppress(Unavailable):
                answers = OwnedHistory(owner[1])
                last = next((known.job for known in known_jobs(answers, job)), None)
                told = msgspec.json.encode(incidents_answer(*answers.incidents(last)))
                live: list[dict[str, Any]] = json.loads(told)["incidents"]
                return live
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
    if "--endpoint" not in options:
        env = {"FORKED_AFTER": str(store / OWNER_FILE), **env}
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


@contextmanager
def recording_head(folder: Path) -> Iterator[Path]:
    """A head on the store of the runs in this folder, to which they attach; where it records what it is told."""
    store, record = folder / "store", folder / "run.rec"
    up = [*PACEHOUND, "up", "--listen", "127.0.0.1:0", "--store", str(store), "--record", str(record)]
    with (folder / "head.log").open("wb") as log:
        head = subprocess.Popen(up, stdout=log, stderr=log, env=environment(), cwd="/")
    try:
        until("the head", (store / "head.json").exists, 60, 0.2)
        yield record
    finally:
        head.terminate()
        head.wait(30)


def script_steps(path: Path) -> list[float]:
    """The script's own log: seconds of each step."""
    with path.open() as file:
        return [float(row["step_time_s"]) for row in csv.DictReader(file)]


def script_step_ends_ns(path: Path) -> list[int]:
    """The script's own log: when each step ended (Unix time)."""
    with path.open() as file:
        return [int(row["time_ns"]) for row in csv.DictReader(file)]


def steady_step_ends_s(folder: Path) -> list[float]:
    """When each step of the steady job ended so far, by its own log (monotonic); a line that is being written waits."""
    log = folder / "steps"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [float(line.split()[1]) for line in lines if line.endswith("\n")]


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


def until(
    what: str,
    condition: Callable[[], Any],
    timeout_s: float,
    poll_s: float = 1.0,
    say: Callable[[], object] = lambda: "",
    living: subprocess.Popen[bytes] | None = None,
) -> Any:
    """Wait for a condition on real processes; its value. (Asking often costs the cores that the job needs.)

    What `say` says then is told with a failure: it takes too long, or `living`, that was to live on, has ended.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s: {say()}"
        assert living is None or living.poll() is None, f"before {what} the process ended: {say()}"
        time.sleep(poll_s)


@contextmanager
def unless_disturbed(disturbance: Callable[[], str]) -> Iterator[None]:
    """What is claimed in this block holds; where it does not and a control says why, the run was not measured.

    One run decides, and none is repeated. A run that was not measured is skipped, with what its control says.

    Parameters
    ----------
    disturbance
        What the machine did besides, by a control: parts of the run in which nothing was done to the job, or
        `Neighbours`. Empty where there was nothing; then a claim that does not hold has failed.

    """
    try:
        yield
    except AssertionError as wrong:
        reason = disturbance()
        if not reason:
            raise
        raise SkipTest(f"not measured: {reason}. It said: {str(wrong).splitlines()[0]}") from wrong


def measure(n_runs: int, once: Callable[[int], str]) -> None:
    """So many runs; each that was measured has to hold, and how many were not is printed. Skipped if none was."""
    disturbed = []
    for number in range(n_runs):
        try:
            said = once(number)
        except SkipTest as skipped:
            said = str(skipped)
            disturbed.append(said)
        print(f"run {number + 1}: {said}", flush=True)
    said = f"{len(disturbed)} of {n_runs} runs were disturbed"
    print(said)
    if len(disturbed) == n_runs:
        raise SkipTest(f"{said}: {disturbed[0]}")


class Neighbours:
    """The control of a run: how much of the processors was taken by what this process has not started."""

    MOST = 0.1
    """Of all processors; with more the machine is not ours."""

    def __init__(self) -> None:
        self._began = self._taken_s(), time.monotonic()

    def share(self) -> float:
        """Since the beginning, of all processors."""
        taken_s, now_s = self._taken_s(), time.monotonic()
        return (taken_s - self._began[0]) / (now_s - self._began[1]) / (os.cpu_count() or 1)

    def disturbance(self) -> str:
        """What they did, if that was too much."""
        share = self.share()
        return f"others had {share:.0%} of the processors" if share > self.MOST else ""

    @staticmethod
    def _taken_s() -> float:
        user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
        ours = 0
        for pid in [os.getpid(), *descendants(os.getpid())]:
            try:
                fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ours += sum(map(int, fields[11:15]))  # its own time and that of its children that have ended
        return (user + nice + system + irq + softirq + steal - ours) / os.sysconf("SC_CLK_TCK")


def is_as_sure_as_it_can_be(finding: Mapping[str, Any]) -> bool:
    """Its rank is a culprit, or suspected for as long as its processors have not been read since, which is said."""
    is_waiting = any("its processors have not been read" in words for words in finding["unseen"])
    return bool(finding["verdict"] == ("suspected" if is_waiting else "culprit"))


def unsteady(times: Sequence[float], parts: Sequence[slice], window: int = 20, within: float = 0.1) -> str:
    """Where the script's own log says that `window` steps took longer or shorter than the rest of their part.

    Nothing was done to the job within a part. Where a machine is not ours alone, it may be slow all the same.
    """
    for part in parts:
        steps = times[part]
        typical = statistics.median(steps)
        for first in range(len(steps) - window + 1):
            median = statistics.median(steps[first : first + window])
            if abs(median / typical - 1) > within:
                at = (part.start or 0) + first
                return (
                    f"by the script's own log steps {at} to {at + window} took {median / typical:.2f} times the usual"
                )
    return ""


def worst_difference(script: Sequence[float], ours: Sequence[float], window: int = 100) -> float:
    """The largest relative difference between the means of `window` iterations, script's log against ours."""
    worst = 0.0
    for first in range(1, min(len(script), len(ours)) - window + 1, window):
        theirs, mine = (statistics.fmean(times[first : first + window]) for times in (script, ours))
        worst = max(worst, abs(mine / theirs - 1))
    return worst
