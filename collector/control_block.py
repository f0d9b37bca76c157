"""The control block of one process, from the controller's side (collector/native/control.h).

A controller arms the trap of every rank's process, watches their answers, and ends the hold; the process trusts
nothing of it and ends the hold by itself where the controller does not (collector/native/shim_trap.c).
"""

from __future__ import annotations

import mmap
import os
import struct
from enum import IntEnum
from pathlib import Path

from pacehound.errors import RejectedMessage

MAGIC = 0x314C544348434150
VERSION = 1
BLOCK_BYTES = 4096
HEADER = struct.Struct("<QIIQi")
"""magic, version, pid, process_start_ticks, rank"""

WORLD_LAUNCHED, UNNAMED = 64, 72
ANSWERS_ID, PHASE, WHY, ARRIVED_NS, DRAINED_NS, RELEASED_NS = 128, 136, 140, 144, 152, 160
TRAP_ID, ROUND, HEARTBEAT_NS, COMMAND, HOLD_MS, TIMEOUT_MS = 256, 264, 272, 280, 284, 288


class Command(IntEnum):
    """What the controller wants of a trap that it has armed."""

    RELEASE = 0
    GATHERING = 1
    VALIDATING = 2


class Phase(IntEnum):
    """What a process answers."""

    NONE = 0
    ARMED = 1
    HELD = 2
    RELEASED = 3
    REFUSED = 4


class Why(IntEnum):
    """Why a hold has ended, or never was."""

    NONE = 0
    COMMAND = 1
    DEAD = 2
    LATE = 3
    LIMIT = 4
    PASSED = 5
    NO_WORLD = 6
    NO_LIMIT = 7
    ABORT = 8


class UnreadableControl(RejectedMessage):
    """A file that is no control block of this version; the message says what is wrong with it."""


class ControlBlock:
    """One process's control block, mapped. Several controllers at once are one too many.

    Parameters
    ----------
    path
        `<run folder>/control/<pid>.control`.

    Raises
    ------
    UnreadableControl
        The file is no control block.
    OSError
        It cannot be opened.

    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_size < BLOCK_BYTES:
                raise UnreadableControl(f"{path.name} has {os.fstat(descriptor).st_size} bytes, not {BLOCK_BYTES}")
            self._map = mmap.mmap(descriptor, BLOCK_BYTES)
        finally:
            os.close(descriptor)
        # Whole words at a time: the process reads while we write.
        self._long = memoryview(self._map).cast("Q")
        self._short = memoryview(self._map).cast("I")
        magic, version, self.pid, self.start_ticks, self.rank = HEADER.unpack_from(self._map)
        if (magic, version) != (MAGIC, VERSION):
            raise UnreadableControl(f"{path.name} has magic {magic:#x} and version {version}: no control block of ours")

    @property
    def world_launched(self) -> int:
        """Collectives that the process has launched on the communicator of all ranks."""
        return self._long[WORLD_LAUNCHED // 8]

    @property
    def unnamed(self) -> int:
        """Calls on communicators whose making the shim did not see."""
        return self._long[UNNAMED // 8]

    def answer(self, trap_id: int) -> tuple[Phase, Why]:
        """What the process says about this trap; `NONE` while it has not seen it.

        Phase and reason are read between two looks at the id, so that both are of one trap.
        """
        for _ in range(3):
            if self._long[ANSWERS_ID // 8] != trap_id:
                break
            phase, why = self._short[PHASE // 4], self._short[WHY // 4]
            if self._long[ANSWERS_ID // 8] == trap_id and phase in set(Phase) and why in set(Why):
                return Phase(phase), Why(why)
        return Phase.NONE, Why.NONE

    @property
    def arrived_ns(self) -> int:
        """When the process was held, monotonic; 0 before."""
        return self._long[ARRIVED_NS // 8]

    @property
    def drained_ns(self) -> int:
        """When its device had done all it was given; 0 while it has not."""
        return self._long[DRAINED_NS // 8]

    @property
    def released_ns(self) -> int:
        """When the hold ended; 0 before."""
        return self._long[RELEASED_NS // 8]

    def arm(self, trap_id: int, round_number: int, *, hold_ms: int, timeout_ms: int, now_ns: int) -> None:
        """Ask the process to stop at its first call after a round.

        Parameters
        ----------
        trap_id
            Never used before, not 0.
        round_number
            The sequence number of a collective on the world communicator, at least one iteration ahead.
        hold_ms
            The hold may last so long.
        timeout_ms
            The smallest process-group or heartbeat timeout of the job; a quarter of it bounds the hold, too.
        now_ns
            Monotonic time: the first heartbeat.

        """
        self._long[ROUND // 8] = round_number
        self._short[HOLD_MS // 4] = hold_ms
        self._short[TIMEOUT_MS // 4] = timeout_ms
        self._short[COMMAND // 4] = Command.GATHERING
        self._long[HEARTBEAT_NS // 8] = now_ns
        self._long[TRAP_ID // 8] = trap_id

    def beat(self, now_ns: int) -> None:
        """The controller lives; without it the hold ends after 2 s."""
        self._long[HEARTBEAT_NS // 8] = now_ns

    def command(self, command: Command) -> None:
        """Go on to validation, or end the hold."""
        self._short[COMMAND // 4] = command

    def close(self) -> None:
        """Let go of the file."""
        self._long.release()
        self._short.release()
        self._map.close()
