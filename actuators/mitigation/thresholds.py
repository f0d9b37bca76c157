"""What decides about mitigation, each with its unit and reason."""

from __future__ import annotations

HOPELESS_AFTER_S = 300.0
"""Of hangs longer than this 97 % never recover (CCL-D, evaluation, parameters): there is no more to wait for."""

TRUST_IN_THE_PAST = 1 / 3
"""Lambda of the learning-augmented ski rental: an action is taken between this and one over this times its price,
so that whoever is misled by the past pays at most 1 + 1/lambda = 4 times the optimum with one action. On
durations as in Falcon 3.2 history saved 14 % at 1/2, 20 % at 1/3 and 20 % at 1/4."""

MOMENTS_PER_ACTION = 9
"""Moments that are tried for each action, geometrically from lambda to 1/lambda times its price: 1.3 times apart. Odd,
so that the price itself is one of them."""

LEAST_SAVING_SHARE = 0.05
"""The past must promise to save so much before a moment is moved: a promise of 4 %, by 300 durations with a heavy tail,
came out as a loss of 2 %."""

LEAST_PAST = 20
"""Past incidents of a kind of which it is known how long they lasted; from fewer no moment is moved. Of twenty the
share that outlasts a moment is known to within 0.11 (one standard error)."""

LEAST_PRICE_S = 0.1
"""Nothing that is ordered from outside a job costs it less: an order is heard ten times a second."""

LIGHT_TRAFFIC_SHARE = 0.02
"""What a link between stages carries of what a link of a data-parallel ring does: 'tens to hundreds of MB' against
'tens of GB' (Greyhound, S3). Only which is less matters, unless somebody knows the bytes."""

MOST_LINK_MOVES = 64
"""Exchanges for congested links in one plan: beyond that the network as a whole is congested, and to move ranks about
in it helps nobody."""

ATTENTION_EQUALS_REST_AT_TOKENS = 24_576
"""Length at which attention takes as long as the rest of a layer: 4 h l^2 against 24 h^2 l operations, at a hidden size
h of 4,096. Fitted per job where it is known: what-if paper, figure 9."""

MOST_GC_INTERVAL_STEPS = 1_000
"""Twice what the what-if paper ran with (5.4: 500): memory that nobody has measured may grow."""

PLANNED_GC_STEPS = 100
"""Between two collections of all ranks where nobody knows how fast their garbage grows: a fifth of what the what-if
paper ran with (5.4), so that memory which nobody has measured grows for a fifth as long."""

GC_HEADROOM_SHARE = 0.5
"""Of the memory that is free the share which garbage may take between two collections."""

SAME_HOURS = 2
"""Hours of the day that differ by so much count as the same: jobs of others, which contend for the processors and the
network, come and go with working hours (Falcon 3.2, case 1)."""

LEAST_PROMISED_GAIN = 0.05
"""By which iterations must become shorter: half of it is what has to be seen, and means over `PACE_STEPS` iterations of
a healthy job differ by a percent or two."""

PACE_STEPS = 30
"""Iterations over which the effect of an action is measured: a fluctuation of a tenth from one to the next is two
percent in their mean."""

MOST_LOOKS = 2
"""An effect is looked for once more before an action is undone: a checkpoint may lie in the first iterations."""

PACE_WITHIN_NS = 15 * 60 * 1_000_000_000
"""Thirty iterations of half a minute."""

KEPT_SHARE = 0.5
"""Of the promised gain that has to be seen: the promise rests on speeds that are known to within a few tenths, and half
of it is still more than the action costs."""

LOOK_EVERY_NS = 30 * 1_000_000_000
"""Chosen: while micro-batches are moved the pace is asked for twice a minute, which costs a rank 1.2 us a step."""

NOTICEABLY_FASTER = 0.05
"""A pace that is faster by so much than the one which the plan has brought may mean that the fault is over."""

FIRST_TRIAL_NS = 60 * 1_000_000_000
"""After a trial that found the fault still there, doubled each time: to order the distribution of before takes some
twenty seconds, in which the job loses what it had lost."""

TRIAL_AT_LEAST_NS = 10 * 60 * 1_000_000_000
"""Without any sign: the fault may be over and nothing show it, where the others have become the slowest. A trial of
twenty seconds each ten minutes is a thirtieth of the slowdown; doubled each time."""

MOST_TRIAL_NS = 2 * 3_600 * 1_000_000_000
"""Chosen: the longest time between two trials."""

MOST_ACTIONS_PER_HOUR = 6
"""Plans of one job by itself, trials that were taken back included: what is known ten minutes after it began is not
hunted after."""

MOST_AIMED_SHARE = 0.5
"""Of a job's ranks, at whom one action is aimed: where more than half of them are to blame, the fault is something that
they have in common, and no rank's."""

APPROVE_WITHIN_NS = 3_600 * 1_000_000_000
"""A decision waits so long for a yes: longer than it takes to wake somebody, and shorter than most faults last that are
worth it (Falcon 3.3: 72 minutes on average at scale)."""

COOL_DOWN_NS = 30 * 60 * 1_000_000_000
"""After an action that did not help: the next guess about the same job is probably no better."""

RESTORE_AGAIN_NS = 15 * 1_000_000_000
"""A distribution that is to be undone and was not taken is ordered again; it is not left alone before its job ends."""

HELD_FOR_NS = 3 * 1_000_000_000
"""Who has been heard to be held is held for so long: agents say it twice a second."""

OWN_RELIEF_NS = 30 * 1_000_000_000
"""A relief that is found so soon after the effect was measured is the effect: the streams need some ten iterations."""

APPLY_WITHIN_NS = 3 * 60 * 1_000_000_000
"""In which all ranks have to say that they can: a few iterations of half a minute."""

MOST_FAILED_LOOKS = 7
"""In a row, each after twice as long: after an hour the job is taken for gone."""

MOST_RESTORES = 20
"""Then somebody has to look: it is said."""

MOST_ORDERS = 3
"""An order that nobody has applied, for an agent was slow to answer or a rank too fast, is given again so often."""

WAKE_EVERY_NS = 2 * 1_000_000_000
"""An idle agent asks once a second."""

WAKE_WITHIN_NS = 20 * 1_000_000_000
"""As for the question where ranks are (LOCATE_WITHIN_NS of control)."""

RESUMED_WITHIN_NS = 60 * 1_000_000_000
"""A job that goes on is relieved of its hang when iterations are seen again: some ten of them."""

SAVED_AFTER_STEPS = 2
"""Whoever has made two steps after it was to write a checkpoint has written it."""

MOST_STARTS = 3
"""A scheduler that is busy is asked again."""

BEGUN_WITHIN_NS = 10 * 1_000_000_000
"""Chosen: a command that is not seen to have begun by then is begun again; a small process has to start for it."""

GONE_ON_WITHIN_NS = 15 * 60 * 1_000_000_000
"""A restart of which nothing was run is not gone on with later than that: so old a journal is not gone on with either
(ADR 24), and the job may be over by then."""

START_AGAIN_NS = 15 * 1_000_000_000
"""Chosen: between two tries to start a job, and between two looks for it."""

RESTARTED_WITHIN_NS = 30 * 60 * 1_000_000_000
"""From the start to thirty iterations: Falcon's 'tens of minutes' (7.4)."""

AWAY_ATTEMPT_NS = 5 * 60 * 1_000_000_000
"""Thirty iterations of ten seconds."""
