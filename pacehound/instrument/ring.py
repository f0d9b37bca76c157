"""One thread's ring: a file in shared memory that this process writes and the agent reads.

The format and its protocol are those of collector/native/ring.h. A writer never waits: a full ring overwrites its
oldest records and the reader counts them. `start_ns` of a gloo call stays 0 here; the agent computes it as the
later of the launch and the previous end on its group, because it alone sees the records of all threads.
"""

from __future__ import annotations

import mmap
import os
import platform
import struct
import sys
import threading
import time

from pacehound.instrument import layout

MAIN_CAPACITY = 16384
CALLBACK_CAPACITY = 2048

LEAST_CAPACITY = 256
"""Twenty times a second the agent reads: fewer would be written over under an ordinary load."""
_PARTS, _RINGS = 4, 8
"""As in collector/native/ring_room.h, which says why: a quarter of the file system for all rings of a run, and of
what is free there; an eighth of what is left of that for one."""

_RECORD_WORDS = layout.RECORD_BYTES // 8
_FIRST_WORD = layout.HEADER_BYTES // 8
_WRITTEN_WORD = layout.WRITTEN_OFFSET // 8

# x86 shows stores to other cores in the order in which they were made. Elsewhere two rounds through a lock stand
# between the stamp and the rest: a release before an acquire of the same lock is a full barrier.
_NEEDS_FENCE = platform.machine().lower() not in {"x86_64", "amd64", "i386", "i686"}


class Ring:
    """The ring of one thread.

    Parameters
    ----------
    path
        Its final name. The file gets it only when the header stands, so that the agent never sees half of one.
    capacity
        Records; a power of two.
    rank, local_rank, world_size, attempt
        For the header; -1 where the environment does not say.

    Raises
    ------
    OSError
        The file cannot be made, or there is no room for all of it. Its blocks are reserved here, because a write
        to a page that the file system cannot provide is a SIGBUS, which would end the training process.

    """

    __slots__ = ("_fence", "_map", "_mask", "_next", "_words", "path")

    def __init__(self, path: str, capacity: int, *, rank: int, local_rank: int, world_size: int, attempt: int) -> None:
        if capacity < 1 or capacity & (capacity - 1):
            raise ValueError(f"a ring holds a power of two of records, not {capacity}")
        if sys.byteorder != "little":
            raise OSError("rings are little-endian and this machine is not")
        size_bytes = layout.HEADER_BYTES + capacity * layout.RECORD_BYTES
        temporary = f"{path}.new"
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
            self._map = mmap.mmap(descriptor, size_bytes)
            sizes = (layout.HEADER_BYTES, layout.RECORD_BYTES, capacity)
            thread = (os.getpid(), threading.get_native_id(), process_start_ticks())
            place = (rank, local_rank, world_size, attempt, time.monotonic_ns())
            layout.HEADER.pack_into(self._map, 0, layout.MAGIC, layout.VERSION, *sizes, *thread, *place)
            os.rename(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)
        self.path = path
        self._words = memoryview(self._map).cast("Q")
        self._mask = capacity - 1
        self._next = 0
        self._fence = threading.Lock() if _NEEDS_FENCE else None

    def write(self, record: struct.Struct, *fields: object) -> None:
        """Append one record: `record` is one of the structs of `layout`, `fields` are what it packs.

        Only the thread that owns the ring calls this. A signal handler of that thread may run in the middle and
        write records of its own: each call takes its index first, so that none is written over.
        """
        index = self._next
        self._next = index + 1
        slot = index & self._mask
        words = self._words
        word = _FIRST_WORD + slot * _RECORD_WORDS
        words[word] = 2 * index + 1
        if self._fence is not None:
            self._order()
        record.pack_into(self._map, layout.HEADER_BYTES + slot * layout.RECORD_BYTES + 8, *fields)
        if self._fence is not None:
            self._order()
        words[word] = 2 * index + 2
        if self._fence is not None:
            self._order()
        words[_WRITTEN_WORD] = self._next

    def close(self) -> None:
        """Say that nothing more will be written; the file stays for the agent to read."""
        if struct.unpack_from("<I", self._map, layout.CLOSED_OFFSET) == (0,):
            struct.pack_into("<I", self._map, layout.CLOSED_OFFSET, layout.CLOSED)

    def switch_off(self) -> None:
        """Say that nothing of this process is seen from here on, for an error of ours."""
        struct.pack_into("<I", self._map, layout.CLOSED_OFFSET, layout.OFF)

    def _order(self) -> None:
        assert self._fence is not None
        for _ in range(2):
            self._fence.acquire()
            self._fence.release()


def affordable_capacity(folder: str, wanted: int) -> int:
    """The largest capacity up to `wanted` that a new ring in `folder` may have; 0: there is no room for any."""
    where = os.statvfs(folder)
    if not where.f_blocks:
        return wanted
    taken_bytes = 0
    with os.scandir(folder) as rings:
        for ring in rings:
            try:
                taken_bytes += ring.stat(follow_symlinks=False).st_size
            except OSError:  # the agent has removed it
                continue
    left_bytes = min(where.f_blocks * where.f_frsize // _PARTS - taken_bytes, where.f_bavail * where.f_frsize // _PARTS)
    while wanted and layout.HEADER_BYTES + wanted * layout.RECORD_BYTES > left_bytes // _RINGS:
        wanted //= 2
    return wanted if wanted >= LEAST_CAPACITY else 0


def process_start_ticks(pid: int | None = None) -> int:
    """When a process began, in clock ticks since boot (field 22 of its stat file); 0 where that cannot be read.

    Its second field is the program's name in parentheses, which may itself hold spaces and parentheses.
    """
    try:
        # Where a container has not mounted a /proc of its own, our number there is another one.
        with open(f"/proc/{'self' if pid is None else pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
