"""A job with its head and agents, and what its ranks have written down: when each step began, and what was applied."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.rig import realjob
from bench.rig.kills import job as script
from bench.rig.loopback import Loopback

SCRIPT = Path(script.__file__)
RANKS = 3
BEGIN_WITHIN_S = 90.0
MEASURES = b"actuators.validation.process"
STEPS = np.dtype([("step", "<i8"), ("began_s", "<f8"), ("total", "<f8")])


class Field:
    """Three ranks: together on two hosts, or alone on one.

    Parameters
    ----------
    folder
        Where all of it is written.
    together
        With torch; a rank that dies then ends the job, and a new one is started in its place by `begin`.

    """

    def __init__(self, folder: Path, *, together: bool) -> None:
        self.together = together
        self.hosts = Loopback(folder, "none yet")
        self._n_jobs = 0
        self.out = folder

    def begin(self) -> None:
        """A new job, under a name of its own: others are killed beside it on the same hosts."""
        self._n_jobs += 1
        self.hosts.job = f"killed-{self.hosts.folder.name}-{self._n_jobs}"
        self.hosts.runs.clear()
        self.out = self.hosts.folder / self.hosts.job
        self.out.mkdir()
        if self.together:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            where = {"FORKED_WORLD": str(RANKS), "FORKED_MEET": f"127.0.0.1:{port}"}
            for host, first, n in (("a", 0, 2), ("b", 2, 1)):
                words = realjob.forked(self.out, "together", ranks=n, script=SCRIPT)
                self.hosts.start(host, words, env={**where, "FORKED_FIRST": str(first)})
        else:
            self.hosts.start("a", [sys.executable, str(SCRIPT), str(self.out), str(RANKS)])
        realjob.until("the job begins", lambda: self.has_passed(20), BEGIN_WITHIN_S, 0.1, say=self.printed)
        realjob.until("its agents listen", lambda: all(map(self.hosts.agent, self.hosts.runs)), BEGIN_WITHIN_S, 0.1)

    def printed(self) -> str:
        """By everybody, for who reads a failure."""
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in self.hosts.folder.glob("*.log"))

    def pid(self, rank: int) -> int:
        """Of a rank."""
        return int((self.out / f"{rank}.pid").read_text())

    def measuring(self) -> list[int]:
        """Processes beside ranks that measure for a validation."""
        below = [pid for run in self.hosts.runs.values() for pid in realjob.descendants(run.process.pid)]
        return [pid for pid in below if MEASURES in realjob.words_of(pid, "cmdline")]

    def steps(self, rank: int) -> npt.NDArray[np.void]:
        """Of a rank, all that have begun."""
        try:
            data = (self.out / f"{rank}.steps").read_bytes()
        except FileNotFoundError:
            data = b""
        return np.frombuffer(data[: len(data) // STEPS.itemsize * STEPS.itemsize], STEPS)

    def has_passed(self, step: int) -> bool:
        """Whether all ranks have begun a later step."""
        return all(len(found) > 0 and found["step"][-1] > step for found in map(self.steps, range(RANKS)))

    def applied(self, rank: int) -> list[str]:
        """Of a rank: step and order."""
        try:
            return (self.out / f"{rank}.applied").read_text().splitlines()
        except FileNotFoundError:
            return []

    def stood_still_s(self, rank: int, since_s: float) -> float:
        """For how long at the most, from a moment on; with what it stands still now."""
        began_s = self.steps(rank)["began_s"]
        after = began_s[began_s > since_s]
        return float(np.max(np.diff(after, prepend=since_s), initial=0.0))

    def computes_what_it_should(self) -> bool:
        """Whether every step has added up what an undisturbed job does."""
        if not self.together:
            return True
        for rank in range(RANKS):
            found = self.steps(rank)
            if list(found["step"]) != list(range(len(found))):
                return False
            if any(total != script.expected(int(step), RANKS) for step, _, total in found[-1:].tolist()):
                return False
        return True

    def has_ended(self) -> bool:
        """Whether every run and every rank has."""
        has_left = all(run.process.poll() is not None for run in self.hosts.runs.values())
        return has_left and not any(_is_there(self.pid(rank)) for rank in range(RANKS))

    def end(self) -> None:
        """Of the job."""
        (self.out / "stop").touch()
        for run in self.hosts.runs.values():
            run.wait(60)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
