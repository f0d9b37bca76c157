/* What is kept of a series, as records of numbers of eight bytes.
 *
 * Each list of fields is the one place of its layout: the structure is made from it here, and in records.c what the
 * library tells Python, which makes its NumPy type from that (streams/level/records.py).
 */

#ifndef PACEHOUND_RECORDS_H
#define PACEHOUND_RECORDS_H

#include <stdint.h>

enum {
    MAX_RUN = 128,        /* longest run length told apart; the last cell means "at least so many observations" */
    MAX_BLOCKS = 256,     /* of eight steps or one row: what drifts are looked for in */
    STEPS_PER_BLOCK = 8,
    MAX_PERIOD = 64,      /* of a planned pattern, in rows */
    PATTERN_ROWS = 256,   /* that a pattern is looked for in */
    RECENT = 128,         /* rows that a change is looked for in, half of them at most */
    REFERENCE = 384,      /* rows that say what healthy is */
    MAX_HELD = 3,         /* so many rows in a row are no pause */
};

/* What a stretch of a series says about itself: its level, the standard deviation of its clipped residuals, their lag-1
 * correlation (0..0.95), how many steps it holds, and half the mean squares of its differences at lags 1 and 4. */
#define MEASURE(ONE, SEVERAL) \
    ONE(double, level) ONE(double, noise) ONE(double, correlation) ONE(int64_t, n) ONE(double, near) ONE(double, far)

/* Cell `r` of the three arrays: the run that holds `r` observations. Cell 0 is the prior: a run that holds none yet. */
#define POSTERIOR(ONE, SEVERAL)                                                                                       \
    ONE(double, level_0) ONE(double, kappa_0) ONE(double, beta_0)                                                     \
    SEVERAL(double, probability, MAX_RUN + 1) SEVERAL(double, mean, MAX_RUN + 1) SEVERAL(double, beta, MAX_RUN + 1)

/* Levels of the blocks of the healthy past, the rows of the one that is being filled, and the last shift found. */
#define DRIFT(ONE, SEVERAL)                                                                                           \
    SEVERAL(double, value, 2 * MAX_BLOCKS) SEVERAL(int64_t, step, 2 * MAX_BLOCKS)                                     \
    SEVERAL(int64_t, time_ns, 2 * MAX_BLOCKS) ONE(int64_t, n) SEVERAL(double, pending, STEPS_PER_BLOCK)               \
    ONE(int64_t, n_pending) ONE(int64_t, first_step) ONE(int64_t, first_ns) ONE(int64_t, healthy_since)               \
    ONE(double, base) ONE(double, after) ONE(int64_t, onset_step) ONE(int64_t, onset_ns) ONE(int64_t, is_ramp)        \
    ONE(int64_t, n_after) ONE(struct measure, scratch)

/* `offset[k]` is what a row at `index % period == k` takes longer than the level, as a logarithm. */
#define PATTERN(ONE, SEVERAL)                                                                                         \
    ONE(int64_t, period) SEVERAL(double, offset, MAX_PERIOD) SEVERAL(double, tried, MAX_PERIOD)                       \
    SEVERAL(int64_t, index, 2 * PATTERN_ROWS) SEVERAL(double, value, 2 * PATTERN_ROWS) ONE(int64_t, n)                \
    ONE(int64_t, since)

/* The state of one series. From `kind` on: the last change, valid where series_advance says that there is one. */
#define SERIES(ONE, SEVERAL)                                                                                          \
    ONE(int64_t, state) ONE(int64_t, skipped) ONE(double, min_log_change) ONE(int64_t, finds_small)                   \
    ONE(double, prune) ONE(double, steps_per_row) ONE(int64_t, seen) SEVERAL(int64_t, row_step, 2 * RECENT)           \
    SEVERAL(int64_t, row_ns, 2 * RECENT) SEVERAL(double, row_log, 2 * RECENT) ONE(int64_t, n_rows)                    \
    SEVERAL(double, reference, 2 * REFERENCE) ONE(int64_t, n_reference) ONE(int64_t, since_measured)                  \
    ONE(struct measure, measured) ONE(struct measure, scratch) ONE(struct measure, long_term)                         \
    ONE(int64_t, n_long_term) ONE(double, slow_level) ONE(double, target) SEVERAL(double, last_two, 2)                \
    ONE(struct posterior, posterior) SEVERAL(int64_t, held_step, MAX_HELD) SEVERAL(int64_t, held_ns, MAX_HELD)        \
    SEVERAL(double, held_log, MAX_HELD) ONE(int64_t, n_held) ONE(int64_t, tail) ONE(int64_t, pauses)                  \
    ONE(struct pattern, pattern) SEVERAL(double, old_offset, MAX_PERIOD) ONE(double, excess)                          \
    ONE(struct drift, drift) ONE(int64_t, kind) ONE(int64_t, step) ONE(int64_t, time_ns) ONE(double, before)          \
    ONE(double, after) ONE(double, baseline) ONE(double, probability) ONE(int64_t, is_small) ONE(int64_t, is_ramp)

#define A_NUMBER(type, name) type name;
#define AN_ARRAY(type, name, count) type name[count];
struct measure { MEASURE(A_NUMBER, AN_ARRAY) };
struct posterior { POSTERIOR(A_NUMBER, AN_ARRAY) };
struct drift { DRIFT(A_NUMBER, AN_ARRAY) };
struct pattern { PATTERN(A_NUMBER, AN_ARRAY) };
struct series { SERIES(A_NUMBER, AN_ARRAY) };

#endif
