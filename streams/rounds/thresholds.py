"""Every number of this room that decides what an iteration is, how clocks stand and who is given up, and why it is so.

What only bounds memory or work stands beside the code that it bounds.
"""

# What an iteration is: period.py and agreement.py follow Falcon, section 4.2.

AGREEMENT = 0.95
"""Share of calls that are equal one period later (the paper's)."""

MAX_PERIOD_CALLS = 50_000
"""Calls of one rank in the longest iteration that is looked for (chosen: bounds the search)."""

REPETITIONS = 3
"""So often a period must have been seen (derived: of two, one call by chance in both is a period)."""

MIN_CALLS = 64
"""Fewer calls repeat by chance, or inside one layer (chosen)."""

MIN_CALLS_WITHOUT_BYTES = 1_024
"""Sizes that have not recurred before so many calls may still do (chosen)."""

MIN_CALLS_OF_KIND = 24
"""Of fewer calls of one kind nobody knows whether their sizes recur (chosen)."""

BEST_BY = 0.1
"""A lag agrees as well as the best if it misses by no more than this share of what the best misses (chosen)."""

CHANCE_SIGMAS = 3.0
"""By so many standard deviations of a share a multiple of the period may agree better by chance (derived: once in 700
multiples)."""

CYCLE_ITERATIONS = 40
"""So many iterations and some extra calls may be a cycle of evaluations (chosen: nobody evaluates more often)."""

MIN_ITERATION_CALLS = 24
"""A period of so many calls is no layer (chosen, on the recorded jobs)."""

MAX_OTHER_KINDS = 3
"""Calls of kinds of their own in an evaluation; the reduction of gradients makes more (chosen)."""

RESYNC_CALLS = 64
"""A pattern is found again when so many calls, or one period, follow it (chosen, as MIN_CALLS)."""

RESYNC_IN_PLACE_CALLS = 16
"""And so many where nothing was lost, for the next other call may come soon (chosen)."""

MISSING_CALLS = 16
"""So many calls may be lost, or be others, without the iteration they belong to being given up (chosen)."""

BREAKS = 3
"""A pattern that was broken so often is perhaps a layer, not the iteration (chosen)."""

MAX_DELAY_NS = 30_000_000_000
"""A call that hangs holds up the others for no longer than this (chosen)."""

STEPS_WITHOUT = 10
"""Optimizer steps that others have made beyond the first one of which a rank has not told: it makes none (chosen: ranks
of pipelines are ahead of each other by one or two, and ranks that average parameters now and then are not so far ahead
of one that has yet to make its first step)."""

# How far clocks are apart.

SMALL_BYTES = 65_536
"""Up to here an all_reduce is over long before it matters who left first (derived: microseconds, where clocks are
compared to tens of them)."""

CLOCK_ROUNDS = 64
"""Rounds of one communicator that clocks are compared by (derived: their median is six times as sure as one)."""

CLOCK_WINDOW_NS = 60_000_000_000
"""Clocks drift apart by up to 50 us a second: what is older says where they were (derived)."""

CLOCKS_APART_NS = 250_000_000
"""Clocks so far apart are worth a word (chosen: where somebody sets them they are within some milliseconds)."""

MIN_CLOCK_ROUNDS = 3
"""Fewer have no spread (derived)."""

# Who is given up.

GIVEN_UP_AFTER_NS = 3_600_000_000_000
"""An hour of ticks. Agents that are cut off keep trying, and half an hour is the longest that NCCL lets ranks wait by
default: a job that nobody has told of for an hour trains no more. Ticks stand in the log, one a second, while a bus is
there and listened to; the host's last word would not do, for what was away may have been we (derived)."""

AWAY_NS = 60_000_000_000
"""After a gap between two ticks that is longer than this, somebody listens anew, and the hour begins again (chosen: a
worker that is restarted is back before)."""

UNANNOUNCED_S = 60.0
"""Members whom nobody has announced to a home are waited for so long where homes relay to, longer than elsewhere: their
home may have more to read than others, and only there silence is told from that (chosen: all 2,048 hosts of 16,384
ranks announce themselves in 10 s of a core)."""
