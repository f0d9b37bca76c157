"""The folder that a run shares with its ranks and its agent: rings, `job.json`, `ended.json`.

It lies in shared memory where there is any. The folder is locked while its run or its agent lives; a folder
that nobody holds any more (kill -9, power) is removed by the next run of the same user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from pacehound.clock import ClockPair
from pacehound.instrument.ring import process_start_ticks
from pacehound.launcher.attempt import apart
from pacehound.model.json_documents import UNREADABLE_JSON
from pacehound.runtime.locked_folder import LockedFolder, abandoned, private_folder
from pacehound.runtime.watched import read_watched

JOB_FILE, ATTEMPT_FILE, COMMAND_FILE, ENDED_FILE = "job.json", "attempt.json", "command.json", "ended.json"
SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "run-"
_MOST_NOTES = 100
_TURN_WITHIN_S = 0.5
"""Whoever chooses an attempt holds the others up for a few files; one that was stopped meanwhile holds up nobody."""
_EMPTY_FOR_S = 600.0
"""A home made for one run may be empty for a moment while that run begins."""


class RunDir:
    """A fresh folder, mode 0700, locked by an open file that may be handed to the agent.

    Parameters
    ----------
    job, host
        Written to `job.json`, with the clock pair that maps the host's monotonic time to Unix time for this job.
    parents
        Folders to try, in order; `None`: shared memory, then the system's folder for temporary files.

    Attributes
    ----------
    path
        The folder.
    lock
        The open file.
    remarks
        What the user should hear about where it lies.

    Raises
    ------
    OSError
        There is no place for it; says why of each.

    """

    def __init__(self, job: str, host: str, parents: tuple[Path, ...] | None = None) -> None:
        clock = ClockPair.read()
        self.remarks: list[str] = []
        self._job, self._host = job, host
        self._parents = parents or (SHARED_MEMORY, Path(tempfile.gettempdir()))
        self._folder = self._make(
            self._parents,
            {"job": job, "host": host, "clock": {"monotonic_ns": clock.monotonic_ns, "unix_ns": clock.unix_ns}},
        )
        self.path, self.lock = self._folder.path, self._folder.lock

    def claim(self, wanted: int, part: str) -> tuple[int, list[int]]:
        """The attempt of this run, `wanted` where that is free; and those of runs of this job that are live beside it.

        Parameters
        ----------
        wanted
            What whoever receives the events has said.
        part
            Which part of its job this is; other parts are of the same run.

        """
        with _turn(self.path.parent):
            beside = sorted({one.attempt for one in self._live() if one.part == part})
            attempt = apart(wanted, beside)
            write_file(self.path / ATTEMPT_FILE, {"attempt": attempt, "part": part})
        return attempt, beside

    def _live(self) -> Iterator[_Claim]:
        """What other runs of this job on this host have claimed that somebody holds."""
        for home in (home for parent in self._parents for home in _homes(parent)):
            for folder in home.glob(f"{_PREFIX}*"):
                if folder == self.path:
                    continue
                try:
                    job = msgspec.json.decode((folder / JOB_FILE).read_bytes(), type=_Job)
                    claim = msgspec.json.decode((folder / ATTEMPT_FILE).read_bytes(), type=_Claim)
                except (OSError, msgspec.DecodeError):
                    continue  # it has not got so far, or goes away
                if (job.job, job.host) != (self._job, self._host):
                    continue
                if (nobodys := LockedFolder.take(folder)) is not None:
                    nobodys.release()
                    continue
                yield claim

    def is_used(self) -> bool:
        """Whether a process of the command has begun to tell what it does; what it told may have been read by now."""
        return (self.path / "rings").exists()

    def remove(self) -> None:
        """Give it back; a file that cannot be removed is left to the next run."""
        self._folder.remove()
        if self.path.parent.name != _own_name():
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()

    def _make(self, parents: tuple[Path, ...], job: Mapping[str, object]) -> LockedFolder:
        failures = []
        for parent in parents:
            try:
                home = self._home(parent)
                self.remarks += _sweep(parent)
                return LockedFolder.make(home, _PREFIX, lambda folder: write_file(folder / JOB_FILE, job))
            except OSError as error:
                failures.append(str(error))
        raise OSError(f"no folder for the rings: {'; '.join(failures)}")

    def _home(self, parent: Path) -> Path:
        try:
            return private_folder(parent / _own_name())
        except PermissionError as error:
            # Whoever made that could read our rings, or write them. A name that nobody could guess is ours alone.
            home = Path(tempfile.mkdtemp(prefix=f"{_own_name()}-", dir=parent))
            self.remarks.append(f"{error}: it is not used, this run's folder is in {home}")
            return home


def write_ended(run_dir: Path, *, exit_code: int | None, signal_number: int | None, why: str) -> None:
    """Say that the command has ended; the first word on it stands."""
    if not (run_dir / ENDED_FILE).exists():
        write_file(run_dir / ENDED_FILE, {"exit_code": exit_code, "signal": signal_number, "why": why})


def write_command(run_dir: Path, pid: int) -> None:
    """Say which process the command is."""
    write_file(run_dir / COMMAND_FILE, {"pid": pid, "start_ticks": process_start_ticks(pid)})


def read_notes(run_dir: Path) -> list[str]:
    """What the ranks have noted, each sentence once, the first few."""
    found: dict[str, None] = {}
    for path in sorted((run_dir / "notes").glob("*.json"))[:_MOST_NOTES]:
        try:
            found |= dict.fromkeys(msgspec.json.decode(path.read_bytes(), type=_Notes).notes)
        except (OSError, *UNREADABLE_JSON):
            continue
    return list(found)[:_MOST_NOTES]


class _Job(msgspec.Struct):
    job: str
    host: str = ""


class _Claim(msgspec.Struct):
    attempt: int
    part: str


class _Notes(msgspec.Struct):
    notes: list[str]


def write_file(path: Path, content: object) -> None:
    """`content` as JSON, wholly or not at all."""
    scratch = path.with_suffix(".tmp")
    try:
        scratch.write_bytes(msgspec.json.encode(content))
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise


@contextlib.contextmanager
def _turn(home: Path) -> Iterator[None]:
    """One run after the other."""
    lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline_s = time.monotonic() + _TURN_WITHIN_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.01)
        yield
    finally:
        os.close(lock)


def _homes(parent: Path) -> tuple[Path, ...]:
    return (parent / _own_name(), *parent.glob(f"{_own_name()}-*"))


def _own_name() -> str:
    return f"pacehound-{os.getuid()}"


def _sweep(parent: Path) -> list[str]:
    """Remove what runs that were killed have left, and say what became of them: they could not."""
    said = []
    for home in _homes(parent):
        with contextlib.suppress(OSError):
            found = home.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                continue
            for folder in abandoned(home, _PREFIX):
                said.append(_last_words(folder.path))
                folder.remove()
            if home.name != _own_name() and time.time() - found.st_mtime > _EMPTY_FOR_S:
                home.rmdir()
    return said


def _last_words(run_dir: Path) -> str:
    try:
        job = msgspec.json.decode((run_dir / JOB_FILE).read_bytes(), type=_Job).job
    except (OSError, *UNREADABLE_JSON):
        job = "?"
    watched = read_watched(run_dir)
    if watched is None:
        return f"job {job}: its `pacehound run` was killed, and its agent with it: from then on it was not watched"
    seen = f"{watched.calls:,} calls of {watched.ranks:,} ranks"
    return f"job {job}: its `pacehound run` was killed; its agent watched it to its end: {seen}"
