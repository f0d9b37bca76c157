"""A run as a file: every message in log order, so that it can be replayed anywhere.

A recording is the magic and version, then frames, each a fixed head (lengths, partition, offset) followed by topic,
key and value. Nothing is ever rewritten: a process that dies while it records leaves whole frames and at most one
torn one at the end, which the reader reports and does not hide.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pacehound.bus import Message
from pacehound.errors import InvalidInput

MAGIC = b"PACEHOUND-REC"
VERSION = 1
_VERSION = struct.Struct("<H")
_FRAME = struct.Struct("<HHIIq")  # bytes of topic, key and value; partition; offset
_MAX_VALUE_BYTES = 64 * 1024 * 1024


class RecordingWriter:
    """Appends messages to a new recording; flushed by `flush` and `close`, not per message.

    Raises
    ------
    InvalidInput
        The file exists already: a recording is never overwritten.

    """

    def __init__(self, path: Path) -> None:
        try:
            self._file: BinaryIO = path.open("xb")
        except FileExistsError as error:
            raise InvalidInput(f"{path} exists already; give --record a new name") from error
        except OSError as error:
            raise InvalidInput(f"cannot write a recording to {path}: {error.strerror}") from error
        self._file.write(MAGIC + _VERSION.pack(VERSION))

    def write(self, message: Message) -> None:
        """Append one message (an `OSError`, such as a full disk, reaches the caller)."""
        topic, key = message.topic.encode(), message.key.encode()
        head = _FRAME.pack(len(topic), len(key), len(message.value), message.partition, message.offset)
        self._file.write(head + topic + key + message.value)

    def flush(self) -> None:
        """Hand everything written so far to the system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


class Recording:
    """Reads a recording, in order.

    Attributes
    ----------
    torn_bytes
        After iteration: bytes at the end that are no whole frame (the recorder died while it wrote).

    Raises
    ------
    InvalidInput
        The file is missing, is no recording, or has a version that this build does not read.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.torn_bytes = 0
        try:
            with path.open("rb") as file:
                start = file.read(len(MAGIC) + _VERSION.size)
        except OSError as error:
            raise InvalidInput(f"cannot read the recording {path}: {error.strerror}") from error
        if not start.startswith(MAGIC) or len(start) < len(MAGIC) + _VERSION.size:
            raise InvalidInput(f"{path} is no recording of Pacehound (it does not begin with {MAGIC.decode()})")
        (version,) = _VERSION.unpack(start[len(MAGIC) :])
        if version != VERSION:
            raise InvalidInput(f"{path} is a recording of version {version}; this build reads version {VERSION}")

    def __iter__(self) -> Iterator[Message]:
        self.torn_bytes = 0
        with self._path.open("rb") as file:
            file.seek(len(MAGIC) + _VERSION.size)
            while head := file.read(_FRAME.size):
                if len(head) < _FRAME.size:
                    self.torn_bytes = len(head)
                    return
                topic_bytes, key_bytes, value_bytes, partition, offset = _FRAME.unpack(head)
                wanted = topic_bytes + key_bytes + value_bytes
                if value_bytes > _MAX_VALUE_BYTES:
                    raise InvalidInput(f"{self._path} is damaged: a frame claims a value of {value_bytes} bytes")
                body = file.read(wanted)
                if len(body) < wanted:
                    self.torn_bytes = len(head) + len(body)
                    return
                try:
                    topic, key = body[:topic_bytes].decode(), body[topic_bytes : topic_bytes + key_bytes].decode()
                except UnicodeDecodeError as error:
                    raise InvalidInput(f"{self._path} is damaged: a topic or key is no UTF-8 ({error})") from error
                yield Message(
                    topic=topic,
                    key=key,
                    partition=partition,
                    offset=offset,
                    value=body[topic_bytes + key_bytes :],
                )
