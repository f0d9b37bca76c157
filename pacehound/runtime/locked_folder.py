"""Folders that nobody but this user can have made or can read, each held by a lock while somebody needs it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LOCK_FILE = "lock"
_UNNAMED = "making-"
_TRIES = 5
_FORGOTTEN_AFTER_S = 600.0
"""A folder whose making takes so long is one whose maker is gone."""


def private_folder(path: Path) -> Path:
    """`path`, made where it is missing, and readable by nobody else.

    Raises
    ------
    PermissionError
        Somebody else made it, or it is no folder (a link is none): what lies there is not to be trusted.
    OSError
        It cannot be made.

    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    found = path.lstat()
    if found.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to user {found.st_uid}")
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{path} is no folder")
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return path


class LockedFolder:
    """A folder and the lock in it, an open file that may be handed to other processes: held until all of them are gone.

    Parameters
    ----------
    path
        The folder.
    lock
        The open file, locked.

    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock

    @classmethod
    def make(cls, parent: Path, prefix: str, fill: Callable[[Path], object]) -> LockedFolder:
        """A fresh one (an `OSError` where that cannot be).

        It gets its name, which begins with `prefix`, when it is locked and `fill` has written its first content: nobody
        ever finds it without a holder.
        """
        for tries_left in reversed(range(_TRIES)):
            unnamed = Path(tempfile.mkdtemp(prefix=_UNNAMED, dir=parent))
            lock = -1
            try:
                lock = os.open(unnamed / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX)
                fill(unnamed)
                path = parent / (prefix + unnamed.name.removeprefix(_UNNAMED))
                unnamed.rename(path)
                return cls(path, lock)
            except BaseException as error:
                if lock >= 0:
                    os.close(lock)
                shutil.rmtree(unnamed, ignore_errors=True)
                # Made so slowly that somebody took it for a forgotten one.
                if not (isinstance(error, FileNotFoundError) and tries_left and parent.exists()):
                    raise
        raise AssertionError("the last try returns or raises")

    @classmethod
    def take(cls, path: Path) -> LockedFolder | None:
        """The folder at `path`, unless somebody holds it or it is none."""
        try:
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        return cls(path, lock)

    def release(self) -> None:
        """Leave it as it is, to whoever comes."""
        os.close(self.lock)

    def remove(self) -> None:
        """Give it back; a file that cannot be removed is left to whoever comes."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()


def abandoned(parent: Path, prefix: str) -> Iterator[LockedFolder]:
    """Those that nobody holds any more (kill -9, power), by name; they are held while they are looked at."""
    _sweep_unnamed(parent)
    for path in sorted(parent.glob(f"{prefix}*")):
        if (folder := LockedFolder.take(path)) is not None:
            yield folder


def _sweep_unnamed(parent: Path) -> None:
    for path in parent.glob(f"{_UNNAMED}*"):
        try:
            is_old = time.time() - path.stat().st_mtime > _FORGOTTEN_AFTER_S
        except OSError:
            continue
        if is_old:
            shutil.rmtree(path, ignore_errors=True)
