"""Every number of `always_slow` that decides a verdict, with its unit and why it is what it is."""

MIN_ITERATIONS = 30
"""Before so many nobody is called slow from the start (chosen, as `level`: a slowdown that lasts has been seen for so
many steps)."""

LOOKS = (30, 40, 50, 60, 70, 80, 90, 100, 125, 150, 175, 200, 250, 300)
"""After so many iterations it is looked who stands apart. Whoever has not by the last of them is not slow from the
start; what comes later has a quiet time before it (chosen; as many as `slow_watch` keeps)."""

FALSE_ALARMS = 1e-4
"""Chance that noise alone makes any rank of a job stand apart at any look. Of 300 clean jobs 0.03 are then called slow;
each of n ranks gets the n-th part of it at each look (chosen)."""

MANY_PEERS = 8
"""From so many on, their spread tells how far ranks are apart that do the same (as in `groups`)."""

MIN_SHARE_OF_PART = 0.5
"""What a rank's own time is beyond its peers', as a share of `slow.min_change` of the iteration: several ranks, or a
rank and its bubbles, may make up the whole (chosen)."""

PERSISTS = 0.5
"""In each of `QUARTERS` parts of the time, and against the peers in each of its communicators, a rank stands apart by
this share of what it does in all: what began later, or comes and goes, was not there from the start (chosen)."""

QUARTERS = 4

PERIODIC_SHARE = 0.6
"""A slow rank is slow in so many of its iterations; logs, evaluations and saving come in fewer (as `ranks`)."""

MAX_LAG_SHARE = 1 / 8
"""Noise that lasts is looked for up to this share of the iterations: longer, and there is nothing to estimate it by."""

HOST_SHARE = 0.75
"""A host is slow, and no single rank, where so many of its ranks stand apart and none is as quick as its peers."""

MIN_PEERS_OF_CULPRIT = 2
"""Of two ranks that differ nobody can say which one is as it should be: with fewer peers nobody is named for sure."""

TIED = 0.4
"""Ranks whose own times correlate so much may wait for each other in calls that are not seen (as `ties`)."""

RELOOK = 10
"""Iterations between two looks at what has been said (chosen)."""

RELIEF_ITERATIONS = 20
"""It is over when in so many iterations less than half of it is left (chosen)."""
