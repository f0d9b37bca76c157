"""Columns are those that `pa.array` makes, and pandas is not loaded for them."""

import gc
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.columns import numbers, numpy_type, values_of, words

KINDS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint32(), pa.float64(), pa.bool_()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_are_those_of_arrow_whatever_their_layout(kind):
    for n_rows in (0, 1, 7, 8, 9, 1000):
        whole = np.random.default_rng(n_rows).integers(0, 2, 2 * n_rows).astype(numpy_type(kind))
        for values in (whole[:n_rows], whole[::2]):
            assert numbers(values, kind).equals(pa.array(values, kind)), n_rows


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_values_are_those_of_arrow_of_any_slice_and_cannot_be_written(kind):
    for n_rows in (0, 1, 9, 1000):
        column = pa.array(np.random.default_rng(n_rows).integers(0, 2, n_rows).astype(numpy_type(kind)), kind)
        for part in (column, column[3:], column[1:7], column[:0]):
            values, theirs = values_of(part), part.to_numpy(zero_copy_only=False)
            assert values.dtype == theirs.dtype, n_rows
            assert values.tolist() == theirs.tolist(), n_rows
            assert not values.flags.writeable, n_rows


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_of_no_rows_there_need_be_no_memory(kind):
    values = values_of(pa.Array.from_buffers(kind, 0, [None, None]))
    assert (values.tolist(), values.dtype) == ([], numpy_type(kind))


def test_what_is_read_keeps_its_memory():
    values = values_of(pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(np.array([5, 6, 7]))]))
    gc.collect()
    assert [np.full(3, other).tolist() for other in (1, 2)] + [values.tolist()] == [[1] * 3, [2] * 3, [5, 6, 7]]


def test_a_null_has_no_value():
    with pytest.raises(ValueError, match="1 of 2 values are null"):
        values_of(pa.array([1, None], pa.int64()))


@pytest.mark.parametrize("column", [pa.array(["7"]), pa.array([[7]]), pa.array(["7"]).dictionary_encode()], ids=str)
def test_what_is_no_number_has_no_value(column):
    with pytest.raises(ValueError, match="holds no numbers"):
        values_of(column)


def test_numbers_are_cast_where_they_fit_and_refused_where_they_do_not():
    assert numbers(np.array([1, -2]), pa.int8()).equals(pa.array([1, -2], pa.int8()))
    for value, kind in ((300, pa.int8()), (-129, pa.int8()), (-1, pa.uint64()), (2**40, pa.int32())):
        with pytest.raises(ValueError, match=str(value)):
            numbers(np.array([0, value]), kind)
    assert numbers(np.array([2**63 - 1]), pa.uint64()).to_pylist() == [2**63 - 1]
    assert numbers(np.zeros(0, np.int64), pa.int8()).equals(pa.array([], pa.int8()))
    with pytest.raises(ValueError, match="dimension"):
        numbers(np.zeros((2, 2)), pa.float64())


@given(st.lists(st.text()))
def test_words_are_those_of_arrow(values):
    column = words(values)
    column.validate(full=True)
    assert column.equals(pa.array(values, pa.string()))


def test_a_batch_of_calls_goes_through_the_codec_and_pandas_is_not_loaded():
    code = (
        "import sys\n"
        "from pacehound.model import codec\n"
        "from pacehound.model.calls import CallBatch\n"
        "columns = {'rank': [0, 1], 'seq': [1, 1], 'algorithm': ['ring', 'tree']}\n"
        "batch = CallBatch.from_columns(columns, job='j', attempt=0, host='h', communicator='c', source='simulator')\n"
        "[again] = codec.decode(codec.encode(batch))\n"
        "assert again.rows['algorithm'].to_pylist() == columns['algorithm']\n"
        "assert 'pyarrow' in sys.modules\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
