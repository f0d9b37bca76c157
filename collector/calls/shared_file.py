"""A file that a training process writes and we read, without waiting and without trust."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path


class SharedFile(ABC):
    """One open file; who derives from it says what it must be.

    Raises
    ------
    OSError
        The file cannot be opened.

    """

    def __init__(self, path: Path) -> None:
        # No link leads us elsewhere, and a pipe of that name does not hold us up.
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @abstractmethod
    def _check(self) -> None:
        """Raise when it is not what it must be; the file is closed then."""
