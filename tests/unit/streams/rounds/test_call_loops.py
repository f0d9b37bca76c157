"""What is worked out of calls in C is what its description says, whichever columns there are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.calls import DTYPE_BYTES
from pacehound.model.codes import ALGORITHMS, DIRECTIONS, DTYPES, OPS, PROTOCOLS, REDOPS
from pacehound.model.events import CallSignature
from pacehound.model.flushes import ALWAYS, COLUMNS
from pacehound.model.rounds import ALGORITHMS as OF_ROUNDS
from streams.rounds.call_loops import ready
from streams.rounds.signatures import COMPARED_COUNTS, REDUCING, ROOTED, packed

TIME = st.sampled_from([0, 1, 5, 9]) | st.integers(-(2**63), 2**63 - 1)
RATE = st.sampled_from([math.nan, 0.0, 2.5, math.inf])


def code(names: tuple[str, ...]) -> st.SearchStrategy[int]:
    return st.integers(0, len(names) - 1)


OF_CALLS: dict[str, st.SearchStrategy[Any]] = {
    "op": code(OPS), "count": st.integers(-1, 2**40), "dtype": code(DTYPES), "redop": code(REDOPS),
    "peer": st.integers(-1, 2**17), "direction": code(DIRECTIONS), "algorithm": code(ALGORITHMS),
    "protocol": code(PROTOCOLS), "launch_ns": TIME, "start_ns": TIME, "end_ns": TIME, "send_rate": RATE,
    "recv_rate": RATE,
}  # fmt: skip
UNKNOWN = {"count": -1, "peer": -1, "send_rate": math.nan, "recv_rate": math.nan}


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[dict[str, Any]], set[str]]:
    """Rows, and the columns that travel: in all others every row holds what stands for unknown."""
    there = {*("op", "launch_ns"), *draw(st.sets(st.sampled_from(sorted(OF_CALLS))))}
    row = st.fixed_dictionaries(
        {name: kind if name in there else st.just(UNKNOWN.get(name, 0)) for name, kind in OF_CALLS.items()}
    )
    return draw(st.lists(row, max_size=20)), there


def signature_of(row: dict[str, Any]) -> int:
    op = OPS[row["op"]]
    return packed(
        CallSignature(
            op,
            count=row["count"] if op in COMPARED_COUNTS else -1,
            dtype=DTYPES[row["dtype"]] if op in COMPARED_COUNTS else "",
            redop=REDOPS[row["redop"]] if op in REDUCING else "",
            root=row["peer"] if op in ROOTED else -1,
            algorithm=ALGORITHMS[row["algorithm"]],
            protocol=PROTOCOLS[row["protocol"]],
        )
    )


@given(calls())
def test_times_sizes_and_signatures_of_calls(said: tuple[list[dict[str, Any]], set[str]]) -> None:
    rows, there = said
    columns = {name: np.array([row[name] for row in rows], COLUMNS[name]) for name in sorted(there)}
    made = ready(len(rows), columns)
    assert made.signature.tolist() == list(map(signature_of, rows))
    sizes = [max(row["count"], 0) * DTYPE_BYTES[row["dtype"]] for row in rows]
    assert made.size_bytes.tolist() == (sizes if {"count", "dtype"} <= there else [0] * len(rows))
    times = [(row["launch_ns"], row["start_ns"], row["end_ns"]) for row in rows]
    is_backward = [min(one) < 0 or (one[2] > 0 and one[2] < max(one[:2])) for one in times]
    assert made.is_backward.tolist() == is_backward
    assert made.n_backward == sum(is_backward)
    expected = [(max(one[0], 0), 0, 0) if wrong else one for one, wrong in zip(times, is_backward, strict=True)]
    assert list(zip(made.launch_ns, made.start_ns, made.end_ns, strict=True)) == expected
    algorithms = [ALGORITHMS[row["algorithm"]] if ALGORITHMS[row["algorithm"]] in OF_ROUNDS else "" for row in rows]
    assert [OF_ROUNDS[one] for one in made.algorithm.tolist()] == algorithms
    is_known = [
        bool(algorithm) or math.isfinite(row["send_rate"]) or math.isfinite(row["recv_rate"])
        for row, algorithm in zip(rows, algorithms, strict=True)
    ]
    assert (made.n_pairs, made.n_transfers) == (sum(row["direction"] > 0 for row in rows), sum(is_known))


@pytest.mark.parametrize("codes", [-1, 100, 127])
def test_a_code_that_nothing_is_known_of_is_not_looked_up(codes: int) -> None:
    wrong = {name: np.full(3, codes, np.int8) for name in ("op", "dtype", "redop", "direction", "algorithm")}
    made = ready(3, {**wrong, "count": np.full(3, 8), "launch_ns": np.zeros(3, np.int64)})
    assert made.size_bytes.tolist() == made.algorithm.tolist() == [0, 0, 0]


@pytest.mark.parametrize("missing", ["op", "launch_ns"])
def test_what_c_reads_has_to_be_there(missing: str) -> None:
    columns = {name: np.zeros(2, COLUMNS[name]) for name in ALWAYS if name != missing}
    with pytest.raises(ValueError, match=f"'{missing}' of 2 calls is None"):
        ready(2, columns)
    with pytest.raises(ValueError, match=r"'op' of 3 calls is \(2,\)"):
        ready(3, {name: np.zeros(2, COLUMNS[name]) for name in ALWAYS})
    assert len(ready(0, {}).size_bytes) == 0
