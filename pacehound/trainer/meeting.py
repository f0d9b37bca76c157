"""Where ranks and their agent meet: a socket and a bell in `<run folder>/trainer`; used at both ends.

Who reads nothing is not written to for ever, and nobody waits for anybody: all sockets are non-blocking. The bell is a
number in shared memory that the agent counts up whenever there is something to be read, so that a rank that looks at it
in each step makes no system call.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

FOLDER, SOCKET, BELL = "trainer", "agent.sock", "bell"

MAX_LINE_BYTES = 64 * 1024
"""Several times the longest order (`pacehound.model.orders.MOST_PAYLOAD_BYTES`)."""

MAX_UNREAD_BYTES = 4 * MAX_LINE_BYTES
"""Who has not read so much has stopped reading."""

_MAX_ADDRESS_BYTES = 107
"""Of `sun_path`, which has 108 with the zero at its end."""

_READ_BYTES = 16 * 1024
_CREDENTIALS = struct.Struct("3i")


class Peer(NamedTuple):
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int


def credentials(connection: socket.socket) -> Peer:
    """The process that has connected, or that listens."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return Peer(pid, uid)


@contextlib.contextmanager
def address(folder: str) -> Iterator[str]:
    """Of the socket in a folder; by way of an open file where the path is longer than an address may be."""
    path = os.path.join(folder, SOCKET)
    if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES:
        yield path
        return
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


class Bell:
    """The number; whoever comes first makes its file.

    Raises
    ------
    OSError
        There is no such folder, or no room in it.

    """

    def __init__(self, folder: str) -> None:
        opened = os.open(os.path.join(folder, BELL), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(opened, 0, mmap.PAGESIZE)  # a page that is not there would be a SIGBUS
            self.words = memoryview(mmap.mmap(opened, mmap.PAGESIZE)).cast("Q")
        finally:
            os.close(opened)

    def ring(self) -> None:
        """There is something to be read."""
        self.words[0] = (self.words[0] + 1) & 0xFFFFFFFF


class Lines:
    """One connection that carries a JSON object per line, both ways.

    What is wrong at the other end is a `ConnectionError`: it has hung up, reads nothing, or says what cannot be read.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._unread, self._unsent = b"", b""

    def say(self, **word: Any) -> None:
        """Send one; what does not go now goes with the next, or with `flush`."""
        self._unsent += json.dumps(word, separators=(",", ":")).encode() + b"\n"
        self.flush()

    @property
    def has_unsent(self) -> bool:
        """Whether something waits for the other end to read."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send what waits, as far as it goes."""
        while self._unsent:
            try:
                sent = self.socket.send(self._unsent, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                if len(self._unsent) > MAX_UNREAD_BYTES:
                    raise ConnectionError(f"{len(self._unsent)} bytes are not read at the other end") from None
                return
            self._unsent = self._unsent[sent:]

    def take(self) -> list[dict[str, Any]]:
        """All that has come whole; what came before a hang-up is read before that is said."""
        while True:
            try:
                part = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                break
            if not part:
                if b"\n" in self._unread:
                    break
                raise ConnectionError("it has hung up")
            self._unread += part
            if len(self._unread) > MAX_UNREAD_BYTES:
                break
        *lines, self._unread = self._unread.split(b"\n")
        if len(self._unread) > MAX_LINE_BYTES:
            raise ConnectionError(f"a line of more than {MAX_LINE_BYTES} bytes")
        return [_word(line) for line in lines]

    def close(self) -> None:
        """Hang up; a copy that a fork has made is not touched."""
        with contextlib.suppress(OSError):
            self.socket.close()

    def __del__(self) -> None:
        """Without a warning of a socket that was left open: a script need not say that it ends."""
        try:
            self.socket.close()
        except Exception:  # the interpreter ends
            pass


def _word(line: bytes) -> dict[str, Any]:
    try:
        word = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConnectionError(f"a line that cannot be read: {error}") from error
    if not isinstance(word, dict):
        raise ConnectionError(f"a line that is no object: {line[:80]!r}")
    return word
