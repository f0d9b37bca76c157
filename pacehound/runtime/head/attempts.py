"""Which attempt a run of a job is: two runs of one name must not share the ids of their rows and incidents.

Every host of a run asks before it starts its command. All get the same answer while the run goes on, and the next
run gets one above everything that was ever heard of the job, so that nothing needs to be remembered between asking
and the first event: an answer of which nothing has been heard yet is simply given again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from pacehound.model.json_documents import UNREADABLE_JSON

logger = logging.getLogger(__name__)

MAX_JOBS = 1_000
"""Jobs whose attempts are remembered here; the store knows those of all others."""

OWN_SILENCE_S = 10.0
"""A host that asks again although its run has not ended, and has been silent for so long, has lost that run."""

SILENCE_S = 30.0
"""A run none of whose hosts has been heard for so long is over for everybody (hosts speak once a second)."""

FILE_NAME = "attempts.json"

COUNTED_TO = 1 << 20
"""No job has been restarted more often."""

_SINCE_S = 1_577_836_800  # 2020: the numbers of a time fit until 2054
_CLOCKS_DIFFER_S = 86_400.0


def attempt_by_time(now_s: float) -> int:
    """The attempt of a run that was not told which it is, and that begins at this Unix time."""
    return int(now_s) - _SINCE_S


def highest_attempt(now_s: float) -> int:
    """What a job may claim at this Unix time: with one higher nothing would be left to count its next runs with."""
    return max(COUNTED_TO, attempt_by_time(now_s + _CLOCKS_DIFFER_S))


class Answer(NamedTuple):
    """What a host is told that begins a run.

    Attributes
    ----------
    attempt
        Which attempt of the job it is.
    live
        The attempt that other hosts are in, where this one cannot be of it.

    """

    attempt: int
    live: int | None = None

    def document(self) -> dict[str, int]:
        """As it is sent.

        >>> Answer(0).document(), Answer(1, live=0).document()
        ({'attempt': 0}, {'attempt': 1, 'live': 0})
        """
        return {name: number for name, number in self._asdict().items() if number is not None}


class Question(msgspec.Struct, kw_only=True):
    """What is asked at `POST /v1/attempt`."""

    job: str
    host: str = ""


@dataclass(slots=True)
class _Host:
    attempt: int
    has_closed: bool
    heard_s: float


@dataclass(slots=True)
class _Run:
    first: int
    latest: int
    hosts: dict[str, _Host] = field(default_factory=dict)
    with_world: int = -1  # the latest attempt whose ranks have met


class Attempts:
    """The book of attempts; time (monotonic seconds) and what the store knows are arguments.

    A run owns the attempts from the one it was given up to the next run's: torchrun's restarts are counted on top
    of it (TORCHELASTIC_RESTART_COUNT, in the training processes). Who joins a run that has restarted is told which
    attempt that is, for the torchrun of a new host counts its restarts from 0. And who comes when the ranks of an
    attempt have met is none of them: it is of the next one, for which torchrun starts all ranks again.

    A run is over when all its hosts have said so or fallen silent. It is over for one host as soon as that host has
    said so: where every host runs `while true; do pacehound run …`, the quickest one begins the next run and the
    others follow.

    What this cannot see: a head that was started again, and is asked by a late host of a job that goes on before
    any other host of that job has been heard, takes the job for a new run.

    Examples
    --------
    >>> book = Attempts()
    >>> [book.attempt_for("j", host, 0.0, stored=None).attempt for host in ("a", "b")]
    [0, 0]
    >>> for host in ("a", "b"):
    ...     _ = book.heard("j", 0, host, closed=True, now_s=900.0)
    >>> [book.attempt_for("j", host, 901.0, stored=0).attempt for host in ("b", "a")]
    [1, 1]

    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def attempt_for(self, job: str, host: str, now_s: float, stored: int | None) -> Answer:
        """The attempt of a run of `job` that begins on `host` now.

        Parameters
        ----------
        job, host
            Who asks; an empty host is any.
        now_s
            Monotonic time.
        stored
            The highest attempt of the job that the store has; `None`: it does not know the job.

        """
        run = self._runs.get(job)
        if run is None or _is_over(run, host, now_s):
            highest = max(-1 if stored is None else stored, -1 if run is None else run.latest)
            run = _Run(first=highest + 1, latest=highest + 1)
            self._keep(job, run)
        if host and host not in run.hosts and run.with_world == run.latest:
            return Answer(run.latest + 1, run.latest)
        return Answer(run.latest)

    def heard(self, job: str, attempt: int, host: str, *, closed: bool, now_s: float, have_met: bool = False) -> bool:
        """Something of an attempt arrived from `host`; whether the attempt is new.

        `closed`: it is the host's last word; `have_met`: all ranks have joined the world.
        """
        run = self._runs.get(job)
        if run is None:
            # It was begun under another head, or without asking one.
            run = _Run(first=attempt, latest=attempt)
        elif attempt < run.first:
            return False  # the rest of an earlier run
        is_new = attempt > run.latest or not run.hosts
        run.latest = max(run.latest, attempt)
        run.with_world = max(run.with_world, attempt if have_met else -1)
        known = run.hosts.get(host)
        if known is None or attempt > known.attempt:
            run.hosts[host] = _Host(attempt, closed, now_s)
        else:
            known.heard_s = now_s
            # Between two attempts of one run a host closes the former: the run goes on.
            known.has_closed |= closed and attempt == known.attempt
        self._keep(job, run)
        return is_new

    def _keep(self, job: str, run: _Run) -> None:
        self._runs.pop(job, None)
        self._runs[job] = run  # the last to be forgotten
        while len(self._runs) > MAX_JOBS:
            del self._runs[next(iter(self._runs))]


def _is_over(run: _Run, host: str, now_s: float) -> bool:
    if not run.hosts:
        return False
    own = run.hosts.get(host)
    if own is not None and (own.has_closed or now_s - own.heard_s > OWN_SILENCE_S):
        return True
    return all(known.has_closed or now_s - known.heard_s > SILENCE_S for known in run.hosts.values())


class AttemptsFile:
    """The highest attempt of each job that was heard, beside the store.

    For who begins a run while nobody has the store open: then no run is going on, and starting a head to ask it
    would hold the command up.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._highest = _read(path)

    def note(self, job: str, attempt: int) -> None:
        """Keep it; a disk that takes nothing costs a warning."""
        self._highest[job] = max(attempt, self._highest.pop(job, -1))
        while len(self._highest) > MAX_JOBS:
            del self._highest[next(iter(self._highest))]
        scratch = self._path.with_suffix(f".{os.getpid()}")
        try:
            scratch.write_bytes(msgspec.json.encode(self._highest))
            scratch.replace(self._path)
        except OSError as error:
            logger.warning("the attempts of job %s are not noted: %s", job, error)


def next_attempt(store: Path, job: str) -> int:
    """One above the highest attempt that was noted beside a store which nobody has open; 0 for an unknown job."""
    return _read(store / FILE_NAME).get(job, -1) + 1


def _read(path: Path) -> dict[str, int]:
    try:
        found: Mapping[str, int] = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except (OSError, *UNREADABLE_JSON):
        return {}
    return dict(found)
