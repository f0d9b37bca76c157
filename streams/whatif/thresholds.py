"""Every number of this room that decides a verdict: its unit, and why it is what it is (derived, or chosen).

Two more are read by pages, too, and stand in `pacehound/model/whatif_result.py`: from which slowdown on a job counts as
straggling, and how far a simulation may lie from what was recorded.
"""

WINDOWS_IN_A_ROW = 3
"""So many windows must straggle, or no longer do so, before it is said (derived: a window is one look, for its steps
are alike, as in the paper's section 4.2; a busy neighbour that spoils one look in ten spoils three in a row once in a
thousand)."""

SLOWEST_PERCENT = 3
"""Of the workers, rounded up, are the slowest of M_W (section 5.1)."""

EXPLAINS = 0.3
"""Share of the slowdown that must go with a cause, for it to be named by what its removal brings (chosen)."""

LEAST_SHARE = 0.5
"""Of the slowdown, for a few workers (M_W) or the last stage (M_S) to be its cause, as in the paper (5.1, 5.2)."""

SLOWER = 1.05
"""Times the other DP ranks of its stage a worker takes at least, and times the other stages the last one on the median
DP rank: or another one is to blame (chosen)."""

CLEARLY_SLOWER = 1.2
"""The same for workers where micro-batches are unequal: medians of some dozens of them differ, too (chosen)."""

MOST_WORKERS = 0.1
"""Share of all workers that are a few (chosen)."""

LEAST_CORRELATION = 0.9
"""Of forward and backward of a micro-batch: from here on the paper found sequence lengths to be the cause (5.3)."""

STALL = 0.2
"""A stall takes at least this share more than the worker's median compute of its kind, and so many median absolute
deviations (chosen, both)."""
STALL_SPREADS = 6.0

FEWEST_STALLS = 5
"""Computes that stall, or are held up, fewer of which are chance (chosen)."""

OTHER_PASS = 0.2
"""Share of the stalls, at most, that are in the backward pass where the garbage collector makes them (chosen)."""

MOST_ON_ONE = 0.5
"""Share of the stalls that are on one worker, at most, where they wander (chosen)."""

HELD_UP = 1.1
"""Times the same worker's others a compute beside a reduce-scatter takes, where that holds it up (chosen)."""

BESIDE = 0.1
"""Share of a compute, at least, that lies within the reduce-scatter beside it (chosen)."""

IMPOSSIBLE_S = 0.01
"""A transfer that ends this long before the last peer has started cannot be one; less is the clocks (as published)."""

STEADY = 0.25
"""A difference of matched ends that varies by more than this share of itself is no clock's (chosen)."""

CLOSE_S = 5e-5
"""Within this much, two moments on one worker count as one: the clocks of its streams (chosen)."""

MOST_MISSING = 0.01
"""Share of a step's operations; a step that misses more is left out (chosen)."""

FEWEST_STEPS = 0.5
"""Share of a trace's steps; with fewer left the trace is refused (chosen)."""

MOST_PASSES = 0.8
"""Share of a rank's passes that must have a reduction for its group to compute together; a few may have lost theirs
(chosen)."""
