"""Every number of this room that decides a verdict: its unit, and why it is so (a paper's, derived, or chosen)."""

from streams.spread import MAD_TO_SIGMA

# Whose delay it is (attribution/).

ATTRIBUTED_ITERATIONS = 5
"""Quiet iterations of which fewer are no comparison; and so many more make it worth asking again (chosen)."""

ANSWERED_MORE, UNANSWERED_MORE = 2, 8
"""Whose a slowdown is is asked again when one in so many more slow iterations are known, once it has an answer and
before (chosen: iterations of 5 ms were asked about 40 times a second, and an answer comes later by an eighth at most of
how long it has been slow)."""

MIN_SLOW_ITERATIONS = 3
"""Slow ones of which fewer tell nothing about who is on the path (chosen)."""

MIN_EXPLAINED = 0.5
"""Share of the growth of an iteration that is explained by what is named for sure (derived: no other can explain as
much)."""

NOT_THEIRS = 1 / 3
"""Share of the growth below which those who were named are named no longer, where the iterations are as slow as before
(chosen: two thirds of it are of others, who may have come later)."""

STILL_SLOW = 0.5
"""Share of the first growth by which iterations still are longer then (chosen: a fault that fades clears nobody)."""

MIN_TRANSFER_SHARE = 0.25
"""Share of the growth from which on a transfer is worth telling (chosen)."""

SMALLER_SHARE = 0.1
"""Share of the growth that is the smaller part of a mixed slowdown (S3), if it stands out by itself, too (chosen)."""

STANDS_OUT = 3.0
"""A link that explains less than half has to have grown by so many times what others of its kind have: on a loaded
machine, or a crowded network, all of them take longer (chosen, on the suite `root_cause`)."""

CLOCK_SHARE = 1 / 16
"""Clocks more uncertain than this share of a growth could have made it, over some rounds per iteration (derived)."""

MIN_PERSISTENCE = 0.6
"""Share of the slow iterations in which a culprit is slow, and on the critical path (chosen: more than chance, and a
rank that is slow in most is still found)."""

REFERENCE_QUANTILE = 0.25
"""Own time is held against the rank at this place: many ranks may be culprits, and all may have more to do
(chosen)."""

MANY_LOST = 0.3
"""Share of its rows from which on a rank whose rows are missing cannot be named for sure (chosen)."""

LOST_LOOKS_LIKE = 4.0
"""Times the share of a culprit's calls that are lost, of what it is late by: its peers' waiting in them may look like
so much of a transfer (chosen: of the few calls of an iteration the lost ones may be those that it is late to)."""

NEARLY = 0.5
"""Few are suspected among many only where nobody else lacks even this share of what they lack at least (chosen)."""

SIMILAR_GROWTH = 0.1
"""Whoever waits for a culprit in calls that are not seen loses as much time as that one, but for so much of it
(chosen)."""

FAR_MOVE = 3.0 * MAD_TO_SIGMA
"""Times the usual distance of a rank's own time from its median: three standard deviations. An iteration further away,
a pause of its host, says nothing of who waits for whom (derived: 1 in 370 of a normal distribution is)."""

MIN_TOGETHER = 8
"""Iterations in which both ranks have lost nothing, before it can be said that they do not move together (chosen)."""

MAX_CULPRITS = 3
"""So many ranks may be named in a job of any size (chosen: of more it is their work, or something they share)."""

MAX_CULPRIT_SHARE = 0.25
"""And so large a share of them in a larger one (chosen)."""

MIN_MORE_WORK = 0.01
"""More calls or bytes than this share are more work (chosen)."""

WORK_SHARE = 0.25
"""More calls or bytes are the reason of longer iterations from so much of the relative growth on (chosen)."""

IMBALANCE_ROUNDS = 20
"""Rounds from which on it can be said that a rank has more to do than others (chosen)."""

MIN_IMBALANCE = 0.10
"""Share of its peers' time that they wait for a rank, before that is worth a word (chosen)."""

IMBALANCE_PERSISTENCE = 0.6
"""Share of the parts of the time in which they do (chosen, as MIN_PERSISTENCE)."""

MAX_NAMED_SHARE = 0.25
"""Where a larger share of the ranks hardly waits, they have more to do than the others (chosen)."""

# The slowdown itself (slow_series.py, now_and_then.py, long_iterations.py, seldom.py, cycles.py, pace.py, role.py).

HISTORY_ITERATIONS = 300
"""Iterations kept: enough for a baseline before an onset and for the slow stretch since (chosen)."""

BASELINE_ITERATIONS = 100
"""Of these are quiet, at most, and held against the slow ones (chosen)."""

BURST = 1.15
"""An iteration of a burst takes at least so many times the median one (chosen)."""

MOST_OF_LOSS = 0.5
"""Who makes iterations slow now and then is asked of those in which so much of what is lost is lost (chosen: there are
many more in which jitter is, and their ranks are anybody; of single pauses in a job with jitter four fifths took in
some of it in three of six)."""

ALIKE = 0.5
"""And of all that lose at least so large a part of what the least of these loses (chosen: a rhythm has no gap)."""

