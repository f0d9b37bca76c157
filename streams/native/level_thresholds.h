/* Every number of the compiled loops that decides what is said of a series: its unit, and why it is so (a paper's,
 * derived, or chosen). The sizes of what is kept stand in records.h; the rest of the room's numbers in
 * streams/level/thresholds.py. Levels are logarithms of step times.
 */

#ifndef PACEHOUND_LEVEL_THRESHOLDS_H
#define PACEHOUND_LEVEL_THRESHOLDS_H

#include <math.h>

/* What BOCD proposes (bocd.c, level_series.c). */
#define HAZARD (1.0 / 200.0) /* of a change, at each row (chosen) */
#define NOISE_WEIGHT 2.0     /* NIG alpha: what is known of the noise beforehand weighs as 2 * alpha rows (chosen) */
#define LEAST_BETA 1e-6      /* of the prior's: a series without any noise would else forget it down to 0 (chosen) */
#define PROBABILITY 0.9      /* of a change, from which on it is looked at (Falcon 4.2) */
#define LEVEL_SPREAD 0.4     /* where a new level may lie before anything of it is known (chosen) */
#define MIN_PRIOR_NOISE 0.01 /* BOCD need not split what is small against the bar of 10 % (chosen) */

/* Whether a change matters (level_series.c). */
#define AVERAGED_AREA 0.65   /* rows times excess, before a level of averaged rows is believed (chosen) */
#define RELIEF_BAR 0.9       /* of the bar of an onset, so that a level at the bar does not flap (chosen) */
#define REMAINING 0.4        /* of a slowdown, at most, once it is relieved: half of it left is another level (chosen) */
#define ONSET_ERRORS 5.25    /* standard errors (chosen: 4.5 gave an alarm or two in 1,000 series of 10,000 rows) */
#define AVERAGED_ERRORS 4.5  /* the same where rows are means: hundreds of rows, not ten thousand (chosen) */
#define LARGE log(1.2)       /* what is beyond all that was ever seen needs no model of the noise (chosen) */
#define FAR_BEYOND 2.5       /* times the furthest that any window of that length has strayed (chosen) */
#define RELIEF_ERRORS 3.0    /* standard errors between a slow level and its relief (chosen) */
#define PAUSE log(1.3)       /* a row so far above the level may be a pause: wait for the next (chosen) */
#define TAIL_EXCESS 0.02     /* what is nearer to the level than this is not disturbed (chosen) */

enum {
    HORIZON = 64,            /* rows back that an abrupt change is looked for: said by then or not at all (chosen) */
    GUARD = 96,              /* age at which a row joins the reference: beyond the horizon, or it would learn (derived) */
    LONG_TERM = 3000,        /* rows over which the noise is averaged (chosen) */
    MIN_AFTER = 10,          /* steps of a new level before it is believed: a burst of six is none (chosen) */
    MIN_AFTER_YOUNG = 16,    /* the same while fewer than YOUNG healthy rows are known (chosen) */
    YOUNG = 64,
    MIN_ROWS = 5,            /* however many steps a row is the mean of (chosen) */
    AVERAGED_STEPS = 10,     /* steps per row from which on a few rows are a level (chosen) */
    MIN_AFTER_UPDATE = 20,   /* steps, from slow to slow: not urgent, and half of a relief looks like it (chosen) */
    MIN_AFTER_SPEEDUP = 48,  /* steps: not urgent, and after a fast spell the return would look slow (chosen) */
    LONG_RELIEF = 24,        /* rows below the bar that make a relief on easier terms: it must not stick (chosen) */
    LOCAL = 12,              /* rows before a change that say what the level was just then (chosen) */
    LEARN_ROWS = 24,         /* the first reference (chosen) */
    SETTLED_ROWS = 12,       /* of it, at least, where the rows before are a warm-up: half (chosen) */
    MAX_LEARN_ROWS = 72,     /* however long the warm-up (chosen) */
    MEASURE_EVERY = 16,      /* rows that join the reference before it is measured again (chosen, for speed) */
    TAIL = 4,                /* rows after a pause that may still be disturbed: caches are cold (chosen) */
    ANNOUNCED_TAIL = 1,      /* the same where the log says when the pause was over (chosen) */
    STEPS_KNOWN_BY = 32,     /* rows over which the steps per row are averaged (chosen) */
};

/* How a level and its noise are measured (verification.c). */
#define SIGMAS 1.4826        /* of normal noise, per median distance from its median (derived) */
#define TRIM 0.2             /* of a window, at either end: pauses move its level little (chosen) */
#define CLIP 3.0             /* standard deviations that a residual counts at most: spikes are no noise of the level */
#define MIN_NOISE 0.002      /* below this, timer resolution and rounding decide (chosen) */
#define MAX_CORRELATION 0.95 /* of neighbouring rows (chosen) */
#define AVERAGED_CORRELATION 0.5 /* the same of rows that are means (chosen) */
#define SHORT 4.0            /* errors grow by 1 + 4 / n: of few rows, noise and correlation are uncertain (chosen) */
enum { NEIGHBOURS = 12 };    /* a change is located among so many steps before the proposed one (chosen) */

/* Small and slow changes (drift.c). */
enum {
    MIN_BEFORE = 48,         /* blocks that are compared with (chosen) */
    MIN_BEFORE_AVERAGED = 96, /* a row per fifty steps: warm-up is as long as that of a job, not of ten steps (chosen) */
};
#define ERRORS 5.0           /* standard errors (chosen) */
#define BEYOND 0.7           /* of the window's blocks, at least, lie beyond the middle of the two levels (chosen) */
#define RAMP_FIT 0.97        /* a ramp is said where it leaves so much less than a step does (chosen) */

/* Planned patterns (pattern.c). */
enum {
    EVERY = 64,              /* rows between two searches, or two looks at whether the pattern still holds (chosen) */
    MIN_PER_PHASE = 5,       /* rows of each phase: noise then leaves 80 % or more (derived) */
};
#define MAX_UNEXPLAINED 0.65 /* of the distances from one level, where there is a pattern (chosen: noise leaves 80 %) */
#define DROPPED_AT 0.8       /* and it is given up from here on (derived: as noise) */
#define BETTER 0.9           /* of what another period leaves: a longer one must explain more (chosen) */
#define MIN_CORRELATION 0.25 /* of rows at that distance, for a period to be tried (chosen, for speed) */
#define MIN_OFFSET 0.02      /* what a phase lies off the level, at least (chosen) */
#define CAP log(3.0)         /* a pause of x50 must not decide what is a pattern (chosen) */

#endif
