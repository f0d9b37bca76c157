"""One process owns an embedded store; who it is stands in a file beside the data.

The engine refuses a second process too, but only after a second and with a message that says nothing. A lock on
`owner.json` is taken first; the kernel lets go of it when its process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from pacehound.errors import InvalidInput, StoreOwned

OWNER_FILE = "owner.json"
_ATTEMPTS = 3
_BETWEEN_ATTEMPTS_S = 0.02  # a reader of `owner_of` holds a shared lock for microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that has a store open.

    Attributes
    ----------
    pid
        On the host that wrote it.
    address
        Where it answers questions while it runs; empty when it does not.

    """

    pid: int
    address: str = ""


class Ownership:
    """Holds the lock of a store's folder until `release`.

    Raises
    ------
    StoreOwned
        Another process (or another `Store` of this one) has the folder open.
    InvalidInput
        The lock file cannot be written.

    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / OWNER_FILE
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InvalidInput(f"the store {directory} cannot be written: {error.strerror}") from error
        try:
            self._lock(directory)
        except BaseException:
            os.close(self._file)
            raise
        self.announce("")

    def _lock(self, directory: Path) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if attempt == _ATTEMPTS - 1:
                    who = _read(self._path)
                    raise StoreOwned(
                        f"the store {directory} is open in {f'process {who.pid}' if who else 'another process'}"
                        f"{f', which answers at {who.address}' if who and who.address else ''};"
                        " ask that process, wait until it has ended, or give another --store"
                    ) from error
            time.sleep(_BETWEEN_ATTEMPTS_S)

    def announce(self, address: str) -> None:
        """Write where this process answers questions about the store."""
        text = json.dumps({"pid": os.getpid(), "address": address}).encode()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text, 0)

    def release(self) -> None:
        """Let go. The file stays: removing it would let two processes lock two different files."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


def owner_of(directory: Path) -> Owner | None:
    """Who has the store in `directory` open; `None` when nobody has, or there is no store."""
    path = directory / OWNER_FILE
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path) or Owner(pid=0)
    finally:
        os.close(file)
    return None


def _read(path: Path) -> Owner | None:
    try:
        fields = json.loads(path.read_bytes())
        return Owner(pid=int(fields["pid"]), address=str(fields["address"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is being written right now; that somebody has it is all that is known
