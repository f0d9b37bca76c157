"""For whom the others wait, in traces of a few steps."""

from __future__ import annotations

import numpy as np
import pytest

from pacehound.model.calls import CallBatch, Sees
from pacehound.model.codes import OPS
from streams.slow.imbalance import uneven_ranks

MS = 1_000_000
GROUPS = {"tp0": (0, 1), "tp1": (2, 3), "dp0": (0, 2), "dp1": (1, 3)}


def trace(slow: dict[int, float], *, rounds: int = 40, jitter: float = 0.02, seed: int = 0) -> list[CallBatch]:
    """Each rank computes 10 ms (times its factor), then meets its tensor-parallel peer, then its data-parallel one.

    Every rank's clock is its own.
    """
    rng = np.random.default_rng(seed)
    clock = rng.integers(0, 10**12, 4)
    now = np.zeros(4)
    rows: dict[tuple[str, int], list[tuple[int, float, float]]] = {}
    for number in range(rounds):
        for kind in ("tp", "dp"):
            work = 10 * MS * np.exp(jitter * rng.standard_normal(4))
            arrived = now + work * np.array([slow.get(rank, 1.0) for rank in range(4)])
            for name, group in GROUPS.items():
                if name.startswith(kind):
                    end = max(arrived[list(group)]) + 1 * MS
                    for rank in group:
                        rows.setdefault((name, rank), []).append((number, arrived[rank], end))
                        now[rank] = end
    batches = []
    for (name, rank), calls in rows.items():
        seq, start, end = (np.array(column) for column in zip(*calls, strict=True))
        columns = {
            "rank": np.full(len(seq), rank),
            "seq": seq,
            "op": np.full(len(seq), OPS.index("all_reduce")),
            "launch_ns": start + clock[rank] + 1,
            "start_ns": start + clock[rank] + 1,
            "end_ns": end + clock[rank] + 1,
        }
        batches.append(
            CallBatch.from_columns(
                columns, job="j", attempt=0, host=f"h{rank}", communicator=name, source="kineto", sees=Sees.ALL
            )
        )
    return batches


@pytest.mark.parametrize("rank", range(4))
def test_the_rank_that_the_delay_comes_from_is_found_whatever_the_clocks_say(rank):
    found = uneven_ranks(trace({rank: 1.8}, seed=rank), GROUPS)
    assert found is not None
    assert found.ranks == (rank,)
    assert found.waiting > found.theirs + 0.1


@pytest.mark.parametrize("seed", range(20))
def test_jitter_alone_names_nobody(seed):
    assert uneven_ranks(trace({}, jitter=0.1, seed=seed), GROUPS) is None


def test_half_of_the_ranks_having_more_to_do_names_nobody():
    assert uneven_ranks(trace({0: 1.8, 3: 1.8}), GROUPS) is None


def test_rounds_in_which_a_member_is_missing_say_nothing():
    batches = [batch for batch in trace({0: 1.8}) if batch.column("rank")[0] != 0]
    found = uneven_ranks(batches, GROUPS)
    assert found is None or 0 not in found.ranks
