"""Builds of our C and C++: where one lies, and how it is made once, whole or not at all.

A build's folder carries the digest of what it was made from, so one of older sources is never taken for it. Builds are
made when a wheel is (setup.py), by the launcher, by `pacehound doctor` or by make, never inside a training process.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

_TIMEOUT_S = 300

PACKAGED = Path(__file__).resolve().parent / "built"
"""Where an installed wheel has its builds."""


def digest(sources: Iterable[Path], flags: Sequence[str] = ()) -> str:
    """Of everything that decides what a build becomes; 16 hexadecimal digits.

    Raises
    ------
    OSError
        A source is not there.

    """
    made = hashlib.blake2b(digest_size=8)
    for source in sources:
        made.update(source.read_bytes())
    made.update(" ".join(flags).encode())
    return made.hexdigest()


def packaged(folder: str, name: str) -> Path | None:
    """The build that came with an installed wheel; None where none of this folder did."""
    built = PACKAGED / folder / name
    return built if built.is_file() else None


def place(folder: str, name: str) -> Path:
    """Where a build that did not come with a wheel belongs: in the user's cache.

    Raises
    ------
    RuntimeError
        The user has no home, and XDG_CACHE_HOME says nothing.

    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pacehound" / folder / name


def existing(path: Callable[[], Path]) -> Path | None:
    """The build that lies where `path` says; None where it does not, or where that cannot be said."""
    try:
        built = path()
    except (OSError, RuntimeError, importlib.metadata.PackageNotFoundError):  # no sources, no home, no torch
        return None
    return built if built.is_file() else None


def program(*names: str | None) -> str | None:
    """The first of these programs that is installed."""
    return next((found for name in names if name and (found := shutil.which(name))), None)


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """`target`, made by `make` at another path and moved there whole, unless it is there already.

    Two processes may do it at once: both make one, and either is good.
    """
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            make(made)
            made.replace(target)
    return target


def run(command: Sequence[str], what: str, environ: Mapping[str, str] | None = None) -> str:
    """Run a command, and give back what it wrote to stderr.

    Parameters
    ----------
    command
        Its words.
    what
        What it does, for the error: `compiling the NCCL shim`.
    environ
        Its environment; ours where not given. It never sees the run directory of a job that is being watched.

    Raises
    ------
    RuntimeError
        It failed; says how, in its first three errors.

    """
    clean = {key: value for key, value in (environ or os.environ).items() if key != "PACEHOUND_RUN_DIR"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=clean, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()[-3:]
        raise RuntimeError(f"{what} failed (exit status {done.returncode}): {' | '.join(errors[:3])}")
    return done.stderr