MOST_BY_CHANCE = 1e-4
"""Likelier than that ranks that pause all alike have as large a part in the slow iterations as some have: they are not
named (chosen: of four ranks the same one eight times, of sixteen five times; it is asked ten times of so many as are
kept, so that one job in a thousand at most that is slow by chance has a name in it)."""

WORTH_SAYING = 2.0
"""What slow iterations cost is said again when it has grown so many times (chosen)."""

CYCLES_KEPT = 48
"""Whole cycles of steps that are kept, of those before an onset and since (chosen: a sixth of the single ones)."""

QUIET_CYCLES = 24
"""Of these are held against the slow ones, at most (chosen: the first that a level is known of)."""

CYCLES_ASKED = 24
"""After so many slow cycles in which nobody stands apart their level is usual (chosen, as QUIET_CYCLES)."""

RHYTHM = 1.1
"""Cycles whose steps take so many times what most steps take had long ones before (chosen: what counts as slow)."""

LONG_STEP = 1.5
"""Or whose longest step takes so many times what most take: one in thirty is little of all thirty (chosen: well beyond
what jitter makes of the longest of them)."""

LONGER_PART = 1.25
"""Who had so many times the own time of others before does in the long steps what they do not do (chosen)."""

SELDOM_KEPT = 32
"""Long iterations that are kept however far they lie apart (chosen: of two ranks the same one makes fourteen in a row
before it is named)."""

HARDLY = 8.0
"""What loses so many times less than a new one is jitter beside it (chosen: pauses of one reason differ by less)."""

SELDOM_OVER = 5.0
"""They are over when none has come for so many times their usual distance (derived: of pauses at random one distance
in a hundred and fifty is as long)."""

WHOLE_STEPS_SHARE = 0.6
"""What comes after whole multiples of so many steps, by this share of its distances, is done by the script (chosen:
pauses of another reason may come between, and by chance a fifth of distances of five steps and more are such)."""

BEGINS_WITHIN = 2.0
"""It was meant from the beginning on if the first came within so many distances of it (chosen: one may be hidden by the
learning of the level)."""

STRETCH = 16
"""Iterations of one stretch: a rhythm of up to so many has a slow one in each (chosen)."""

STRETCHES = 4
"""So many are looked at, for one pause makes one of them slow and a slowness all of them (chosen)."""

USUAL_SHARE = 0.9
"""A pace that one of ten stretches of before has reached is usual (chosen: such a job is uneven by itself)."""

MAX_SPELL_GAP = 3
"""Slow iterations with no more quiet ones between them are one episode (chosen, as in `level/bursts.py`)."""

MIN_SPELLS = 5
"""From so many on a rhythm is no chance (chosen: four equal gaps)."""

EVEN_SHARE = 0.1
"""Gaps that differ by no more than this share of the typical one are a rhythm (chosen: work is done after whole
steps, so that one by the clock comes up to a step late)."""

EVEN_GAPS = 0.75
"""Share of the gaps of a rhythm by the clock that are even (chosen: gaps at random come to a fifth)."""

IN_STEP = 0.6
"""Share of a rank's slow episodes that come in a rhythm of steps, if it is one (chosen: a rank that pauses besides in
one step of a hundred has a third more than it has logs, every ten steps)."""

STEPS_BY_CHANCE = 0.01
"""Likelier than that, steps at random are no rhythm (chosen: who is slow by fits has a name all the same)."""

# The machine (processors.py, gpu_state.py).

CROWDED = 0.5
"""Who has a processor for less than this share of the time in which it wants one waits for longer than it runs
(derived)."""

SATURATED = 0.8
"""Share of all processors of a host, over some seconds: with less than this there is one for who wants it, but that
several ranks of a job begin to compute at the same moment (chosen: a neighbour that computes most of the time reaches
it)."""

CROWD_WAIT = 0.1
"""Share of each second for which every rank waits for a processor, if slowness without a name may be the machine's
(chosen: on one with processors to spare four ranks that began together waited for half as much)."""

SHARED_GROWTH = 0.25
"""Where the own time of ranks that only wait grows by such a share of a slow rank's, it does not stand apart on a full
machine (chosen: a clean job beside a task of the lowest priority, which slowed both of its ranks: 0.36)."""

AWAITED_NS = 14_000_000_000
"""Two readings since a slowdown began are waited for so long (derived: they are five seconds apart, and told with the
next flush, four seconds later at the latest); afterwards an answer stands without them."""

CROWD_PATIENCE_NS = 60_000_000_000
"""What lasts so long is told although the machine is crowded (chosen: most builds are over then)."""

CROWD_LOOKED_AT_NS = 30_000_000_000
"""Whether the machine is crowded is a matter of so long where there is no beginning (chosen: six readings)."""

LOW_CLOCK = 0.9
"""A clock below this share of the other GPUs' median is low (chosen)."""

HOT_C = 85
"""From so many degrees Celsius on a GPU is hot (chosen: near where data-centre GPUs begin to slow down)."""

