"""The state of a head's operators in one file, which is whole or not there.

A head of fixed size (magic, format, when it was written, the number of the first message that it does not cover, the
number of parts), then the parts: lengths and a checksum, name, content. What has not changed is copied from the file
before, so that a state of which most is quiet costs a copy and no encoding.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pacehound.errors import InvalidInput

MAGIC, FORMAT = b"PACEHOUND-STATE", 1
MOST_BYTES = 1024 * 1024 * 1024
_HEAD = struct.Struct("<15sHqqI")
_PART = struct.Struct("<HII")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a file holds.

    Attributes
    ----------
    written_ns
        Unix time.
    first
        The number of the first message that it does not cover.
    parts
        By name.

    """

    written_ns: int
    first: int
    parts: Mapping[str, bytes] = field(repr=False)


class StateFile:
    """Written anew each time, beside the old one.

    Parameters
    ----------
    path
        Where it is.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, tuple[int, int]] = {}  # part -> where it begins in the file, how long it is

    def write(self, changed: Mapping[str, bytes], names: Collection[str], *, first: int, written_ns: int) -> None:
        """Write a state.

        Parameters
        ----------
        changed
            Parts that are new, or not as they are in the file.
        names
            All parts; the others are taken from the file.
        first, written_ns
            As in `State`.

        Raises
        ------
        OSError
            The file is as it was.

        """
        scratch = self._path.with_suffix(".new")
        places: dict[str, tuple[int, int]] = {}
        kept = [name for name in names if name not in changed]
        with scratch.open("wb") as file:
            file.write(_HEAD.pack(MAGIC, FORMAT, written_ns, first, len(names)))
            if kept:
                with self._path.open("rb") as before:
                    for name in kept:
                        begin, size = self._places[name]
                        before.seek(begin)
                        places[name] = file.tell(), size
                        file.write(before.read(size))
            for name in names:
                if name in changed:
                    part = _frame(name, changed[name])
                    places[name] = file.tell(), len(part)
                    file.write(part)
        scratch.replace(self._path)
        self._places = places

    def remove(self) -> None:
        """There is none any more."""
        self._path.unlink(missing_ok=True)
        self._places = {}


def read_state(path: Path) -> State | None:
    """What a file holds; `None` where there is none.

    Raises
    ------
    InvalidInput
        It is damaged, or of another format.

    """
    try:
        with path.open("rb") as file:
            return _read(file, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"the state {path} cannot be read: {error.strerror}") from error


def _frame(name: str, content: bytes) -> bytes:
    encoded = name.encode()
    return _PART.pack(len(encoded), len(content), zlib.crc32(content, zlib.crc32(encoded))) + encoded + content


def _read(file: BinaryIO, path: Path) -> State:
    head = file.read(_HEAD.size)
    if not head.startswith(MAGIC):
        raise InvalidInput(f"{path} is no state of a head: it begins with {head[:20]!r}")
    if len(head) < _HEAD.size:
        raise InvalidInput(f"the state {path} is damaged: it ends after {len(head)} bytes")
    _, number, written_ns, first, n_parts = _HEAD.unpack(head)
    if number != FORMAT:
        raise InvalidInput(f"the state {path} has format {number}; this version reads {FORMAT}")
    parts: dict[str, bytes] = {}
    for index in range(n_parts):
        lengths = file.read(_PART.size)
        if len(lengths) < _PART.size:
            raise InvalidInput(f"the state {path} is damaged: {n_parts} parts are promised, {index} are there")
        name_bytes, content_bytes, checksum = _PART.unpack(lengths)
        if content_bytes > MOST_BYTES:
            raise InvalidInput(f"the state {path} is damaged: part {index} claims {content_bytes} bytes")
        encoded = file.read(name_bytes)
        content = file.read(content_bytes)
        if zlib.crc32(content, zlib.crc32(encoded)) != checksum:
            raise InvalidInput(f"the state {path} is damaged: part {index} ({encoded[:80]!r}) has another checksum")
        parts[encoded.decode()] = content
    return State(written_ns=written_ns, first=first, parts=parts)
