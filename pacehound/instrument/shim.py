"""The NCCL shim: where its build lies, and how it is made (`python -m pacehound.instrument.shim`, `make native`).

It is a library of its own, in C, that the dynamic loader puts before NCCL (LD_PRELOAD). It needs a C compiler and
nothing else: no torch, no CUDA, no NCCL. A build belongs to one source, which is in its path; a wheel made where there
was a compiler brings one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pacehound.instrument import native_build

NAME = "libpacehound_nccl.so"
PLUGIN_NAME, PLUGIN_VARIABLE = "libnccl-profiler-pacehound.so", "NCCL_PROFILER_PLUGIN"
SOURCES = Path(__file__).resolve().parents[2] / "collector" / "native"
PRELOAD = "LD_PRELOAD"

# -z nodelete: threads keep destructors of ours, so the library must outlive a dlclose. initial-exec: the state of a
# thread is one load away.
FLAGS = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-Wl,-z,nodelete",
    "-Wl,-z,now",
)


def sources() -> list[Path]:
    """The C files, sorted, without those of the other libraries; none where they are not installed."""
    return sorted(path for path in SOURCES.glob("*.c") if "profiler" not in path.name and path.name != "hold.c")


def folder() -> str:
    """The name of the folder of the build of these sources."""
    return f"shim-{native_build.digest(sorted([*sources(), *SOURCES.glob('*.h')]), FLAGS)}"


def path() -> Path:
    """Where the build of these sources is, or belongs."""
    packaged = native_build.packaged(folder(), NAME)
    return packaged if packaged and _can_be_preloaded(packaged) else native_build.place(folder(), NAME)


def find() -> Path | None:
    """The build, where there is one."""
    return native_build.existing(path)


def reason_unavailable() -> str | None:
    """Why the shim cannot be used here; None where it is built or can be."""
    return None if find() is not None else reason_not_made()


def reason_not_made() -> str | None:
    """Why the shim cannot be compiled here; None where it can."""
    if not sys.platform.startswith("linux") or sys.byteorder != "little":
        return "it needs Linux on a little-endian machine"
    if not sources():
        return f"{SOURCES} holds no C files; install pacehound again"
    if compiler() is None:
        return "no C compiler; install gcc or clang, or name one in CC"
    return None


def compiler() -> str | None:
    """The C compiler that is used."""
    return native_build.program(os.environ.get("CC"), "cc", "gcc", "clang")


def build() -> Path:
    """The shim, compiled and put where `find` looks unless it is there already. Takes a second.

    Raises
    ------
    RuntimeError
        As `make`.
    ValueError
        It has no place whose path can be said in LD_PRELOAD.

    """
    return native_build.made_once(path(), make)


def make(target: Path) -> None:
    """Compile the shim at `target`, and see whether it loads.

    Raises
    ------
    RuntimeError
        It cannot be built here, the compiler failed, or a process with it does not start; says which.

    """
    reason = reason_not_made()
    if reason is not None:
        raise RuntimeError(f"the NCCL shim cannot be built: {reason}")
    command = [str(compiler()), *FLAGS, *map(str, sources()), "-o", str(target), "-ldl", "-lpthread"]
    native_build.run(command, "compiling the NCCL shim")
    # The loader only warns about what it cannot preload.
    environ = preloaded({key: value for key, value in os.environ.items() if key != PLUGIN_VARIABLE}, target)
    warned = native_build.run([sys.executable, "-S", "-c", ""], "starting a process with it", environ)
    if "cannot be preloaded" in warned:
        raise RuntimeError(f"the NCCL shim cannot be preloaded: {warned.strip()[:200]}")


def _entries(environ: Mapping[str, str]) -> list[str]:
    return [entry for entry in environ.get(PRELOAD, "").replace(" ", ":").split(":") if entry]


def is_preloaded(environ: Mapping[str, str]) -> bool:
    """Whether the shim is in this environment.

    >>> is_preloaded({"LD_PRELOAD": f"/a.so /cache/{NAME}"}), is_preloaded({})
    (True, False)
    """
    return any(Path(entry).name == NAME for entry in _entries(environ))


def _can_be_preloaded(library: Path) -> bool:
    return not any(mark in str(library) for mark in " :\t\n")


def preloaded(environ: Mapping[str, str], library: Path) -> dict[str, str]:
    """`environ` with the shim before everything else that it preloads.

    Raises
    ------
    ValueError
        The library's path cannot be said in LD_PRELOAD, whose entries end at a space or a colon.

    Examples
    --------
    >>> preloaded({"LD_PRELOAD": "/a.so"}, Path("/s/libpacehound_nccl.so"))["LD_PRELOAD"]
    '/s/libpacehound_nccl.so:/a.so'

    """
    if not _can_be_preloaded(library):
        raise ValueError(f"LD_PRELOAD takes no path with a space or a colon: {str(library)!r}; set XDG_CACHE_HOME")
    others = [entry for entry in _entries(environ) if Path(entry).name != NAME]
    return {**environ, PRELOAD: ":".join([str(library), *others])}


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build()}\n")
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"pacehound: {error}")
