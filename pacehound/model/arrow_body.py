"""Columns as an Arrow IPC stream, and back.

Ours are never compressed: the bus compresses. A few kilobytes of a foreign producer may unpack to more than a machine
has, and Arrow has no bound for that. So whether columns are compressed is seen before anything is unpacked.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import pyarrow as pa

from pacehound.errors import MalformedMessage

MIN_ROW_BYTES = 16
"""No row of calls or rounds takes less: columns that stand for more rows than they hold are not unpacked."""

# A body written by these settings is the same on every machine and Arrow version that reads it.
_IPC_OPTIONS = pa.ipc.IpcWriteOptions(compression=None, use_threads=False)

_CONTINUATION = 0xFFFFFFFF
_END = struct.pack("<II", _CONTINUATION, 0)
_FRAME_BYTES = 8
"""Before each message: the continuation, and how long its metadata is."""

_MAX_SCHEMA_BYTES = 4 * 1024
"""More than three times what all columns of a flush take, which is 1,200; longer ones are not kept."""

_ZSTD, _LZ4 = b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
_LONG_BYTES = 32 * 1024
# Places of the fields in Arrow's Message.fbs; a union takes two, its kind and its value.
_HEADER_KIND, _HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DATA_OF_DICTIONARY = 1
_COMPRESSION = 3


def write_arrow(rows: pa.RecordBatch) -> bytes:
    """Columns as a body."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_IPC_OPTIONS) as writer:
        writer.write_batch(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def read_arrow(body: bytes) -> pa.RecordBatch:
    """The columns of a body.

    Raises
    ------
    MalformedMessage, pyarrow.ArrowException, OSError, struct.error
        It holds no one batch of columns, or they take what nobody sends.

    """
    batch = _read_known(body)
    if batch is None:
        if is_compressed(body):
            raise MalformedMessage("an Arrow body is compressed; send it plain, the bus compresses it")
        with pa.ipc.open_stream(body) as reader:
            batches = list(reader)
        if len(batches) != 1:
            raise MalformedMessage(f"an Arrow body holds {len(batches)} record batches, not one")
        batch = batches[0]
    if batch.num_rows * MIN_ROW_BYTES > len(body):
        raise MalformedMessage(f"an Arrow body of {len(body)} bytes says it has {batch.num_rows} rows")
    batch.validate(full=True)
    return batch


def _read_known(body: bytes) -> pa.RecordBatch | None:
    """The batch behind a schema that has come before, as nearly all do; `None`: it is to be read as any stream."""
    first = _length(body, 0)
    end = first + _length(body, first) if 0 < first <= _MAX_SCHEMA_BYTES else 0
    schema = _plain_schema(body[:first]) if first < end else None
    if schema is None:
        return None
    message = pa.ipc.read_message(pa.py_buffer(body).slice(first))
    if message.type != "record batch" or _has_compression(message.metadata.to_pybytes()):
        return None
    return pa.ipc.read_record_batch(message, schema) if body[end + message.body.size :] in (b"", _END) else None


def _length(body: bytes, at: int) -> int:
    """How far it is from the frame of a message that begins here to its own body; 0 where none does."""
    if len(body) < at + _FRAME_BYTES:
        return 0
    continuation, n_bytes = struct.unpack_from("<II", body, at)
    return _FRAME_BYTES + n_bytes if continuation == _CONTINUATION and n_bytes else 0


@lru_cache(maxsize=64)
def _plain_schema(message: bytes) -> pa.Schema | None:
    """The columns of a stream that begins so; `None` where dictionaries follow."""
    schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(message))
    return None if any(pa.types.is_dictionary(field.type) for field in schema) else schema


def is_compressed(body: bytes) -> bool:
    """Whether a stream has a batch with compressed buffers.

    Raises
    ------
    pyarrow.ArrowException, OSError, struct.error
        The bytes are no stream.

    Examples
    --------
    >>> sink = pa.BufferOutputStream()
    >>> with pa.ipc.new_stream(sink, pa.schema([("n", pa.int64())])) as writer:
    ...     writer.write_batch(pa.record_batch({"n": [1]}))
    >>> is_compressed(sink.getvalue().to_pybytes())
    False

    """
    # Every compressed buffer begins with one of them. In a short body, that there is none is seen sooner than what its
    # messages say: those take 0.1 ms, however long they are.
    if len(body) < _LONG_BYTES and _ZSTD not in body and _LZ4 not in body:
        return False
    messages = pa.ipc.MessageReader.open_stream(body)
    return any(_has_compression(message.metadata.to_pybytes()) for message in messages)


def _has_compression(metadata: bytes) -> bool:
    root = struct.unpack_from("<I", metadata)[0]
    kind_at = _field(metadata, root, _HEADER_KIND)
    header_at = _field(metadata, root, _HEADER)
    kind = metadata[kind_at] if kind_at else 0
    if not header_at or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return False
    batch = _table(metadata, header_at)
    if kind == _DICTIONARY_BATCH:
        data_at = _field(metadata, batch, _DATA_OF_DICTIONARY)
        if not data_at:
            return False
        batch = _table(metadata, data_at)
    return _field(metadata, batch, _COMPRESSION) != 0


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a table stands (FlatBuffers); 0 where it is left out."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    n_bytes = struct.unpack_from("<H", metadata, vtable)[0]
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", metadata, vtable + at)[0] if at + 2 <= n_bytes else 0
    return table + int(offset) if offset else 0


def _table(metadata: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", metadata, at)[0])
