"""What the processes of a run of the tests share: a folder, and locks in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def folder_of_the_run(own: Path) -> Path:
    """Of all its processes; `own` is the base folder of this one."""
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@contextmanager
def locked(file: Path, *, with_others: bool = False) -> Iterator[None]:
    """Alone, or with others who say the same; who is killed lets go."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH if with_others else fcntl.LOCK_EX)
        yield
