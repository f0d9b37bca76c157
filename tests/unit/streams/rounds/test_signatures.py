"""What ranks must call alike, packed into a number and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.calls import CallBatch
from pacehound.model.codes import ALGORITHMS, DTYPES, OPS, PROTOCOLS, REDOPS
from pacehound.model.events import CallSignature, OpenCall
from streams.rounds.call_rows import rows_of_batch
from streams.rounds.signatures import compared_signature_of, disagreement, packed, unpacked


@given(
    st.integers(0, OPS.index("barrier")),
    st.integers(0, len(DTYPES) - 1),
    st.integers(0, len(REDOPS) - 1),
    st.integers(0, 2**27 - 2),
    st.integers(-1, 16_383),
    st.sampled_from(ALGORITHMS),
    st.sampled_from(PROTOCOLS),
)
def test_a_row_and_an_open_call_have_the_same_signature(op, dtype, redop, count, root, algorithm, protocol):
    columns = {
        "rank": [0],
        "seq": [0],
        "op": [op],
        "dtype": [dtype],
        "redop": [redop],
        "count": [count],
        "peer": [root],
        "algorithm": [algorithm],
        "protocol": [protocol],
    }
    batch = CallBatch.from_columns(columns, job="j", attempt=0, host="h", communicator="c", source="simulator")
    call = OpenCall(
        seq=0,
        op=OPS[op],
        count=count,
        dtype=DTYPES[dtype],
        redop=REDOPS[redop],
        peer=root,
        launch_ns=0,
        algorithm=algorithm,
        protocol=protocol,
    )
    assert unpacked(int(rows_of_batch(batch).signature[0])) == compared_signature_of(call)


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


def test_ranks_whose_nccl_chose_another_way_disagree_and_an_unknown_way_agrees_with_any():
    ring, tree = (CallSignature("all_reduce", 8, algorithm=name, protocol="ll") for name in ("ring", "tree"))
    simple, unknown = CallSignature("all_reduce", 8, protocol="simple"), CallSignature("all_reduce", 8)
    sides = disagreement({0: ring, 1: ring, 2: tree}).sides
    assert [(str(signature), ranks) for signature, ranks in sides] == [
        ("all_reduce of 8 by ring ll", (0, 1)), ("all_reduce of 8 by tree ll", (2,)),
    ]  # fmt: skip
    assert disagreement({0: ring, 1: simple}).ranks == (0, 1)
    assert disagreement({0: ring, 1: unknown}) is None
    assert unpacked(packed(ring)) == ring


def test_every_code_has_room_in_a_packed_signature():
    for op, dtype, redop in zip(OPS, [*DTYPES] * 2, [*REDOPS] * 2, strict=False):
        signature = CallSignature(op, 8, dtype if dtype != DTYPES[0] else "", redop if redop != REDOPS[0] else "", 9)
        assert unpacked(packed(signature)) == signature
    for dtype in DTYPES[1:]:
        assert unpacked(packed(CallSignature("all_reduce", 8, dtype, root=2**18 - 2))).dtype == dtype
