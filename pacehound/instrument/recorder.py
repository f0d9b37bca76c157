"""What one process writes: a ring per thread, made when that thread first has something to say.

Nothing here raises into the script. The first error of ours switches the instrument off for this process, is
noted in `<run folder>/notes/<pid>.json`, and training goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

from pacehound.instrument.ring import CALLBACK_CAPACITY, MAIN_CAPACITY, Ring, affordable_capacity, process_start_ticks

MAX_RINGS = 1024
"""More threads than this in one process cannot all be ours to serve; it bounds the space that rings take."""


class Recorder:
    """The rings of one process.

    Parameters
    ----------
    run_dir
        The run folder; rings go into its `rings`.
    environ
        Read once: job, attempt, rank, local rank, world size.

    Attributes
    ----------
    native
        The native hooks, where they are loaded.
    hold
        What stops this process where a controller asks for it; None where it cannot be held.
    is_on
        False before the first group, after a fork and after an error of ours: nothing is written then.

    """

    def __init__(self, run_dir: str, environ: Mapping[str, str]) -> None:
        self.run_dir = run_dir
        self.job = environ.get("PACEHOUND_JOB", "")
        # The run's own, and torchrun's restarts within it.
        self.attempt = integer(environ, "PACEHOUND_ATTEMPT", 0) + integer(environ, "TORCHELASTIC_RESTART_COUNT", 0)
        self.rank = integer(environ, "RANK", -1)
        self.local_rank = integer(environ, "LOCAL_RANK", -1)
        self.world_size = integer(environ, "WORLD_SIZE", -1)
        self.native: Any = None
        self.hold: Any = None
        self.is_on = False
        self.is_broken = False
        self._notes: list[str] = []
        self._said_by = 0
        self._forget()

    def start(self) -> None:
        """The process has joined a group: from now on it writes. Not after an error of ours."""
        self.is_on = not self.is_broken
        if self.is_on and self.native is not None:
            self.make_folder()
            self.native.start(
                self.run_dir, self.rank, self.local_rank, self.world_size, self.attempt, process_start_ticks()
            )

    def after_fork(self) -> None:
        """In a forked child: the rings are the parent's. It writes again when it joins a group of its own."""
        self.is_on = False
        self._forget()

    def write(self, record: struct.Struct, kind: int, handle: bytes, *fields: object) -> None:
        """Append a record to the calling thread's ring; with the native hooks, to the one that they write."""
        if self.native is not None:
            self.native.write(record.pack(kind, self.rank & 0xFFFFFFFF, handle, *fields))
            return
        ring = self._rings.get(threading.get_native_id())
        if ring is None:
            ring = self._open()
        ring.write(record, kind, self.rank & 0xFFFFFFFF, handle, *fields)

    def retire(self) -> None:
        """All groups are gone: the rings of other threads are written no more (those threads were theirs).

        The native hooks close a ring when its thread ends.
        """
        self._look_at_native()
        own = threading.get_native_id()
        for thread in [thread for thread in list(self._rings) if thread != own]:
            self._rings.pop(thread).close()

    def close(self) -> None:
        """The process leaves in good order."""
        self._look_at_native()
        if self.native is not None:
            self.native.stop()
            self.native.close()
        for ring in list(self._rings.values()):
            ring.close()

    def fail(self, where: str, error: BaseException) -> None:
        """Switch off for the life of this process, and say why where the agent can read it."""
        self.is_on = False
        if self.native is not None:
            self.native.stop()
            self.native.switch_off()
        for ring in list(self._rings.values()):
            ring.switch_off()
        if not self.is_broken:
            self.is_broken = True
            self.note(f"instrument switched off in {where}: {type(error).__name__}: {error}")

    def note(self, text: str) -> None:
        """Leave a sentence in `<run folder>/notes/<pid>.json`; where even that fails, nobody is told.

        Where there is no run folder (its run is over, or a container has files of its own) none is made: nobody would
        read it, nor remove it.
        """
        try:
            self._notes.append(text)
            folder = os.path.join(self.run_dir, "notes")
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
            path = os.path.join(folder, f"{os.getpid()}.json")
            try:
                with open(f"{path}.new", "w", encoding="utf-8") as file:
                    json.dump({"pid": os.getpid(), "rank": self.rank, "notes": self._notes}, file)
                os.replace(f"{path}.new", path)
            except BaseException:
                os.unlink(f"{path}.new")
                raise
        except Exception:  # a full disk or a missing folder: there is no place left to complain
            pass

    def say_that_hooks_write(self) -> None:
        """Once per process: an empty file tells the shim and the plugin, where they are loaded.

        Not a variable of the environment: setting one moves what a `getenv` on another thread is reading.
        """
        if self._said_by == os.getpid():
            return
        self._said_by = os.getpid()
        try:
            if os.path.isdir(self.run_dir):
                folder = os.path.join(self.run_dir, "hooks")
                os.makedirs(folder, exist_ok=True)
                path = f"{folder}/{os.getpid()}-{process_start_ticks()}"
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self.note(f"the NCCL shim, if it is loaded, does not know of the hooks: {error}")

    def make_folder(self) -> str:
        """The folder of the rings, made where the run folder is there without it."""
        folder = os.path.join(self.run_dir, "rings")
        if not os.path.isdir(folder) and os.path.isdir(self.run_dir):
            os.makedirs(folder, exist_ok=True)
        return folder

    def _look_at_native(self) -> None:
        error = self.native.error() if self.native is not None else ""
        if error:
            self.fail("a native hook", RuntimeError(error))

    def _open(self) -> Ring:
        own = threading.get_native_id()
        if own != os.getpid() and (left := self._left_by_an_ended_thread()) is not None:
            self._rings[own] = left
            return left
        if len(self._rings) >= MAX_RINGS:
            raise OSError(f"{len(self._rings)} threads of this process have a ring already")
        folder = self.make_folder()
        capacity = affordable_capacity(folder, MAIN_CAPACITY if own == os.getpid() else CALLBACK_CAPACITY)
        if not capacity:
            raise OSError(f"the rings of this run have their share of {folder}")
        ring = Ring(
            # Its time tells it from those of a process that has begun anew in this one's place (`os.execv`).
            os.path.join(folder, f"{os.getpid()}-{own}-{time.monotonic_ns()}.ring"),
            capacity,
            rank=self.rank,
            local_rank=self.local_rank,
            world_size=self.world_size,
            attempt=self.attempt,
        )
        # Not in a threading.local: the interpreter makes and drops the state of a thread that C++ owns (gloo's)
        # around each callback, and a threading.local with it. And by the kernel's id: the interpreter's is given to
        # another thread as soon as its own has ended.
        self._rings[own] = ring
        return ring

    def _left_by_an_ended_thread(self) -> Ring | None:
        """A ring that nobody writes any more: libraries make a thread for a moment, and a file for each adds up."""
        if not os.path.exists(f"/proc/self/task/{threading.get_native_id()}"):
            return None  # there is no /proc that could say
        for thread in list(self._rings):
            if not os.path.exists(f"/proc/self/task/{thread}"):
                ring = self._rings.pop(thread, None)
                if ring is not None:
                    return ring
        return None

    def _forget(self) -> None:
        self._rings: dict[int, Ring] = {}


def integer(environ: Mapping[str, str], name: str, default: int) -> int:
    """A variable of the environment that is a whole number; the default where it is none."""
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        return default
