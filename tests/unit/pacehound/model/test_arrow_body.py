"""A body of columns is read alike whether its schema has come before or not, and refused alike."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.errors import MalformedMessage
from pacehound.model.arrow_body import _read_known, read_arrow, write_arrow
from tests.fakes.examples import examples

NUMBERS = pa.record_batch({"n": pa.array([7] * 5_000), "m": pa.array([8] * 5_000)})
KINDS = [pa.int8(), pa.int32(), pa.int64(), pa.float64(), pa.list_(pa.int64()), pa.bool_()]


@st.composite
def columns(draw: st.DrawFn) -> pa.RecordBatch:
    n_rows = draw(st.integers(0, 300))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    values = {
        f"column {at}": pa.array(
            [[*range(n)] for n in rng.integers(0, 4, n_rows)] if kind == KINDS[4] else rng.integers(0, 2, n_rows),
            kind,
        )
        for at, kind in enumerate([*NUMBERS.schema.types, *draw(st.lists(st.sampled_from(KINDS), max_size=8))])
    }
    return pa.record_batch(values)


def stream_of(*batches: pa.RecordBatch, **options: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, NUMBERS.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


@examples(60)
@given(columns())
def test_columns_behind_a_known_schema_are_those_of_the_stream(rows: pa.RecordBatch) -> None:
    body = write_arrow(rows)
    with pa.ipc.open_stream(body) as reader:
        (wanted,) = list(reader)
    found = _read_known(body)
    assert found is not None
    assert found.equals(wanted)
    assert found.schema.equals(wanted.schema)
    assert read_arrow(body + b"and more behind its end").equals(wanted)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_body_is_refused_also_where_its_schema_is_known(compression: str) -> None:
    assert read_arrow(stream_of(NUMBERS)).equals(NUMBERS)
    with pytest.raises(MalformedMessage, match="is compressed"):
        read_arrow(stream_of(NUMBERS, compression=compression))


def test_a_body_holds_one_batch() -> None:
    assert read_arrow(stream_of(NUMBERS)).equals(NUMBERS)
    with pytest.raises(MalformedMessage, match="2 record batches"):
        read_arrow(stream_of(NUMBERS, NUMBERS))
    with pytest.raises(MalformedMessage, match="0 record batches"):
        read_arrow(stream_of())


def test_names_are_read_with_their_dictionary() -> None:
    rows = pa.record_batch({"n": pa.array(["a", "b", "a"]).dictionary_encode(), "m": pa.array([1, 2, 3])})
    for _ in range(2):
        assert read_arrow(write_arrow(rows)).equals(rows)
