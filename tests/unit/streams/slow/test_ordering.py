"""The quick order is the one that lexsort gives, ties and all."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.slow.ordering import order_by

ENTRIES = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 6), st.integers(0, 3)), max_size=60)


@given(ENTRIES, st.sampled_from([1, 1_000_003, 1 << 60]), st.sampled_from([1, 1 << 17, 1 << 59]), st.booleans())
def test_it_is_the_order_of_lexsort(entries, times_apart, ranks_apart, are_ordered):
    rank, time_ns, then = np.array(sorted(entries) if are_ordered else entries, np.int64).reshape(-1, 3).T
    rank, time_ns = rank * ranks_apart, time_ns * times_apart
    assert order_by(rank, time_ns, then).tolist() == np.lexsort((then, time_ns, rank)).tolist()


def test_calls_of_several_communicators_are_merged():
    random = np.random.default_rng(7)
    of_communicators = [np.sort(random.integers(0, 900, n)) for n in (400, 1, 0, 700, 33)]
    time_ns = np.concatenate(of_communicators)
    rank, then = random.integers(3, 40, len(time_ns)), random.integers(0, 3, len(time_ns))
    assert order_by(rank, time_ns, then).tolist() == np.lexsort((then, time_ns, rank)).tolist()
