"""Lets aiokafka read on where a header's name is no UTF-8.

Kafka takes such a name, and some clients can write it. aiokafka (0.14) raises on it while it reads, before anybody can
set the message aside: the worker ends, begins again at the same message, and ends again. So a batch in which that
happens is read once more, by aiokafka's reader in plain Python, with the bytes of such names replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, SupportsIndex

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords

_LENGTH_AT, _LENGTH_END = 8, 12
"""Where a batch says how many bytes follow its offset and this length."""


def read_leniently() -> None:
    """Let every consumer of this process read so."""
    fetcher.MemoryRecords = LenientRecords


class LenientRecords:
    """What a fetch has brought of one partition, as aiokafka asks for it.

    Parameters
    ----------
    fetched
        Batches of records, the last one perhaps cut off.

    """

    def __init__(self, fetched: bytes) -> None:
        self._fetched = memoryview(fetched)
        self._records: Any = MemoryRecords(fetched)
        self._at = 0

    def size_in_bytes(self) -> int:
        """Of all of it."""
        return int(self._records.size_in_bytes())

    def has_next(self) -> bool:
        """Another batch is whole."""
        return bool(self._records.has_next())

    def next_batch(self) -> LenientBatch | None:
        """The next batch."""
        batch = self._records.next_batch()
        if batch is None:
            return None
        length = int.from_bytes(self._fetched[self._at + _LENGTH_AT : self._at + _LENGTH_END], "big")
        begin, self._at = self._at, self._at + _LENGTH_END + length
        return LenientBatch(batch, self._fetched[begin : self._at])


class LenientBatch:
    """One batch: everything as aiokafka has it, but for the names."""

    def __init__(self, batch: Any, raw: memoryview) -> None:
        self._batch = batch
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        n_read = 0
        try:
            for record in self._batch:
                n_read += 1
                yield record
            return
        except UnicodeDecodeError:
            pass
        again: Any = _DefaultRecordBatchPy(self._raw)
        again._maybe_uncompress()
        again._buffer = _Text(again._buffer)
        yield from islice(again, n_read, None)


class _Text(bytearray):
    """Bytes whose parts are text in any case."""

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        found = super().__getitem__(at)
        return _Text(found) if isinstance(at, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)
