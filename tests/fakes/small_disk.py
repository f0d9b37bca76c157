"""A file system of a few megabytes that fills up like any other; whoever mounts it is root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounts need root")
MIB = 1 << 20


def fill(folder: Path) -> Path:
    """Until not a byte is left; the file that takes the room."""
    path = folder / "somebody-elses"
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return path


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[None]:
    """Mounted at `folder`, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
