"""Batches of calls as the join takes them."""

from __future__ import annotations

import numpy as np

from pacehound.model.calls import DTYPE_BYTES, DTYPES, CallBatch
from streams.rounds.call_rows import rows_of_batch

IDENTITY = {"job": "j", "attempt": 0, "host": "h", "communicator": "c", "source": "simulator"}


def test_of_what_a_source_cannot_know_there_is_no_size() -> None:
    batch = CallBatch.from_columns({"rank": [3], "seq": [9]}, **IDENTITY)
    assert rows_of_batch(batch).size_bytes.tolist() == [0]


def test_size_is_count_times_width_for_every_dtype() -> None:
    n = len(DTYPES)
    batch = CallBatch.from_columns(
        {"rank": np.zeros(n), "seq": np.arange(n), "count": np.full(n, 10), "dtype": np.arange(n)}, **IDENTITY
    )
    assert rows_of_batch(batch).size_bytes.tolist() == [10 * width for width in DTYPE_BYTES]
