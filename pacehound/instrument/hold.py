"""The hold of a process whose calls torch's hooks see: where its build lies, how it is made, and how the hooks use it.

The trap and the times of calls are those of the NCCL shim (collector/native/shim_trap.c, shim_timing.c), in a library
of its own for processes without the shim. It is built like the shim, in a second, never inside a training process; one
that finds no build cannot be held, nor its calls on a device be timed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from pathlib import Path

from pacehound.instrument import native_build, shim

NAME = "libpacehound_hold.so"
_FILES = (
    "hold.c", "shim_process.c", "shim_real.c", "shim_ring.c", "shim_timing.c", "shim_timing_thread.c", "shim_trap.c",
)  # fmt: skip
FLAGS = (*shim.FLAGS, "-DPH_HOLD")


def sources() -> list[Path]:
    """The C files, sorted; none where they are not installed."""
    return sorted(path for name in _FILES if (path := shim.SOURCES / name).is_file())


def folder() -> str:
    """The name of the folder of the build of these sources."""
    return f"hold-{native_build.digest(sorted([*sources(), *shim.SOURCES.glob('*.h')]), FLAGS)}"


def path() -> Path:
    """Where the build of these sources is, or belongs."""
    return native_build.packaged(folder(), NAME) or native_build.place(folder(), NAME)


def find() -> Path | None:
    """The build, where there is one."""
    return native_build.existing(path)


def build() -> Path:
    """The library, compiled and put where `find` looks unless it is there already.

    Raises
    ------
    RuntimeError
        As `make`.

    """
    return native_build.made_once(path(), make)


def make(target: Path) -> None:
    """Compile the library at `target`, and see whether it loads.

    Raises
    ------
    RuntimeError
        It cannot be built here, the compiler failed, or it does not load; says which.

    """
    reason = shim.reason_not_made()
    if reason is not None:
        raise RuntimeError(f"the hold cannot be built: {reason}")
    command = [str(shim.compiler()), *FLAGS, *map(str, sources()), "-o", str(target)]
    native_build.run([*command, "-Wl,-z,defs", "-ldl", "-lpthread"], "compiling the hold")
    try:
        Hold(target)
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"the hold does not load: {error}") from error


class Hold:
    """The library, in this process."""

    def __init__(self, library: Path) -> None:
        waiting, quick = ctypes.CDLL(str(library)), ctypes.PyDLL(str(library))
        self._start, self._world = quick.pacehound_hold_start, quick.pacehound_hold_world
        self._start.argtypes, self._start.restype = (ctypes.c_int32,), ctypes.c_bool
        self._world.argtypes, self._world.restype = (ctypes.c_bool,), None
        self.asked, self.launched, self.look = (
            quick.pacehound_hold_asked,
            quick.pacehound_hold_launched,
            waiting.pacehound_hold_look,  # it may wait: without the interpreter's lock
        )
        for function, result in ((self.asked, ctypes.c_bool), (self.launched, None), (self.look, None)):
            function.argtypes, function.restype = (), result
        self.wants, self._time, self._timed, self.untimed = (
            quick.pacehound_hold_wants,
            quick.pacehound_hold_time,
            quick.pacehound_hold_timed,
            quick.pacehound_hold_untimed,
        )
        self.wants.argtypes, self.wants.restype = (ctypes.c_int64,), ctypes.c_bool
        self._time.argtypes, self._time.restype = (ctypes.c_char_p, ctypes.c_void_p), ctypes.c_void_p
        self._timed.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_bool
        self._timed.restype = self.untimed.restype = None

    def start(self, rank: int) -> bool:
        """The process has joined a group; whether it can be held from now on."""
        return bool(self._start(rank))

    def world(self, *, is_there: bool) -> None:
        """Whether there is a group of all ranks."""
        self._world(is_there)

    def time(self, launch: bytes, stream: int) -> int | None:
        """The first event of a call that a device begins, on the stream that it is launched from.

        `launch` is its record; what comes back is for `timed`, and nothing where the call is not timed.
        """
        timed: int | None = self._time(launch, stream)
        return timed

    def timed(self, timed: int, stream: int | None) -> None:
        """The call is over when this stream has come so far; without a stream nobody can say when."""
        self._timed(timed, stream or 0, stream is not None)

    def addresses(self) -> tuple[int, ...]:
        """Of `asked`, `look`, `launched`, and what times calls, for the native hooks."""
        functions = (self.asked, self.look, self.launched, self.wants, self._time, self._timed, self.untimed)
        return tuple(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions)


def load(environ: Mapping[str, str]) -> Hold | None:
    """The hold of this process; None where there is no build of it, or the NCCL shim holds it."""
    if shim.is_preloaded(environ):
        return None
    try:
        built = find()
        return None if built is None else Hold(built)
    except Exception:  # a training process goes on without it
        return None


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build()}\n")
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"pacehound: {error}")
