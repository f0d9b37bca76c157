"""Reads the probing frames of ranks (collector/native/frame.h; CCL-D 5.1), without waiting and without trust.

A frame is copied twice with `pread`, as rings are. A block counts where both copies name the same operation: the writer
puts other counts there only after it has taken the name away, so those of the first copy are that operation's.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from collector.calls.shared_file import SharedFile
from pacehound.errors import RejectedMessage

FRAME_MAGIC = 0x314D524648434150
FRAME_VERSION = 1
HEADER_BYTES, BLOCK_BYTES, FRAME_BYTES = 32, 144, 1184
BLOCKS = CHANNELS = 8
SEQ_BITS, PEER_BITS = 40, 20
MAX_RANK = 1 << 20
MAX_COUNT = 1 << 31
"""NCCL announces fewer transfers: a block that says more is not read."""
NO_PEER = -1
UNTOLD = -1
_UNTOLD = (1 << 64) - 1

HEADER = struct.Struct("<QHHiQIBBBB")
"""magic, version, n_channels, rank, counter, unkept, kernel_index, running, mode, reserved"""
_BLOCK = np.dtype([("communicator", "<u8"), ("operation", "<u8"), ("counts", "<u8", (CHANNELS, 2))])
_NAME = re.compile(r"([1-9]\d{0,9})-(\d{1,20})-(\d{1,7})\.frame")


class UnreadableFrame(RejectedMessage):
    """A file that is no probing frame of this version, or no longer one; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True, order=True)
class Operation:
    """Names one operation of one rank.

    Attributes
    ----------
    communicator
        The first 8 bytes of the communicator's id, as a little-endian number.
    rank
        World rank.
    seq
        Its number on the communicator; of its pair and direction where it is point-to-point.
    peer
        The other rank, as it counts within the communicator; `NO_PEER` for collectives.
    direction
        Position in `pacehound.calls.DIRECTIONS`.

    """

    communicator: int
    rank: int
    seq: int
    peer: int = NO_PEER
    direction: int = 0


Counts = tuple[tuple[int, int], ...]
"""By channel (modulo 8): network transfers sent and received; `UNTOLD` where none was announced."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The transfers of one operation that are `done`, of those that were `announced`."""

    done: Counts
    announced: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLook:
    """One look at a frame.

    Attributes
    ----------
    rank
        World rank.
    is_measured
        The counts are kept; `False` after the plugin has switched itself off.
    n_channels
        Above 8, a slot of `running` holds the sum of the channels that are equal modulo 8.
    begun, unkept
        Operations that have begun to run, and those of them for which all blocks were taken.
    running
        The counts of the operations that have not ended.

    """

    rank: int
    is_measured: bool
    n_channels: int
    begun: int
    unkept: int
    running: dict[Operation, Moved]


def parse(first: bytes, second: bytes) -> FrameLook:
    """What two copies of a frame say, `first` the earlier one.

    Raises
    ------
    UnreadableFrame
        The second copy is no frame of this version.

    """
    if len(first) != FRAME_BYTES or len(second) != FRAME_BYTES:
        raise UnreadableFrame(f"{min(len(first), len(second))} bytes, not {FRAME_BYTES}")
    magic, version, n_channels, rank, counter, unkept, _, running, mode, _ = HEADER.unpack_from(second)
    if magic != FRAME_MAGIC:
        raise UnreadableFrame(f"magic is {magic:#018x}, not {FRAME_MAGIC:#018x}: no probing frame")
    if version != FRAME_VERSION:
        raise UnreadableFrame(f"probing frame version {version}; this build reads version {FRAME_VERSION}")
    if not 0 <= rank < MAX_RANK or n_channels > 256:
        raise UnreadableFrame(f"rank {rank} and {n_channels} channels in the header: no process has these")
    found: dict[Operation, Moved] = {}
    if running:
        earlier, later = (np.frombuffer(copy, _BLOCK, offset=HEADER_BYTES) for copy in (first, second))
        is_named = (earlier["communicator"] == later["communicator"]) & (earlier["operation"] == later["operation"])
        is_named &= (later["communicator"] != 0) & ((running >> np.arange(BLOCKS)) & 1).astype(np.bool_)
        counts, is_told = earlier["counts"], earlier["counts"] != np.uint64(_UNTOLD)
        done = np.where(is_told, counts & np.uint64(0xFFFFFFFF), 0).astype(np.int64)
        announced = np.where(is_told, counts >> np.uint64(32), 0).astype(np.int64)
        is_named &= ((done <= announced) & (announced < MAX_COUNT)).all(axis=(1, 2))
        done[~is_told] = announced[~is_told] = UNTOLD
        for at in np.flatnonzero(is_named).tolist():
            operation = _operation(int(later["communicator"][at]), int(later["operation"][at]), rank)
            if operation is not None:
                found[operation] = Moved(_pairs(done[at]), _pairs(announced[at]))
    return FrameLook(
        rank=rank, is_measured=mode == 1, n_channels=n_channels, begun=counter, unkept=unkept, running=found
    )


def _pairs(counts: npt.NDArray[np.int64]) -> Counts:
    return tuple((sent, received) for sent, received in counts.tolist())


def _operation(communicator: int, packed: int, rank: int) -> Operation | None:
    """`None` where the peer and the direction contradict each other."""
    seq = packed & ((1 << SEQ_BITS) - 1)
    peer = packed >> SEQ_BITS & ((1 << PEER_BITS) - 1)
    direction = packed >> (SEQ_BITS + PEER_BITS)
    if direction == 0 and peer == 0:
        return Operation(communicator, rank, seq)
    return Operation(communicator, rank, seq, peer, direction) if direction in (1, 2) else None


class FrameReader(SharedFile):
    """One frame file.

    Parameters
    ----------
    path
        `<run folder>/frames/<pid>-<process start ticks>-<rank>.frame`.

    Attributes
    ----------
    process
        (pid, start ticks) of its writer.

    Raises
    ------
    UnreadableFrame
        The file is no probing frame, or its name does not say whose.
    OSError
        The file cannot be opened.

    """

    def __init__(self, path: Path) -> None:
        name = _NAME.fullmatch(path.name)
        if name is None:
            raise UnreadableFrame("its name is not <pid>-<process start ticks>-<rank>.frame")
        self.process = (int(name[1]), int(name[2]))
        self._rank = int(name[3])
        super().__init__(path)

    def _check(self) -> None:
        self.look()

    def look(self) -> FrameLook:
        """How far the running operations are now.

        Raises
        ------
        UnreadableFrame
            It is no frame any more, or that of another rank than its name says.

        """
        first = os.pread(self._fd, FRAME_BYTES, 0)
        look = parse(first, os.pread(self._fd, FRAME_BYTES, 0))
        if look.rank != self._rank:
            raise UnreadableFrame(f"it is named after rank {self._rank} and says that it is rank {look.rank}'s")
        return look
