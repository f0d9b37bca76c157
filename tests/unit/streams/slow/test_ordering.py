"""The quick order is the one that lexsort gives, ties and all."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.slow.ordering import order_by

ENTRIES = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 6), st.integers(0, 3)), max_size=60)


@given(ENTRIES, st.sampled_from([1, 1_000_003, 1 << 59]), st.sampled_from([0, 1_790_000_000_000_000_000]))
def test_it_is_the_order_of_lexsort(entries, scale, begin_ns):
    rank, time_ns, then = np.array(entries, np.int64).reshape(-1, 3).T
    # Scaled by 2 ** 59 the times do not fit beside the ranks.
    time_ns = time_ns * scale + (0 if scale == 1 << 59 else begin_ns)
    assert order_by(rank, time_ns, then).tolist() == np.lexsort((then, time_ns, rank)).tolist()
