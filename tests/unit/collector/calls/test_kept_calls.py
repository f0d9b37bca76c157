"""Calls behind digests: kept for so long and so many, and told once, when somebody asks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.calls.kept_calls import KEPT_FOR_NS, MOST_KEPT, KeptCalls
from collector.calls.rings import CALL, Int64Array, Records

S = 1_000_000_000
ALL = 1 << 30


def calls(seqs: range, ends_ns: int) -> tuple[Records, Int64Array]:
    rows = np.zeros(len(seqs), CALL)
    rows["seq"], rows["end_ns"] = list(seqs), ends_ns
    return rows, np.full(len(seqs), 3, np.int64)


def told(kept: KeptCalls, most: int = ALL) -> list[int]:
    rows, numbers = kept.take(most)
    assert numbers.tolist() == [3] * len(rows)
    seqs: list[int] = rows["seq"].tolist()
    return seqs


def test_nothing_is_told_until_somebody_asks_and_then_the_latest_the_oldest_first() -> None:
    kept = KeptCalls()
    for second in range(10):
        kept.keep(*calls(range(10 * second, 10 * second + 10), second * S), second * S)
    assert told(kept) == []
    kept.ask(20 * S, 10 * S, most=60)
    assert told(kept, 20) == list(range(70, 90))
    assert told(kept) == list(range(90, 100))


def test_what_comes_while_somebody_looks_is_told_until_there_were_so_many() -> None:
    kept = KeptCalls()
    kept.ask(20 * S, 10 * S, most=25)
    kept.keep(*calls(range(20), 11 * S), 11 * S)
    kept.keep(*calls(range(20, 40), 12 * S), 12 * S)
    assert told(kept) == list(range(25))
    kept.ask(20 * S, 13 * S, most=100)
    assert told(kept) == list(range(25, 40)), "the others are kept, and each is told once"


@pytest.mark.parametrize("until_s", [13, 0])
def test_after_the_look_or_when_it_is_ended_nothing_more_is_told(until_s: int) -> None:
    kept = KeptCalls()
    kept.ask(20 * S, 10 * S, most=100)
    kept.ask(until_s * S, 13 * S, most=100)
    kept.keep(*calls(range(20), 14 * S), 14 * S)
    assert told(kept) == []


def test_what_is_old_or_too_much_is_forgotten() -> None:
    kept = KeptCalls()
    kept.keep(*calls(range(100), S), S)
    kept.keep(*calls(range(100, 110), 2 * S + KEPT_FOR_NS), 2 * S + KEPT_FOR_NS)
    kept.ask(ALL * S, 3 * S + KEPT_FOR_NS, most=ALL)
    assert told(kept) == list(range(100, 110))
    many = KeptCalls()
    for part in range(4):
        many.keep(*calls(range(part * MOST_KEPT // 2, (part + 1) * MOST_KEPT // 2), S), S)
    many.ask(ALL * S, S, most=ALL)
    assert told(many) == list(range(MOST_KEPT, 2 * MOST_KEPT))


def test_of_a_job_that_is_told_of_all_are_told_unasked() -> None:
    kept = KeptCalls(is_told=True)
    kept.keep(*calls(range(5), S), S)
    kept.ask(9 * S, S, most=1)
    kept.keep(*calls(range(5, 9), 2 * S), 2 * S)
    assert told(kept) == list(range(9))


@given(st.lists(st.tuples(st.sampled_from(["keep", "ask", "take"]), st.integers(0, 30)), max_size=40))
def test_each_is_told_once_and_in_order_whatever_is_asked(turns: list[tuple[str, int]]) -> None:
    kept, seen = KeptCalls(), 0
    given_out: list[int] = []
    most = 0
    for now_s, (what, n) in enumerate(turns):
        if what == "keep":
            kept.keep(*calls(range(seen, seen + n), now_s * S), now_s * S)
            seen += n
        elif what == "ask":
            kept.ask((now_s + n) * S, now_s * S, most=n)
            most += n
        else:
            given_out += told(kept, n)
    given_out += told(kept)
    assert len(set(given_out)) == len(given_out)
    assert set(given_out) <= set(range(seen))
    assert len(given_out) <= most
