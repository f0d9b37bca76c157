"""The native hooks: where their build lies, and how it is made.

A build is tied to one torch, one Python and one source, and all three are in its path. It is made by the launcher
or by `pacehound doctor`, never inside a training process, which only looks whether it is there.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "pacehound_c10d_hooks"
_SOURCE = Path(__file__).resolve().parent / "native" / "c10d_hooks.cpp"
_RING_H = Path(__file__).resolve().parents[2] / "collector" / "native" / "ring.h"
_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
_BUILD_TIMEOUT_S = 300


def path() -> Path:
    """Where the build for this Python and its torch belongs.

    Raises
    ------
    OSError
        The sources are not there.
    importlib.metadata.PackageNotFoundError
        There is no torch.

    """
    digest = hashlib.blake2b(_SOURCE.read_bytes() + _RING_H.read_bytes(), digest_size=8).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = f"{importlib.metadata.version('torch')}-{sys.implementation.cache_tag}-{digest}"
    return cache / "pacehound" / folder / f"{NAME}{_SUFFIX}"


def find() -> Path | None:
    """The build, where there is one."""
    try:
        built = path()
    except (OSError, RuntimeError, importlib.metadata.PackageNotFoundError):
        return None
    return built if built.is_file() else None


def reason_unavailable() -> str | None:
    """Why the native hooks cannot be built here; None where they can, or are."""
    try:
        importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "torch is not installed for this Python"
    for source in (_SOURCE, _RING_H):
        if not source.is_file():
            return f"{source} is missing; install pacehound again"
    if find() is not None:
        return None
    if _compiler() is None:
        return "no C++ compiler; install g++ or clang++, or name one in CXX"
    import sysconfig

    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return f"the headers of Python are missing ({sysconfig.get_path('include')}/Python.h); install python3-dev"
    return None


def build() -> Path:
    """Compile the native hooks, try whether they load, and put them where `find` looks. Takes a quarter of a minute.

    Raises
    ------
    RuntimeError
        They cannot be built here, the compiler failed, or torch refuses to load the result; says which.

    """
    reason = reason_unavailable()
    if reason is not None:
        raise RuntimeError(reason)
    target = path()
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        _run([*_command(), str(_SOURCE), "-o", str(made), *_libraries()], "compiling the native hooks")
        _run([sys.executable, "-c", _TRY, str(made)], "loading the native hooks")
        made.replace(target)
    return target


_TRY = f"""
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location({NAME!r}, sys.argv[1])
importlib.util.module_from_spec(spec)
"""


def _compiler() -> str | None:
    return next(
        (found for name in (os.environ.get("CXX"), "g++", "clang++") if name and (found := shutil.which(name))), None
    )


def _command() -> list[str]:
    import sysconfig

    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths(), sysconfig.get_path("include"), str(_RING_H.parent)]
    compiler = _compiler()
    assert compiler is not None
    return [
        compiler,
        "-O2",
        "-std=c++20",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-DUSE_DISTRIBUTED",
        "-DUSE_C10D_GLOO",
        f"-DTORCH_EXTENSION_NAME={NAME}",
        *(f"-I{folder}" for folder in includes),
    ]


def _libraries() -> list[str]:
    from torch.utils import cpp_extension

    folders = [f"-L{folder}" for folder in cpp_extension.library_paths()]
    return [*folders, "-ltorch_python", "-ltorch_cpu", "-ltorch", "-lc10"]


def _run(command: list[str], what: str) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "PACEHOUND_RUN_DIR"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, env=environ)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()[-3:]
        raise RuntimeError(f"{what} failed (exit status {done.returncode}): {' | '.join(errors[:3])}")
