"""Every number of this room that decides a verdict: its unit, and why it is so (a paper's, derived, or chosen).

The compiled loops have theirs in `streams/native/level_thresholds.h`.
"""

import math

# How long (step_watch.py).

LASTING_STEPS = 30
"""A slowdown lasts, and is worth waking somebody, after so many steps (chosen: as many as a fault of a real job may
take to be named)."""

STILL_ROWS = 10
"""Rows of which most must still be slow for it to last: a relief is said only some steps after it came (derived: an
abrupt change is said after as many)."""

STILL_SHARE = 0.6
"""Share of them (chosen: more than chance, and a few fast steps are no relief)."""

REMAINDER_STEPS = 96
"""A slowdown is what is left of the one before if it is placed within so many steps after its relief (derived: only
what is older joins the reference, so that what is new is first seen then) ..."""

SAME_LEVEL = 0.05
"""... and its level is the one that the relief came down to, by so much as a logarithm (chosen: half of what is
abrupt)."""

# The work (step_watch.py).

WORK_ROWS = 512
"""Rows whose batch size and sequence length are remembered (chosen)."""

COMPARED_ROWS = 100
"""Rows before a change that say what the work was just then (chosen: within one stage of a ramp)."""

EXPLAINED = 0.5
"""Share of a change of step time that the change of the work makes up, if it is its reason (derived: nothing else then
explains as much)."""

SAME_RAMP_ROWS = 512
"""Rows within which another change of the work is the next stage of the same one (chosen, as `WORK_ROWS`)."""

# Earlier runs that had the same change (earlier_runs.py).

MIN_STEPS_APART = 20
"""Steps by which two runs may differ in when it came (chosen)."""

SHARE_APART = 0.02
"""The same as a share of the steps before it: schedules are set in tokens or seconds, too (chosen)."""

MAX_DIFFERENCE = 0.05
"""By so much, as a logarithm, the size of a change may differ from run to run (chosen: half of what is abrupt)."""

SHARE_DIFFERENCE = 0.3
"""The same as a share of the change (chosen)."""

# Earlier runs that were faster from the start (since_start.py).

COMPARED_RUNS = 3
"""The last runs are compared: those before may have done other work (chosen)."""

FEWEST_RUNS = 2
"""One alone does not tell by how much runs differ (derived)."""

SPREADS = 2.0
"""It must lie beyond the slowest of them by so many times what they differ by among themselves (chosen: with three runs
of one pace, chance puts a fourth so far out once in twenty times at most)."""

AGAIN_AS_FAST = 0.5
"""It is over when less than this share of the difference is left (chosen: half)."""

# Single slow steps and short bursts that come again and again (bursts.py).

BURST_ROWS = 256
"""Rows within which bursts are counted (chosen)."""

MIN_BURSTS = 5
"""So many within them are intermittent slowness (chosen: fewer happen to healthy jobs)."""

MIN_BURST_LOSS = 0.01
"""Share of the time that they cost together, at least (chosen)."""

MIN_BURST_EXCESS = math.log(1.15)
"""A row this far above the healthy level, as a logarithm, is slow (chosen: beyond what is abrupt, 10 %)."""

BURST_SIGMAS = 8.0
"""And so many standard deviations of the last rows (chosen: step times have tails far heavier than normal ones)."""

NOISE_ROWS = 64
"""The last rows, which say what that deviation is (chosen: bursts are a few of them, and do not move a median)."""

MAX_BURST_GAP = 3
"""Rows between two slow ones of one burst (chosen)."""

MAX_BURST_EXCESS = 1.0
"""More than so many step times lost in a row count as so many: one pause of x50 is no burst of slowness (chosen)."""

BURSTS_KEPT = 128
"""Bursts that are remembered, to see at what distance they recur (chosen: half of the rows, at the most)."""

REPEATS = 3
"""Times that a distance must have come again before bursts recur at it (chosen: four in a row)."""

MAX_REPEATS = 12
"""Times after which no more are looked for (chosen)."""

BY_CHANCE = 0.05
"""Probability that bursts would lie at such a distance by chance, over all distances tried, at most (the usual
five in a hundred)."""

ESTABLISHED_ROWS = 1_000
"""With more rows a job has a usual rate of bursts that news is measured against (chosen)."""

BURST_CHANCE = 1e-4
"""Probability of as many bursts at that rate, at most (chosen: bursts are looked at thousands of times in a run)."""

FORGET_ROWS = 2_000.0
"""Over so many rows the usual rate is forgotten (chosen: twice what establishes it)."""

REMAINING_BURSTS = 1
"""It is over where no more are within the window (chosen: one alone is nothing)."""

# Single long steps of a log (pauses.py).

MUCH_LONGER = 10.0
"""Times the median step: checkpoints and evaluations of ordinary logs take less more often (chosen)."""

SAME_DISTANCE = 0.02
"""By so much distances may differ that count as one (chosen, as bursts.py does: a sixty-fourth)."""

WARM_UP_ROWS = 3
"""The first rows compile and load (chosen: as many as the slowest recorded logs take)."""
