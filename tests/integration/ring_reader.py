"""A small reader of ring files for tests: it knows collector/native/ring.h and nothing else of ours."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

HEADER = struct.Struct("<QIIIIIIQiiiiQ")


class Record(NamedTuple):
    kind: int
    rank: int
    handle: bytes
    body: bytes


class Call(NamedTuple):
    op: int
    dtype: int
    redop: int
    direction: int
    flags: int
    source: int
    channels: int
    peer: int
    reserved: int
    seq: int
    count: int
    launch_ns: int
    start_ns: int
    end_ns: int


class RingFile(NamedTuple):
    pid: int
    rank: int
    world_size: int
    closed: int
    records: list[Record]


def read(path: Path) -> RingFile:
    data = path.read_bytes()
    header = HEADER.unpack_from(data)
    assert header[0] == int.from_bytes(b"PACHRNG1", "little")
    assert header[1:4] == (2, 4096, 128)
    capacity = header[4]
    assert len(data) == 4096 + 128 * capacity
    written, closed = struct.unpack_from("<QI", data, 128)
    records = []
    for index in range(max(0, written - capacity), written):
        offset = 4096 + 128 * (index % capacity)
        stamp, kind, rank, handle = struct.unpack_from("<QB3xI16s", data, offset)
        assert stamp == 2 * index + 2
        records.append(Record(kind, rank, handle, data[offset + 32 : offset + 128]))
    return RingFile(header[5], header[8], header[10], closed, records)


def read_all(run_dir: Path) -> list[RingFile]:
    return [read(path) for path in sorted((run_dir / "rings").glob("*.ring"))]


def call(record: Record) -> Call:
    return Call(*struct.unpack_from("<6BHiIqqQQQ", record.body))


def group(record: Record) -> dict[str, object]:
    created, generation, world_size, n_members, is_world, backend, _, timeout_ms, name = struct.unpack(
        "<QiiiBBHI68s", record.body
    )
    return {
        "created_ns": created,
        "generation": generation,
        "world_size": world_size,
        "n_members": n_members,
        "is_world": bool(is_world),
        "backend": backend,
        "timeout_ms": timeout_ms,
        "name": name.rstrip(b"\0").decode(),
    }


def members(record: Record) -> list[int]:
    n_members, *ranks = struct.unpack("<i23i", record.body)
    return list(ranks[:n_members])


def marker(record: Record) -> tuple[int, int, int, int]:
    """time_ns, step, marker, ordinal"""
    time_ns, step, kind, ordinal = struct.unpack_from("<QqII", record.body)
    return time_ns, step, kind, ordinal


def leaving(record: Record) -> tuple[int, str]:
    _, failed, text = struct.unpack("<QI84s", record.body)
    return failed, text.rstrip(b"\0").decode()
