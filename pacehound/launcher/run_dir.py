"""The folder that a run shares with its ranks and its agent: rings, `job.json`, `ended.json`.

It lies in shared memory where there is any. The folder is locked while its run or its agent lives; a folder
that nobody holds any more (kill -9, power) is removed by the next run of the same user.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pacehound.clock import ClockPair

JOB_FILE, ENDED_FILE, LOCK_FILE = "job.json", "ended.json", "lock"
SHARED_MEMORY = Path("/dev/shm")


class RunDir:
    """A fresh folder, mode 0700, locked by an open file that may be handed to the agent.

    Parameters
    ----------
    job, host
        Written to `job.json`, with the clock pair that maps the host's monotonic time to Unix time for this job.
    parents
        Folders to try, in order; `None`: shared memory, then the system's folder for temporary files.

    """

    def __init__(self, job: str, host: str, parents: tuple[Path, ...] | None = None) -> None:
        self.path = _fresh(parents or _parents())
        self.lock = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        clock = ClockPair.read()
        _write(
            self.path / JOB_FILE,
            {"job": job, "host": host, "clock": {"monotonic_ns": clock.monotonic_ns, "unix_ns": clock.unix_ns}},
        )

    def remove(self) -> None:
        """Give it back; a file that cannot be removed is left to the next run."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def write_ended(run_dir: Path, *, exit_code: int | None, signal_number: int | None, why: str) -> None:
    """Say that the command has ended; the first word on it stands."""
    if not (run_dir / ENDED_FILE).exists():
        _write(run_dir / ENDED_FILE, {"exit_code": exit_code, "signal": signal_number, "why": why})


def _parents() -> tuple[Path, ...]:
    name = f"pacehound-{os.getuid()}"
    return (SHARED_MEMORY / name, Path(tempfile.gettempdir()) / name)


def _fresh(parents: tuple[Path, ...]) -> Path:
    failures = []
    for parent in parents:
        try:
            parent.mkdir(mode=0o700, exist_ok=True)
            if parent.stat().st_uid != os.getuid() or parent.is_symlink():
                raise PermissionError(f"{parent} belongs to somebody else")
            parent.chmod(0o700)
            _sweep(parent)
            return Path(tempfile.mkdtemp(prefix="run-", dir=parent))
        except OSError as error:
            failures.append(str(error))
    raise OSError(f"no folder for the rings: {'; '.join(failures)}")


def _sweep(parent: Path) -> None:
    for folder in parent.glob("run-*"):
        try:
            lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # being made this moment, or not ours to judge
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # in use
        finally:
            os.close(lock)


def _write(path: Path, content: Mapping[str, object]) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_bytes(msgspec.json.encode(content))
    scratch.replace(path)
