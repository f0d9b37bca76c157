"""One process owns an embedded store; which one stands in a file beside the data.

The engine refuses a second process too, but only after a second and with a message that says nothing. A lock on
`owner` is taken first; the kernel lets go of it when its process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pacehound.errors import InvalidInput, StoreOwned

OWNER_FILE = "owner"


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
        path = directory / OWNER_FILE
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InvalidInput(f"the store {directory} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            who = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            if not isinstance(error, BlockingIOError):
                raise InvalidInput(f"the store {directory} cannot be locked: {error.strerror}") from error
            raise StoreOwned(
                f"the store {directory} is open in {f'process {who}' if who else 'another process'};"
                " ask that process, wait until it has ended, or give another --store"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let go. The file stays: removing it would let two processes lock two different files."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1
