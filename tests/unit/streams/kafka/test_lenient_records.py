"""Headers' names that are no text: the records are read, the others as by aiokafka itself."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords

from streams.kafka.lenient_records import LenientRecords

NONE, GZIP, ZSTD = 0, 1, 4


class Bytes(str):
    """A name that is written as bytes which are no UTF-8."""

    def encode(self, *_: Any) -> bytes:
        return b"\xff\xfe"


def batch(base: int, names: list[str], codec: int) -> bytes:
    """A batch as a producer writes it, with one header per record."""
    builder: Any = _DefaultRecordBatchBuilderPy(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for at, name in enumerate(names):
        builder.append(at, timestamp=at, key=b"k", value=b"v" * 50, headers=[(name, b"x")])
    written = bytearray(builder.build())
    written[:8] = base.to_bytes(8, "big")  # as the broker does; its offset is not part of what is summed
    return bytes(written)


def read(records: Any) -> list[tuple[int, bytes, bytes, list[tuple[str, bytes]]]]:
    found = []
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc()
        found += [(r.offset, bytes(r.key), bytes(r.value), list(r.headers)) for r in one]
        assert found[-1][0] == one.next_offset - 1
    return found


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
@pytest.mark.parametrize("bad", [0, 1, 3])
def test_a_name_that_is_no_text_hides_no_record(codec: int, bad: int) -> None:
    names = ["a", "ü", "c", "d"]
    broken = [Bytes("xx") if at == bad else name for at, name in enumerate(names)]
    fetched = batch(0, names, codec) + batch(4, broken, codec) + batch(8, names, codec)
    with pytest.raises(UnicodeDecodeError):
        read(MemoryRecords(fetched))
    found = read(LenientRecords(fetched + fetched[:90]))
    assert [offset for offset, *_ in found] == list(range(12))
    assert {(key, value) for _, key, value, _ in found} == {(b"k", b"v" * 50)}
    expected = [*names, *names, *names]
    expected[4 + bad] = "\ufffd\ufffd"
    assert [headers for *_, headers in found] == [[(name, b"x")] for name in expected]


def test_what_is_well_is_read_as_before() -> None:
    fetched = batch(0, ["a", "b"], ZSTD) + batch(2, ["c"], NONE)
    assert read(LenientRecords(fetched)) == read(MemoryRecords(fetched))
    assert LenientRecords(fetched).size_in_bytes() == len(fetched)
