"""Every number of this room that decides a verdict, with its unit and why it is what it is."""

PACE_ITERATIONS = 300
"""The job's pace is the median of so many iterations: as many as are compared when one is called slow (chosen)."""

UNMARKED_PATIENCE_NS = 30_000_000_000
"""Recurring calls count as iterations when their period has held for so long and no optimizer step been seen (chosen:
the slowest first step of the recorded jobs, which compiles, takes less)."""

ROUNDS_BEFORE_FIRST_NS = 60_000_000_000
"""Before the first iteration has ended, rounds of this last stretch are kept (chosen: bounds the memory)."""

MAX_PLANNED_SHARE = 0.2
"""Where more iterations than this hold an evaluation or a checkpoint, it is part of the iteration (chosen)."""

CLOCK_JUMP_TICKS = 3_600
"""Every host speaks once a second; where nobody has for so many ticks a clock has jumped, and time jumps with it
(chosen: as long as a silent host is waited for)."""

LATE_NS = 2_500_000_000
"""A host speaks once a second; what one that is so late has said last need not hold any more (derived: two words
missed, and half a second on the way)."""

QUIET_NS = 10_000_000_000
"""A relieved incident is closed after this long without a relapse (chosen)."""

SHORT_WINDOW_NS = 600_000_000_000
"""Short slowdowns of this last stretch are looked at together (chosen: long enough for a pause every minute or two)."""

MIN_SHORT = 5
"""Fewer of them are chance (chosen, as in `level`: five bursts)."""

NAMED_IN_MOST = 0.8
"""A rank that was named in so many of them is what they have in common (chosen)."""

MAX_SHORT_KEPT = 1_024
"""Bounds the memory: where more come in the window, those of its end tell enough."""

COST_UPDATE_FACTOR = 2.0
"""The cost of an open incident is said again when it has doubled; an event per iteration would help nobody (chosen)."""

COST_UPDATE_FROM_S = 60.0
"""And not below this: the first minute is said when it opens and when it closes (chosen)."""

REPEAT_NS = 600_000_000_000
"""A slowdown of the same ranks or links for the same cause so soon after the last one is the same incident (chosen: as
long as short slowdowns are looked at together)."""

MAX_EPISODES_TOLD = 16
"""Findings that one incident holds; of more episodes the first and latest are told, and the cost of all (chosen)."""

RECURRED_OFTEN = 100
"""Before recurring calls count as iterations, limits go by their period once it has recurred so often (chosen: more
than the micro-batches of a first iteration, whose compiling may come next)."""

MOST_PAIRS = 4_096
"""Pairs of ranks that talk to each other, of which a layout is read: 2,048 ranks with two neighbours each in pipelines.
Of larger jobs the shape is not read from calls."""

MOST_GROUPS = 512
"""Communicators of which a layout is read: the first that are heard of. All families are among them (chosen)."""

SHAPE_STEPS = 6
"""Iterations over which the micro-batches of a pipeline are counted, by the middle one: one in five may lie across a
boundary (chosen)."""

SHAPE_TIMES = 2_048
"""Rounds of one pair, and of one group, that are remembered: 341 in each of six iterations (chosen)."""

SHARDED_SHARE = 0.1
"""Of the bytes that replicas move among each other: so much is gathered or scattered where parameters or gradients are
sharded, which is half of them (ZeRO 1) or all (FSDP). A job with DistributedDataParallel gathers a few bytes when it
begins, and a metric now and then (derived)."""

MOST_OFFERS = 64
"""Hosts that could take part in a job which has lost some: as many as a piece of evidence lists (chosen)."""

MOST_LOSSES = 64
"""Losses of one job whose later versions still tell who could take part: more than have open incidents (chosen)."""
