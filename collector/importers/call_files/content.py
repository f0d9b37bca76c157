"""The contents of a file, decompressed where it is compressed, and never more of it than was agreed."""

from __future__ import annotations

import io
import lzma
import zlib
from pathlib import Path

from collector.importers.call_files.refusal import RefusedFile
from collector.importers.step_logs.lines import ByteStream, opened
from pacehound.errors import InvalidInput

HEAD_BYTES = 64 * 1024
"""So much of a file is looked at to tell its format."""

_CHUNK_BYTES = 1 << 20


def whole_content(path: Path, max_bytes: int) -> bytes:
    """Every byte of a file.

    Parameters
    ----------
    path
        A file, plain or compressed (gzip, bzip2, xz, zstd).
    max_bytes
        Of the decompressed contents: a small file can unfold to more than a machine has.

    Raises
    ------
    RefusedFile
        It cannot be read to its end, or holds more.

    """
    content, is_whole = _read(path, max_bytes)
    if not is_whole:
        raise RefusedFile(f"the file holds more than {max_bytes >> 20} MiB; so much is not read of this format")
    return content


def head_of(path: Path) -> bytes:
    """The first `HEAD_BYTES` at most."""
    return _read(path, HEAD_BYTES)[0]


def _read(path: Path, max_bytes: int) -> tuple[bytes, bool]:
    """The contents up to `max_bytes`, and whether that is all."""
    try:
        with path.open("rb") as raw:
            return _taken(opened(raw), max_bytes)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise RefusedFile(f"the file cannot be read: {said}") from error
    except RefusedFile:
        raise
    except InvalidInput as error:
        raise RefusedFile(str(error)) from error


def _taken(stream: ByteStream, max_bytes: int) -> tuple[bytes, bool]:
    content = io.BytesIO()
    while content.tell() <= max_bytes:
        chunk = stream.read1(_CHUNK_BYTES)
        if not chunk:
            return content.getvalue(), True
        content.write(chunk)
    return content.getvalue()[:max_bytes], False
