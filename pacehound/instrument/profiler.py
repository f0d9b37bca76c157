"""NCCL's profiler plugin: where its build lies, and how it is made (`python -m pacehound.instrument.profiler`).

A library of its own beside the shim's, of the files with `profiler` in their names and those that both need. NCCL loads
it when NCCL_PROFILER_PLUGIN says so, and takes the newest interface of it that both know.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pacehound.instrument import native_build, shim

NAME = shim.PLUGIN_NAME
VARIABLE = shim.PLUGIN_VARIABLE
SHARED = ("attempt_mark.c", "blake2b.c", "shim_process.c", "shim_ring.c")
FLAGS = (*shim.FLAGS, "-DPH_PROFILER")
KERNELS = "PACEHOUND_NCCL_KERNELS"
"""Set to 1, kernel events are asked for also of versions that are reported to be slow with them."""
_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def sources() -> list[Path]:
    """The C files, sorted; none where they are not installed."""
    own = shim.SOURCES.glob("*profiler*.c")
    return sorted([*own, *(path for name in SHARED if (path := shim.SOURCES / name).is_file())])


def folder() -> str:
    """The name of the folder of the build of these sources."""
    return f"profiler-{native_build.digest(sorted([*sources(), *shim.SOURCES.glob('*.h')]), FLAGS)}"


def path() -> Path:
    """Where the build of these sources is, or belongs."""
    return native_build.packaged(folder(), NAME) or native_build.place(folder(), NAME)


def find() -> Path | None:
    """The build, where there is one."""
    return native_build.existing(path)


def reason_unavailable() -> str | None:
    """Why the plugin cannot be used here; None where it is built or can be."""
    return None if find() is not None else _reason_not_made()


def _reason_not_made() -> str | None:
    if not sources():
        return f"{shim.SOURCES} holds no C files; install pacehound again"
    return shim.reason_not_made()


def build() -> Path:
    """The plugin, compiled and put where `find` looks unless it is there already. Takes a second.

    Raises
    ------
    RuntimeError
        As `make`.

    """
    return native_build.made_once(path(), make)


def make(target: Path) -> None:
    """Compile the plugin at `target`, and see whether it loads.

    Raises
    ------
    RuntimeError
        It cannot be built here, the compiler failed, or it does not load; says which.

    """
    reason = _reason_not_made()
    if reason is not None:
        raise RuntimeError(f"the NCCL profiler plugin cannot be built: {reason}")
    libraries = ["-Wl,-z,defs", "-ldl", "-lpthread", "-lm"]
    command = [str(shim.compiler()), *FLAGS, *map(str, sources()), "-o", str(target), *libraries]
    native_build.run(command, "compiling the NCCL profiler plugin")
    refusal(target, 0)


def refusal(library: Path, version: int) -> str | None:
    """Why the plugin does no work with a version of NCCL, None where it does; said by the plugin itself.

    Parameters
    ----------
    library
        The build.
    version
        As `ncclGetVersion` gives it: 10000 * major + 100 * minor + patch, 0 where it is not known.

    Raises
    ------
    RuntimeError
        The library does not load.

    """
    return _said(library, "pacehound_profiler_refusal", version)


def without_ends(library: Path, version: int) -> str | None:
    """Why the plugin does not see when calls of a version of NCCL end, None where it does; as `refusal`."""
    return _said(library, "pacehound_profiler_no_kernels", version)


def _said(library: Path, function: str, version: int) -> str | None:
    program = "import ctypes,sys; f=ctypes.CDLL(sys.argv[1])[sys.argv[2]]; f.restype=ctypes.c_char_p;"
    program += "print((f(int(sys.argv[3])) or b'').decode())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, str(library), function, str(version)], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"the NCCL profiler plugin does not load: {done.stderr.strip()[-200:]}")
    return done.stdout.strip() or None


def installed_nccl() -> int | None:
    """The version of the NCCL package that is installed beside us, as `ncclGetVersion` would say it."""
    for name in _PACKAGES:
        try:
            parts = re.match(r"(\d+)\.(\d+)\.(\d+)", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue
        if parts is not None:
            major, minor, patch = map(int, parts.groups())
            return 10000 * major + 100 * minor + patch
    return None


def is_somebody_elses(value: str) -> bool:
    """Whether NCCL_PROFILER_PLUGIN names a plugin that is not ours.

    >>> is_somebody_elses("inspector"), is_somebody_elses(""), is_somebody_elses(f"/cache/{NAME}")
    (True, False, False)
    """
    return bool(value) and Path(value).name != NAME


def preloaded(environ: Mapping[str, str], library: Path) -> dict[str, str]:
    """`environ` with the plugin in it.

    Raises
    ------
    ValueError
        The user has a plugin there: NCCL loads one only, and theirs is not ours to replace.

    """
    theirs = environ.get(VARIABLE, "")
    if is_somebody_elses(theirs):
        raise ValueError(
            f"{VARIABLE}={theirs} is set, NCCL loads one profiler plugin only, and yours is left alone; "
            f"unset it, or use --nccl shim"
        )
    return {**environ, VARIABLE: str(library)}


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build()}\n")
    except (RuntimeError, OSError) as error:
        sys.exit(f"pacehound: {error}")
