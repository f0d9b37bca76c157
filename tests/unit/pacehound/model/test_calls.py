"""CallBatch refuses what cannot be a batch, and reads its columns back as NumPy arrays."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from pacehound.errors import InvalidEvent
from pacehound.model.calls import CALL_SCHEMA, CallBatch

IDENTITY = {"job": "j", "attempt": 0, "host": "h", "communicator": "c", "source": "simulator"}


def test_what_a_source_cannot_know_takes_the_value_for_unknown():
    batch = CallBatch.from_columns({"rank": [3], "seq": [9]}, **IDENTITY)
    (row,) = batch.rows.to_pylist()
    assert (row["op"], row["count"], row["peer"], row["direction"]) == ("unknown", -1, -1, "none")
    assert (row["launch_ns"], row["send_count"], row["captured"]) == (0, -1, False)
    assert np.isnan(row["send_rate"])


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"rank": [0]}, "'rank' and 'seq'"),
        ({"rank": [0], "seq": [0], "colour": [1]}, r"unknown call columns \['colour'\]"),
        ({"rank": [0, 1], "seq": [0]}, "'seq' has 1 values, not 2"),
        ({"rank": [0], "seq": [0], "op": [99]}, r"code outside 0\.\.11"),
        ({"rank": [0], "seq": [0], "op": [-1]}, r"code outside 0\.\.11"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns, complaint):
    with pytest.raises(ValueError, match=complaint):
        CallBatch.from_columns(columns, **IDENTITY)


def test_a_foreign_schema_and_a_negative_drop_count_are_refused():
    batch = CallBatch.from_columns({"rank": [0], "seq": [0]}, **IDENTITY)
    with pytest.raises(InvalidEvent, match="seq is missing"):
        dataclasses.replace(batch, rows=batch.rows.drop_columns(["seq"]))
    text = batch.rows.set_column(CALL_SCHEMA.get_field_index("seq"), "seq", pa.array(["0"]))
    with pytest.raises(InvalidEvent, match="seq is string, not int64"):
        dataclasses.replace(batch, rows=text)
    with pytest.raises(InvalidEvent, match="the order of the columns"):
        dataclasses.replace(batch, rows=batch.rows.select(list(reversed(CALL_SCHEMA.names))))
    with pytest.raises(InvalidEvent, match="dropped count is -1"):
        dataclasses.replace(batch, dropped=-1)
