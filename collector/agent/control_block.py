"""The control block of one process, from the controller's side (collector/native/control.h).

A controller arms the trap of every rank's process, watches their answers, and ends the hold; the process trusts
nothing of it and ends the hold by itself where the controller does not (collector/native/shim_trap.c). It may also have
calls timed on the device for a while (collector/native/shim_timing.c).
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from pacehound.errors import RejectedMessage

MAGIC = 0x314C544348434150
VERSION = 2
BLOCK_BYTES = 4096
HEADER = struct.Struct("<QIIQi")
"""magic, version, pid, process_start_ticks, rank"""

WORLD_LAUNCHED, UNNAMED = 64, 72
ANSWERS_ID, PHASE, WHY, ARRIVED_NS, DRAINED_NS, RELEASED_NS = 128, 136, 140, 144, 152, 160
TRAP_ID, ROUND, HEARTBEAT_NS, COMMAND, HOLD_MS, TIMEOUT_MS = 256, 264, 272, 280, 284, 288
TIMING_CAP_PPM, TIMING_ID, TIMING_UNTIL_NS, TIMING_ROUNDS, TIMING_EVERY = 292, 296, 304, 312, 316
TIMING_ANSWERS_ID, TIMING_PHASE, TIMING_WHY, TIMING_EVERY_NOW = 384, 392, 396, 400
TIMED, UNTIMED, EVENT_NS = 408, 416, 424

MOST_CAP = 0.1
"""A tenth of a thread's time: what nobody would call cheap."""


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


class TimingPhase(IntEnum):
    """How far a process is with the timing of calls that it was asked for."""

    OFF = 0
    STARTING = 1
    ON = 2
    OVER = 3


class TimingWhy(IntEnum):
    """Why calls are not timed any more, or never were."""

    NONE = 0
    COMMAND = 1
    TIME = 2
    COST = 3
    NO_CUDA = 4
    CUDA = 5
    MEMORY = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What a process answers about the timing of its calls.

    Attributes
    ----------
    phase, why
        Of the request that was asked about; `OFF` while the process has not seen it.
    every
        Of so many stretches of rounds one is timed now: more than was asked for where that cost too much.
    timed, untimed
        Calls since the process began whose times are known, and whose turn it was in vain.
    event_ns
        What event calls have taken of the threads that call NCCL, since the process began.

    """

    phase: TimingPhase
    why: TimingWhy
    every: int
    timed: int
    untimed: int
    event_ns: int


class UnreadableControl(RejectedMessage):
    """A file that is no control block of this version; the message says what is wrong with it."""


def unnamed_calls(path: Path) -> tuple[int, int]:
    """What only looking at a control block tells: when its process began (clock ticks), and its unnamed calls.

    Read, not mapped: a file that is cut short while it is mapped kills its reader.

    Raises
    ------
    UnreadableControl
        The file is no control block of this version.
    OSError
        It cannot be read.

    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        head = os.pread(descriptor, UNNAMED + 8, 0)
    finally:
        os.close(descriptor)
    if len(head) < UNNAMED + 8:
        raise UnreadableControl(f"{path.name} has {len(head)} bytes, too few for a control block")
    magic, version, _, start_ticks, _ = HEADER.unpack_from(head)
    if (magic, version) != (MAGIC, VERSION):
        raise UnreadableControl(f"{path.name} has magic {magic:#x} and version {version}: no control block of ours")
    return start_ticks, int.from_bytes(head[UNNAMED:], "little")


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

    def time_calls(self, timing_id: int, *, until_ns: int, rounds: int = 1, every: int = 1, cap: float = 0.002) -> None:
        """Ask the process to time calls on the device (the profiling phase of Falcon 4.3).

        A call with sequence number `s` is timed where `s // rounds % every == 0`: with the same request all ranks
        time the same rounds. It ends by itself at `until_ns`, after ten minutes, on an error of CUDA, or when event
        calls take more than ten times `cap`.

        Parameters
        ----------
        timing_id
            Never used before, not 0.
        until_ns
            Monotonic time.
        rounds, every
            So many rounds in a row, of every so many such stretches. All rounds where not given.
        cap
            The share of a thread's time that event calls may take; above it half as many stretches are timed, again and
            again.

        Raises
        ------
        ValueError
            An argument cannot be.

        """
        if timing_id < 1 or rounds < 1 or every < 1 or not 0 < cap <= MOST_CAP:
            raise ValueError(
                f"timing {timing_id}: {rounds} rounds of every {every} at a cap of {cap} cannot be; all are 1 or more, "
                f"and the cap is above 0 and at most {MOST_CAP}"
            )
        self._long[TIMING_UNTIL_NS // 8] = until_ns
        self._short[TIMING_ROUNDS // 4] = rounds
        self._short[TIMING_EVERY // 4] = every
        self._short[TIMING_CAP_PPM // 4] = max(round(cap * 1e6), 1)
        self._long[TIMING_ID // 8] = timing_id

    def stop_timing(self) -> None:
        """No call is timed any more; what is on its way still ends with its times."""
        self._long[TIMING_ID // 8] = 0

    def timing(self, timing_id: int) -> Timing:
        """What the process says about this request."""
        phase, why = TimingPhase.OFF, TimingWhy.NONE
        if self._long[TIMING_ANSWERS_ID // 8] == timing_id:
            said_phase, said_why = self._short[TIMING_PHASE // 4], self._short[TIMING_WHY // 4]
            if said_phase in set(TimingPhase) and said_why in set(TimingWhy):
                phase, why = TimingPhase(said_phase), TimingWhy(said_why)
        return Timing(
            phase=phase,
            why=why,
            every=self._short[TIMING_EVERY_NOW // 4],
            timed=self._long[TIMED // 8],
            untimed=self._long[UNTIMED // 8],
            event_ns=self._long[EVENT_NS // 8],
        )

    def close(self) -> None:
        """Let go of the file."""
        self._long.release()
        self._short.release()
        self._map.close()
