"""A ring writer for tests, straight from collector/native/ring.h, that can stop at any byte."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from collector.calls import rings

HANDLE = bytes(range(16))


def header_bytes(
    *,
    capacity: int,
    pid: int = 4242,
    tid: int = 4242,
    start_ticks: int = 1000,
    rank: int = 0,
    world_size: int = 2,
    attempt: int = 0,
    magic: int = rings.RING_MAGIC,
    version: int = rings.RING_VERSION,
) -> bytes:
    sizes = (rings.HEADER_BYTES, rings.RECORD_BYTES, capacity)
    writer = (pid, tid, start_ticks, rank, rank, world_size, attempt, 0)
    head = struct.pack("<QIIIIIIQiiiiQ", magic, version, *sizes, *writer)
    return head.ljust(rings.HEADER_BYTES, b"\0")


class RingFile:
    """Writes records one by one, the way ring.h says; `steps=` cuts a write short, as a kill does."""

    def __init__(
        self, folder: Path, *, name: str = "", capacity: int = 64, rank: int = 0, pid: int = 4242, **head: int
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / (name or f"{pid}-{head.get('tid', pid)}-0.ring")
        temporary = self.path.with_suffix(".tmp")
        temporary.write_bytes(
            header_bytes(capacity=capacity, rank=rank, pid=pid, **head).ljust(4096 + capacity * 128, b"\0")
        )
        temporary.rename(self.path)
        self.capacity = capacity
        self.rank = rank
        self.written = 0
        self._fd = os.open(self.path, os.O_RDWR)

    def close_file(self) -> None:
        os.close(self._fd)

    def raw(self, kind: int, body: bytes, *, handle: bytes = HANDLE, rank: int | None = None, steps: int = 4) -> None:
        """Write one record; with `steps` below 4, die after that many of the four steps of ring.h."""
        index = self.written
        slot = rings.HEADER_BYTES + index % self.capacity * rings.RECORD_BYTES
        if steps >= 1:
            os.pwrite(self._fd, struct.pack("<Q", 2 * index + 1), slot)
        if steps >= 2:
            text = struct.pack("<B3xI16s", kind, self.rank if rank is None else rank, handle) + body.ljust(96, b"\0")
            os.pwrite(self._fd, text, slot + 8)
        if steps >= 3:
            os.pwrite(self._fd, struct.pack("<Q", 2 * index + 2), slot)
        if steps >= 4:
            self.written = index + 1
            os.pwrite(self._fd, struct.pack("<Q", self.written), 128)

    def measured(self, calls: int, took_ns: int) -> None:
        os.pwrite(self._fd, struct.pack("<QQ", calls, took_ns), rings.MEASURED_OFFSET)

    def leave(self) -> None:
        os.pwrite(self._fd, struct.pack("<I", 1), 136)

    def switch_off(self) -> None:
        os.pwrite(self._fd, struct.pack("<I", rings.OFF), 136)

    def group(
        self,
        members: list[int],
        *,
        handle: bytes = HANDLE,
        created_ns: int = 1,
        world_size: int | None = None,
        is_world: bool = True,
        backend: int = 1,
        name: str = "default_pg",
        generation: int = 0,
        timeout_ms: int = 1_800_000,
    ) -> None:
        sizes = (len(members) if world_size is None else world_size, len(members))
        kind = (is_world, backend, 0, timeout_ms, name.encode())
        body = struct.pack("<QiiiBBHI68s", created_ns, generation, *sizes, *kind)
        self.raw(rings.GROUP, body, handle=handle)
        for start in range(0, len(members), 23):
            part = members[start : start + 23]
            self.raw(rings.MEMBERS, struct.pack(f"<i{len(part)}i", len(part), *part), handle=handle)

    def call(
        self,
        kind: int,
        seq: int,
        *,
        launch_ns: int = 0,
        start_ns: int = 0,
        end_ns: int = 0,
        handle: bytes = HANDLE,
        op: int = 1,
        dtype: int = 10,
        redop: int = 1,
        direction: int = 0,
        flags: int = 0,
        source: int = 1,
        peer: int = -1,
        count: int = 256,
        algorithm: int = 0,
        rank: int | None = None,
        steps: int = 4,
    ) -> None:
        what = (op, dtype, redop, direction, flags, source, 0, peer, algorithm, seq, count)
        body = struct.pack("<BBBBBBHiIqqQQQQQqq", *what, launch_ns, start_ns, end_ns, 0, 0, -1, -1)
        self.raw(kind, body, handle=handle, rank=rank, steps=steps)

    def launch(self, seq: int, launch_ns: int, **fields: object) -> None:
        self.call(rings.LAUNCH, seq, launch_ns=launch_ns, **fields)  # type: ignore[arg-type]

    def complete(self, seq: int, end_ns: int, **fields: object) -> None:
        self.call(rings.COMPLETE, seq, end_ns=end_ns, **fields)  # type: ignore[arg-type]

    def done(self, seq: int, launch_ns: int, end_ns: int) -> None:
        self.launch(seq, launch_ns)
        self.complete(seq, end_ns)

    def marker(self, step: int, time_ns: int, *, marker: int = 0, ordinal: int = 0, handle: bytes = HANDLE) -> None:
        self.raw(rings.MARKER, struct.pack("<QqII", time_ns, step, marker, ordinal), handle=handle)

    def exit(self, time_ns: int, *, failed: bool = False, text: str = "") -> None:
        self.raw(rings.EXIT, struct.pack("<QI84s", time_ns, failed, text.encode()))

    def destroy(self, *, handle: bytes = HANDLE) -> None:
        self.raw(rings.DESTROY, b"", handle=handle)
