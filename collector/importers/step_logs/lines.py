"""The lines of a log file, plain or compressed, whatever else a job has written between them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from pacehound.errors import InvalidInput

MAX_LINE_BYTES = 1 << 20
"""What is longer than this is no line of a step-time log; it is passed over and counted."""

_CHUNK_BYTES = 64 * 1024
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_BYTE_ORDER_MARKS = re.compile(rb"\A(?:\xef\xbb\xbf|\xff\xfe)")  # UTF-16 becomes ASCII as its NULs are dropped
_LABEL = re.compile(r"\s*(?:\[\d+,(\d+)\]<\w+>:|\[?(?:rank|default)?(\d+)\]?:(?=\s|\[|:::|$))")


class ByteStream(Protocol):
    """What is asked of a file: its bytes in order."""

    def read1(self, size: int, /) -> bytes:
        """The next bytes, at most `size` of them, without waiting for more; nothing at the end."""
        ...


class DamagedFile(InvalidInput):
    """A compressed file that ends early or does not hold what its first bytes promise."""


class UnreadableCompression(InvalidInput):
    """A compression that this installation cannot undo."""


def opened(raw: io.BufferedReader) -> ByteStream:
    """The contents of `raw`, decompressed where its first bytes say that it is compressed.

    Raises
    ------
    UnreadableCompression
        Nothing here can read this compression.

    """
    head = raw.peek(8)[:8]
    for magic, open_stream in _COMPRESSIONS:
        if head.startswith(magic):
            return open_stream(raw)
    return raw


def _zstd(raw: io.BufferedReader) -> ByteStream:
    # pyarrow brings a decoder; the standard library has one from Python 3.14 on.
    import pyarrow as pa

    try:
        stream: Any = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    except (pa.ArrowException, ValueError) as error:
        raise UnreadableCompression(f"zstd, which this installation cannot read ({error}); decompress it") from error
    return io.BufferedReader(stream)


_COMPRESSIONS: tuple[tuple[bytes, Callable[[io.BufferedReader], ByteStream]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", _zstd),
)


class Lines:
    r"""The lines of a byte stream as text, each with its terminator so that a last line cut short can be told.

    Carriage returns end a line too (progress bars), colours are taken out, NULs (a file cut and extended by a crash)
    are dropped, and bytes that are no UTF-8 become U+FFFD.

    Parameters
    ----------
    stream
        Opened for reading bytes.

    Attributes
    ----------
    number
        Lines seen so far, as an editor counts them.
    bytes_read
        Of the decompressed contents.
    overlong
        Lines that were passed over because they exceed `MAX_LINE_BYTES`.

    Raises
    ------
    DamagedFile
        While iterating: what could be read before has been given.

    Examples
    --------
    >>> list(Lines(io.BytesIO(b"50%\r100%\nstep 1\x1b[0m\r\nste")))
    ['50%\r', '100%\n', 'step 1\n', 'ste']
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._ahead: list[bytes] = []
        self._damage: DamagedFile | None = None
        self.number = 0
        self.bytes_read = 0
        self.overlong = 0

    def head(self, size: int) -> bytes:
        """About the first `size` bytes, before the first line is taken; fewer where the file is shorter or damaged."""
        while sum(map(len, self._ahead)) < size and self._damage is None:
            try:
                chunk = self._read()
            except DamagedFile as damage:
                self._damage = damage
                break
            if not chunk:
                break
            self._ahead.append(chunk)
        return b"".join(self._ahead)

    def __iter__(self) -> Iterator[str]:
        """Line by line; little more than `MAX_LINE_BYTES` are held."""
        pending, is_overlong = b"", False
        for chunk in self._chunks():
            self.bytes_read += len(chunk)
            *whole, pending = (pending + chunk).split(b"\n")
            for line in whole:
                self.number += 1
                if is_overlong:
                    is_overlong = False
                else:
                    yield from self._text(line + b"\n")
            if is_overlong or len(pending) > MAX_LINE_BYTES:
                self.overlong += not is_overlong
                pending, is_overlong = b"", True
        if pending or is_overlong:
            self.number += 1
            yield from self._text(pending)
        if self._damage is not None:
            raise self._damage

    def _chunks(self) -> Iterator[bytes]:
        yield from self._ahead
        while self._damage is None:
            try:
                chunk = self._read()
            except DamagedFile as damage:
                self._damage = damage
                return
            if not chunk:
                return
            yield chunk

    def _read(self) -> bytes:
        try:
            # One piece at a time: what a decoder gives in one go is lost when the file ends too early for all of it.
            return self._stream.read1(_CHUNK_BYTES)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
            raise DamagedFile(f"the file cannot be read to its end: {error or type(error).__name__}") from error

    def _text(self, line: bytes) -> Iterator[str]:
        if self.number == 1:
            line = _BYTE_ORDER_MARKS.sub(b"", line)
        if b"\0" in line:
            line = line.replace(b"\0", b"")
        if b"\x1b" in line:
            line = _ESCAPES.sub(b"", line)
        text = line.decode("utf-8", "replace")
        if "\r" not in text:
            yield text
        else:
            yield from text.replace("\r\n", "\n").splitlines(keepends=True)


def label(line: str) -> int | None:
    """The rank that a launcher wrote before a line (`srun --label`, torchrun's `[rank3]:`, `mpirun --tag-output`).

    >>> label("3: iteration 5/10"), label("[default7]:[2024-01-01"), label("[1,2]<stdout>: x"), label("12:30:01 x")
    (3, 7, 2, None)
    """
    match = _LABEL.match(line)
    return None if match is None else int(match[1] or match[2])
