"""Starts the measured jobs, bare and watched, within what is left of the time."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.rig.realjob import Run, environment, pacehound, script_steps, start, torchrun, until

SCRIPT = Path(__file__).with_name("shared_gpu_job.py")
MODEL = Path(__file__).with_name("ddp_gpu_job.py")
WARM_UP_STEPS = 30


class OutOfTime(Exception):
    """The time is over; what is left is not measured."""


@dataclass
class Watched:
    """A job under `pacehound run` that goes on until it is told to stop."""

    run: Run
    name: str
    log: Path
    stop: Path

    def rows(self, statement: str) -> list[dict[str, Any]]:
        return self.run.sql(statement)

    def value(self, statement: str) -> float:
        """The only number of an answer."""
        ((number,),) = (row.values() for row in self.rows(statement))
        return float(number)

    def command(self, *words: str, timeout_s: float = 90.0) -> str:
        """A command of ours about this job, as a person would type it."""
        store = ["--store", str(self.run.store), "--job", self.name]
        return pacehound(words[0], *store, *words[1:], timeout_s=timeout_s)

    def end(self) -> dict[str, int]:
        """Stop it; how many collectives each rank has made, on how many ranks."""
        self.stop.touch()
        code = self.run.wait(90)
        if code != 0:
            raise RuntimeError(f"the job ended with {code}: {self.run.text()[-1500:]}")
        made: dict[str, int] = json.loads(Path(f"{self.log}.calls").read_text())
        return made


@dataclass
class Rig:
    """One measurement of this machine.

    Parameters
    ----------
    folder
        For stores and logs.
    env
        Of the jobs.
    until_s
        Monotonic; after that nothing new begins.
    ranks, backend, arguments
        Of the jobs.

    """

    folder: Path
    env: Mapping[str, str]
    until_s: float
    ranks: int = 4
    backend: str = "nccl"
    arguments: tuple[str, ...] = ()
    _numbers: Any = field(default_factory=itertools.count)
    _runs: list[Run] = field(default_factory=list)

    def left_s(self) -> float:
        return self.until_s - time.monotonic()

    def stop_all(self) -> None:
        """End what a stage has left."""
        for run in self._runs:
            run.stop()
        self._runs.clear()

    def _command(self, log: Path, *arguments: object) -> list[str]:
        if self.left_s() < 20:
            raise OutOfTime
        own = ("--backend", self.backend, "--times", log, *self.arguments, *arguments)
        return torchrun(*own, ranks=self.ranks, script=SCRIPT)

    def step_s(self, steps: int, *routes: str, is_watched: bool = True, env: Mapping[str, str] = {}) -> float:
        """The median step of a job of so many, bare or watched."""
        name = f"cost-{next(self._numbers)}"
        folder = self.folder / name
        folder.mkdir()
        log = folder / "steps.csv"
        command = self._command(log, "--steps", steps)
        if is_watched:
            run = start(folder, command, *_routes(routes), "--job", name, env={**self.env, **env})
            self._runs.append(run)
            code, said = run.wait(min(120, self.left_s())), run.text
        else:
            done = subprocess.run(
                command, env=environment({**self.env, **env}), capture_output=True, text=True, timeout=120, check=False
            )
            code, said = done.returncode, lambda: done.stderr
        if code != 0:
            raise RuntimeError(f"a job ended with {code}: {said()[-1500:]}")
        return statistics.median(script_steps(log)[WARM_UP_STEPS:])

    def watched(self, *routes: str, arguments: tuple[object, ...] = (), env: Mapping[str, str] = {}) -> Watched:
        """A job that goes on, once its first iterations are stored."""
        return self._begun(_routes(routes), env, lambda log, stop: self._command(log, "--stop", stop, *arguments))

    def model(self, every_steps: int, *routes: str, arguments: tuple[object, ...], env: Mapping[str, str]) -> Watched:
        """A model under DDP, the operations of one step in so many recorded."""

        def command(_: Path, stop: Path) -> list[str]:
            own = ("--backend", self.backend, "--stop", stop, *arguments)
            return torchrun(*own, ranks=self.ranks, script=MODEL)

        return self._begun([*_routes(routes), "--set", f"ops.every_steps={every_steps}"], env, command)

    def _begun(
        self, options: list[str], env: Mapping[str, str], command_of: Callable[[Path, Path], list[str]]
    ) -> Watched:
        name = f"live-{next(self._numbers)}"
        folder = self.folder / name
        folder.mkdir()
        log, stop = folder / "steps.csv", folder / "stop"
        run = start(folder, command_of(log, stop), *options, "--job", name, env={**self.env, **env})
        self._runs.append(run)

        def has_begun() -> bool:
            if run.process.poll() is not None:
                raise RuntimeError(f"the job ended with {run.process.returncode}: {run.text()[-1500:]}")
            if "starting it again" in run.text():  # a head or an agent that this machine lacks something for
                raise RuntimeError(f"part of Pacehound ended: {run.text()[:1500]}")
            return run.iterations_seen() > 50

        until("iterations in the store", has_begun, min(90, self.left_s()), 1.0, run.text)
        return Watched(run, name, log, stop)


def _routes(routes: tuple[str, ...]) -> list[str]:
    return [word for route in routes for word in ("--nccl", route)]
