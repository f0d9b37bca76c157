"""The folder of one run on one host: where ranks, launcher and agent meet."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pacehound.clock import ClockPair
from pacehound.errors import InvalidInput
from pacehound.model.json_documents import UNREADABLE_JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the launcher says about the job in `job.json`."""

    job: str
    clock: ClockPair
    host: str


class Ended(msgspec.Struct, frozen=True):
    """What the launcher says in `ended.json` when the command is gone."""

    exit_code: int | None = None
    signal: int | None = None
    why: str = "job ended"


class Command(msgspec.Struct, frozen=True):
    """The process that the launcher has started, in `command.json`."""

    pid: int
    start_ticks: int


class Claimed(msgspec.Struct, frozen=True):
    """Which attempt of its job the run is, in `attempt.json`; torchrun's restarts are above it."""

    attempt: int = 0


class RunFolder:
    """Names the files of a run folder.

    Parameters
    ----------
    path
        `<run dir>`.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rings = path / "rings"
        self.control = path / "control"
        self.frames = path / "frames"
        self._lock = -1

    def job(self) -> Job:
        """What the launcher said about the job.

        Raises
        ------
        InvalidInput
            The file is missing or does not say it.

        """
        path = self.path / "job.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Job)
        except OSError as error:
            raise InvalidInput(
                f"{path} cannot be read ({error.strerror}): is this a folder of `pacehound run`?"
            ) from error
        except UNREADABLE_JSON as error:
            raise InvalidInput(f"{path} does not describe a job: {error}") from error

    def ended(self) -> Ended | None:
        """What the launcher said about the end, `None` while there is nothing to be read."""
        try:
            return msgspec.json.decode((self.path / "ended.json").read_bytes(), type=Ended)
        except (OSError, *UNREADABLE_JSON):  # not there, or not wholly written yet
            return None

    def attempt(self) -> int | None:
        """What the launcher has claimed; `None` while it has not."""
        try:
            return msgspec.json.decode((self.path / "attempt.json").read_bytes(), type=Claimed).attempt
        except (OSError, msgspec.DecodeError):
            return None

    def command(self) -> Command | None:
        """Which process the launcher has started; `None` while that is not said."""
        try:
            return msgspec.json.decode((self.path / "command.json").read_bytes(), type=Command)
        except (OSError, *UNREADABLE_JSON):
            return None

    def has_ended_file(self) -> bool:
        """Whether the launcher has written about the end at all, readable or not."""
        return (self.path / "ended.json").exists()

    def lock(self) -> None:
        """Make sure that this is the only agent of this folder, until the process ends.

        Raises
        ------
        InvalidInput
            Another one is at work; the message says which.

        """
        path = self.path / "agent.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise InvalidInput(f"the agent with pid {owner} watches {self.path} already; one is enough") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def unlock(self) -> None:
        """Let another agent have the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
