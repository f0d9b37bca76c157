"""Gives back the code that only the start of a process with the engine needed.

The embedded engine is a library of 550 MB. Starting and migrating touch 200 MB of its code and constants, and 40 MB of
Arrow's; writing rows and answering questions need a third of that. The pages are clean and the files' own: the kernel
keeps them in its cache, where they cost nothing that somebody else needs, and maps again what is used again.
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Iterable

from pacehound.clock import Clock

logger = logging.getLogger(__name__)

_AFTER_S, _EVERY_S = 10.0, 60.0
"""The engine has started, or has taken in rows, and merges some of them; what a question needed is given back within a
minute."""
LOOKS_S = 5.0
"""So often it is worth asking whether that is due."""

_MADV_DONTNEED = 4  # Linux, <asm-generic/mman-common.h>


def code_ranges(smaps: Iterable[str]) -> list[tuple[int, int]]:
    """Where code and constants of libraries lie, as `/proc/self/smaps` says: what is not and was not written to.

    >>> lines = ("1000-3000 r--p 00000000 fe:00 1 /lib/_chdb.so", "Anonymous: 0 kB",
    ...          "3000-9000 r-xp 00002000 fe:00 1 /lib/_chdb.so", "Anonymous: 0 kB",
    ...          "9000-a000 r--p 00008000 fe:00 1 /lib/_chdb.so", "Anonymous: 4 kB",
    ...          "a000-b000 rw-p 0000a000 fe:00 1 /lib/_chdb.so", "Anonymous: 0 kB")
    >>> [(hex(begin), hex(end)) for begin, end in code_ranges(lines)]
    [('0x1000', '0x3000'), ('0x3000', '0x9000')]
    """
    found = []
    mapped: tuple[int, int] | None = None
    for line in smaps:
        fields = line.split(maxsplit=5)
        if not fields[0].endswith(":"):
            mapped = None
            if len(fields) == 6 and ".so" in fields[5] and fields[1] in ("r-xp", "r--p"):
                begin, _, end = fields[0].partition("-")
                mapped = int(begin, 16), int(end, 16)
        elif mapped is not None and fields[0] == "Anonymous:" and fields[1] == "0":
            found.append(mapped)  # relocated pages are this process's own, and would be lost
    return found


def give_back_code() -> None:
    """Unmap what is mapped of it; what is needed again is mapped again by itself."""
    try:
        with open("/proc/self/smaps") as smaps:
            ranges = code_ranges(smaps)
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError) as error:
        logger.debug("code that is not needed stays mapped: %s", error)
        return
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for begin, end in ranges:
        madvise(begin, end - begin, _MADV_DONTNEED)


class UnneededCode:
    """Gives it back ten seconds behind what was written or asked last; while that goes on, each minute or so.

    To find it takes 15 to 35 ms, so nobody looks where nothing was used. It is a process's: any of its threads may ask.

    Parameters
    ----------
    clock
        Says when.

    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._given_s = clock.monotonic_s() - _EVERY_S
        self._due_s = clock.monotonic_s() + _AFTER_S

    def is_used(self) -> None:
        """Rows are written, or something is asked: where that is seldom nothing of it is needed in between."""
        self._due_s = min(self._clock.monotonic_s(), self._given_s + _EVERY_S) + _AFTER_S

    def give_back_when_due(self) -> None:
        """To be called every now and then."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s:
            self._given_s, self._due_s = now_s, math.inf
            give_back_code()
