"""Clean jobs as people write them, alone and beside noise: nothing may be said of whom nothing is wrong with.

It takes an hour, so that it does not run unless it is named: `python -m bench ordinary [--runs N] [--noise KIND]`.
The frameworks are the extra `ordinary`; a job whose framework is missing is skipped, and counted.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.rig import noise, realjob

JOBS = Path(__file__).with_name("ordinary_jobs")
RUNS = 50
TIMEOUT_S = 900.0
"""Of one run, which takes half a minute where the machine is idle: it may share its processors with anything."""
FOLDER = Path("folder")
"""Stands for the folder of a run among the arguments of a script."""


@dataclass(frozen=True, slots=True)
class Job:
    """One script: its arguments (its own folder where `FOLDER` stands), its ranks, what it needs beyond torch."""

    name: str
    arguments: tuple[object, ...]
    ranks: int = 2
    needs: str = "torch"
    script: str = ""

    @property
    def path(self) -> Path:
        """The script."""
        return JOBS / f"{self.script or self.name}.py"

    @property
    def is_missing(self) -> bool:
        """Its framework is not installed."""
        return find_spec(self.needs) is None

    def command(self, folder: Path) -> list[str]:
        """As its user would start it; `mp.spawn` and Lightning start their ranks by themselves."""
        words = [str(folder) if argument is FOLDER else str(argument) for argument in self.arguments]
        if self.name in ("spawn_tutorial", "lightning_fit"):
            return [sys.executable, str(self.path), *words]
        return realjob.torchrun(*words, ranks=self.ranks, script=self.path)


ALL = (
    Job("gpt_accumulation", (300, FOLDER)),
    Job("trainer_snapshots", (100, FOLDER)),
    Job("loader_workers", (12, FOLDER)),
    Job("spawn_tutorial", (10_000,)),
    Job("lightning_fit", (12, FOLDER), needs="lightning"),
    Job("hf_trainer", (500, FOLDER), needs="transformers"),
    Job("accelerate_loop", (25, FOLDER), needs="accelerate"),
    Job("fsdp2_blocks", (500, FOLDER)),
    Job("fsdp2_blocks of 4", (250, FOLDER), ranks=4, script="fsdp2_blocks"),
    Job("bare_collectives", (25_000,)),
    Job("bare_collectives of 4", (10_000,), ranks=4, script="bare_collectives"),
    Job("steps of 0.3 s", (60, 0.3), script="slow_steps"),
    Job("steps of 2 s", (15, 2.0), script="slow_steps"),
    Job("steps of 10 s", (7, 10.0), script="slow_steps"),
)


@dataclass(frozen=True, slots=True)
class Watched:
    """What one run ended with."""

    job: Job
    noise: str
    load: float  # of the machine, the average of the last minute at its end
    iterations: int
    incidents: Sequence[dict[str, Any]]

    @property
    def named(self) -> list[int]:
        """Who was named."""
        findings = [finding for incident in self.incidents for finding in incident["findings"]]
        return sorted({rank for finding in findings for rank in finding["culprits"]})


def watched(job: Job, kind: str, folder: Path, *, records: bool = False) -> Watched:
    """Run a job beside a kind of noise, as a user does, and read what was said of it.

    With `records` its events are kept in `run.rec` of the folder, for `pacehound replay`.
    """
    own = folder / "own"
    own.mkdir(parents=True)
    if records:
        with realjob.recording_head(folder):
            return _watched(job, kind, folder, own)
    return _watched(job, kind, folder, own)


def _watched(job: Job, kind: str, folder: Path, own: Path) -> Watched:
    with noise.beside(kind):
        run = realjob.start(folder, job.command(own), "--job", job.path.stem)
        try:
            if run.wait(TIMEOUT_S) != 0:
                raise AssertionError(f"{job.name} failed; it printed:\n{run.text()}")
        finally:
            run.stop()
    (seen,) = run.sql("SELECT count() AS n FROM iterations")
    return Watched(job, kind, os.getloadavg()[0], seen["n"], run.incidents())


def plan(runs: int, only: str | None = None) -> Iterator[tuple[Job, str]]:
    """The jobs in turn; every other run is beside noise, of each kind in turn, unless it is said which."""
    present = [job for job in ALL if not job.is_missing]
    beside_noise = 0
    for number in range(runs):
        round_, place = divmod(number, len(present))
        is_quiet = (round_ + place) % 2 == 0
        kind = "none" if is_quiet else noise.KINDS[beside_noise % len(noise.KINDS)]
        beside_noise += not is_quiet
        yield present[place], only or kind


def run(runs: int = RUNS, noise: str | None = None, keep: Path | None = None) -> list[dict[str, Any]]:
    """Run them; how many opened an incident, how many named somebody, and what was skipped.

    Parameters
    ----------
    runs
        In all.
    noise
        The kind for all of them; each in turn, beside every other run, where it is not given.
    keep
        Where the recording of each run that opened an incident is left.

    """
    missing = [job for job in ALL if job.is_missing]
    for job in missing:
        print(f"ordinary: {job.name} skipped: there is no {job.needs} (pip install 'pacehound[ordinary]')")
    said = []
    for number, (job, kind) in enumerate(plan(runs, noise), 1):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            one = watched(job, kind, folder, records=keep is not None)
            if one.incidents and keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (folder / "run.rec").rename(keep / f"{number}-{job.name.replace(' ', '-')}-{kind}.rec")
        said.append(one)
        words = f"{len(one.incidents)} incidents, named {one.named}" if one.incidents else "silent"
        print(
            f"ordinary: {number} of {runs}: {job.name} beside {kind}, load {one.load:.1f}, "
            f"{one.iterations} iterations: {words}",
            file=sys.stderr,
            flush=True,
        )
        for incident in one.incidents:
            for finding in incident["findings"]:
                sentences = "; ".join(piece["words"] for piece in finding["evidence"])
                print(f"    {finding['kind']} {finding['verdict']}: {sentences}", file=sys.stderr)
    figures = {
        "runs": len(said),
        "beside noise": sum(one.noise != "none" for one in said),
        "jobs": len({one.job.name for one in said}),
        "jobs skipped": len(missing),
        "runs with an incident": sum(bool(one.incidents) for one in said),
        "runs that named somebody": sum(bool(one.named) for one in said),
    }
    rows = [{"case": "all", "figure": name, "value": value, "unit": ""} for name, value in figures.items()]
    for job in ALL:
        of_it = [one for one in said if one.job is job]
        if of_it:
            incidents = sum(bool(one.incidents) for one in of_it)
            rows.append(
                {"case": job.name, "figure": f"with an incident, of {len(of_it)}", "value": incidents, "unit": ""}
            )
    return rows