# Calls and links (slow_rounds.py, groups.py, rates.py, connections.py, critical_path.py, transfer_times.py).

BASE_ROUNDS = 100
"""Rounds of a kind that the usual time is taken from (CCL-D's T_base)."""

BASE_NS = 120_000_000_000
"""Or so long, where they are rare (chosen)."""

SLOW_WINDOW_NS = 60_000_000_000
"""Rounds of so long are looked at together (chosen)."""

THETA = 3.0
"""So many times the usual one is slow, before it is learnt (CCL-D: usually close to 3)."""

MIN_THETA = 1.0
"""The least that is learnt (chosen)."""

LEARNT_FROM = 10
"""Windows that it is learnt from, at least (chosen)."""

SLOW_SIGMAS = 6.0
"""And so many of their deviations beyond them (chosen)."""

REPEATED = 3
"""Windows in a row, more or less: one that is not slow takes one back (chosen)."""

GROUP_RATIO = 1.1
"""Times the median of its kind from which on a group is slow (Falcon 4.3)."""

GROUP_FALSE_ALARMS = 0.01
"""Chance that any of the groups of a kind is called slow by the noise of its rounds alone (chosen)."""

RATE_ROUNDS = 3
"""Rounds with rates from which on they are compared (derived: two have no middle)."""

DROPPED = 0.75
"""A rank sends slowly at less than this share of its earlier rate, held against the others' share (chosen)."""

MAX_DROPPED_SHARE = 0.25
"""Where more ranks than this share have dropped, nobody is singled out (two may always have; chosen)."""

MIN_SENT_BYTES = 65_536
"""What has sent less since then has nothing to be measured by (chosen)."""

MIN_OF_LARGEST = 0.1
"""A connection that sends less than this share of what the largest among some ranks sends holds nothing up (chosen:
what goes the other way of gloo's ring, and what other communicators send, is 3 % at most, measured; halving sends an
eighth in its third step)."""

FAR_BELOW = 0.5
"""A connection is slow below this share of its peers' median rate, and of its own earlier one where that is known
(chosen)."""

MIN_BUSY = 0.2
"""Share of the time in which it is busy sending: below, its rate says nothing (chosen)."""

WAITS_FOR_NO_RATE = 20.0
"""A connection over which the network delivers so many times what gets through while it is busy waits for
acknowledgements, not for the network (chosen: 1 to 9 on a link narrowed to 5 MB/s, whose bucket lets bursts through; 46
and more in rings of gloo that wait for a slow edge or send a few bytes, measured)."""

STRONG_BUSY = 0.5
"""From this share on it is strong evidence beside its own earlier rate, also where little is sent again (chosen)."""

MIN_RETRANSMITTED = 0.01
"""Share of what is sent again from which on a link is bad (chosen)."""

AT_ONCE_NS = 20_000
"""A rank stood still for a send whose end its next call follows within this time (chosen)."""

AT_ONCE_SHARE = 0.01
"""Or within this share of the send (chosen)."""

BESIDE_SHARE = 0.5
"""A communicator of whose calls so many contain whole calls of another one runs beside the work (chosen)."""

TYPICAL_ROUNDS = 8
"""Rounds of one kind from which on a typical transfer is known (chosen)."""

# Who is slow from the first step on (always/).

MIN_ITERATIONS = 30
"""Before so many nobody is called slow from the start (chosen, as `level`: a slowdown that lasts has been seen for so
many steps)."""

LOOKS = (30, 40, 50, 60, 70, 80, 90, 100, 125, 150, 175, 200, 250, 300)
"""After so many iterations it is looked who stands apart. Whoever has not by the last of them is not slow from the
start (chosen; as many as `slow_watch` keeps)."""

LATELY = 100
"""Who becomes slow later has a quiet time before it, and makes a new level; but where iterations differ in length by
more than that (sequences, rollouts) no level shows it, and its peers in the same iterations do. At each look, and every
so many iterations behind the last of `LOOKS`, the last so many are looked at, too (chosen: later than a level that is
one)."""

UNEVEN = 0.25
"""Where what all ranks of a part do differs by this share from iteration to iteration, what one does beyond it is held
against it: sequences that are twice as long cost a slow rank twice as much (chosen: noise is a tenth)."""

LEFT_OUT = 24
"""At each look all iterations are looked at, and those from where their level begins on, within so many; or without so
many where it begins nowhere: what begins within them has no level before it (derived: `LEARN_ROWS` of
`level_thresholds.h`)."""

LOOKED_AT = 3
"""Stretches of iterations that each look has at most."""

BEYOND_MIDDLE = 0.9
"""Share of the iterations before ranks became slow whom no peers tell, and of those since, on their side of the middle
between the two (chosen: a pause in ten, and of independent values one split in a thousand that is so by chance)."""

FALSE_ALARMS = 1e-4
"""Chance that noise alone makes any rank of a job stand apart at any look. Of 300 clean jobs 0.03 are then called
slow; each of n ranks gets the n-th part of it at each look (chosen)."""

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
"""Noise that lasts is looked for up to this share of the iterations: longer, and there is nothing to estimate it
by."""

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
