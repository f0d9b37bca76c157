"""What a rank called, packed into one number per row and compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pacehound.calls import DTYPE_CODE, DTYPES, OP_CODE, CallBatch
from pacehound.codes import REDOPS
from pacehound.events import CallSignature, OpenCall
from streams.signatures import packed_signatures, signature_of, unpacked


def batch_of(**columns: list[int]) -> CallBatch:
    n_calls = len(columns["op"])
    return CallBatch.from_columns(
        {"rank": np.arange(n_calls), "seq": np.zeros(n_calls, np.int64), **columns},
        job="j",
        attempt=0,
        host="h",
        communicator="c",
        source="c10d",
    )


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("redop", REDOPS[1:])
def test_a_row_and_an_open_call_of_the_same_kind_have_equal_signatures(dtype: str, redop: str) -> None:
    """The codes are of eight bits: shifted as they are, float32 would become uint8 and every reduction none."""
    call = OpenCall(seq=0, op="all_reduce", count=1 << 30, dtype=dtype, redop=redop, launch_ns=0)
    batch = batch_of(
        op=[OP_CODE["all_reduce"]], count=[1 << 20], dtype=[DTYPE_CODE[dtype]], redop=[REDOPS.index(redop)]
    )
    (packed,) = packed_signatures(batch).tolist()
    assert unpacked(packed) == CallSignature("all_reduce", count=1 << 20, dtype=dtype, redop=redop)
    assert replace(unpacked(packed), count=-1) == replace(signature_of(call), count=-1)


def test_what_need_not_be_equal_is_left_out() -> None:
    batch = batch_of(
        op=[OP_CODE["all_to_all"], OP_CODE["broadcast"]],
        count=[77, 8],
        dtype=[DTYPE_CODE["float32"]] * 2,
        redop=[1, 1],
        peer=[-1, 3],
    )
    of_all_to_all, of_broadcast = map(unpacked, packed_signatures(batch).tolist())
    assert of_all_to_all == CallSignature("all_to_all")
    assert of_broadcast == CallSignature("broadcast", count=8, dtype="float32", root=3)
