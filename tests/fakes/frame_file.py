"""A writer of probing frames for tests, straight from collector/native/frame.h."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from collector.calls import frames
from tests.fakes.ring_file import HANDLE

TOTAL = 100
UNTOLD = (1 << 64) - 1


def block(
    seq: int, counts: Mapping[int, tuple[int, int]], *, handle: bytes = HANDLE, peer: int = 0, direction: int = 0
) -> bytes:
    """One block; what is done by channel, of `TOTAL`; the others are untold."""
    operation = seq | peer << frames.SEQ_BITS | direction << (frames.SEQ_BITS + frames.PEER_BITS)
    flat = [n for channel in range(frames.CHANNELS) for n in counts.get(channel, (-1, -1))]
    words = [UNTOLD if n == -1 else TOTAL << 32 | n for n in flat]
    return struct.pack("<8sQ16Q", handle[:8], operation, *words)


def frame_bytes(
    *blocks: bytes,
    rank: int = 0,
    n_channels: int = 8,
    unkept: int = 0,
    running: int | None = None,
    mode: int = 1,
    magic: int = frames.FRAME_MAGIC,
    version: int = frames.FRAME_VERSION,
) -> bytes:
    """A whole frame with these blocks, all of which run unless `running` says otherwise."""
    bits = (1 << len(blocks)) - 1 if running is None else running
    head = frames.HEADER.pack(magic, version, n_channels, rank, len(blocks) + unkept, unkept, 0, bits, mode, 0)
    return (head + b"".join(blocks)).ljust(frames.FRAME_BYTES, b"\0")


def write_frame(run_dir: Path, *blocks: bytes, rank: int = 0, pid: int | None = None, **head: int) -> Path:
    """The frame of one rank, as the process of `tests.fakes.agent_run` would have it."""
    path = run_dir / "frames" / f"{100 + rank if pid is None else pid}-1000-{rank}.frame"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(frame_bytes(*blocks, rank=rank, **head))
    return path
