"""What ranks must call alike, packed into a number and back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pacehound.model.calls import CallBatch
from pacehound.model.codes import DTYPES, OPS, REDOPS
from pacehound.model.events import CallSignature, OpenCall
from streams.rounds.signatures import disagreement, packed_signatures, signature_of, unpacked


@settings(deadline=None)
@given(
    st.integers(0, OPS.index("barrier")),
    st.integers(0, len(DTYPES) - 1),
    st.integers(0, len(REDOPS) - 1),
    st.integers(0, 2**28),
    st.integers(-1, 16_383),
)
def test_a_row_and_an_open_call_have_the_same_signature(op, dtype, redop, count, root):
    columns = {
        "rank": [0],
        "seq": [0],
        "op": [op],
        "dtype": [dtype],
        "redop": [redop],
        "count": [count],
        "peer": [root],
    }
    batch = CallBatch.from_columns(columns, job="j", attempt=0, host="h", communicator="c", source="simulator")
    call = OpenCall(seq=0, op=OPS[op], count=count, dtype=DTYPES[dtype], redop=REDOPS[redop], peer=root, launch_ns=0)
    assert unpacked(int(packed_signatures(batch)[0])) == signature_of(call)


def test_what_one_side_does_not_know_is_no_disagreement():
    known = CallSignature("all_reduce", 8, "float32", "sum")
    assert disagreement({0: known, 1: CallSignature("all_reduce", 8, "float32")}) is None
    assert disagreement({0: known, 1: CallSignature("all_reduce", -1)}) is None
    assert disagreement({0: known, 1: CallSignature("unknown")}) is None
    assert disagreement({0: known, 1: CallSignature("all_reduce", 8, "float32", "max")}).ranks == (0, 1)


def test_half_of_the_ranks_are_no_majority():
    a, b = CallSignature("all_reduce", 8), CallSignature("all_reduce", 9)
    assert disagreement({0: a, 1: a, 2: b, 3: b}).minority == ()
    assert disagreement({0: a, 1: a, 2: b}).minority == (2,)
