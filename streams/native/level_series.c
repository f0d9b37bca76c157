/* The state of one series of step times, and what each row does to it: the heart of streams/level/changepoint.py.
 *
 * BOCD proposes that something has changed (bocd.c, Falcon 4.2), the bars of verification.c decide whether it matters,
 * drift.c looks for what is small or slow, and pattern.c takes planned patterns out beforehand.
 */

#include "bocd.h"
#include "drift.h"
#include "level_thresholds.h"
#include "pattern.h"
#include "verification.h"

#include <math.h>

/* In the order of STATES and KINDS in streams/level/level_series.py. */
enum { LEARNING, HEALTHY, SLOW };
enum { NONE = -1, ONSET, WORSE, EASED, RELIEF, SPEEDUP };

/* Tried too, for correlated noise makes BOCD split a level again. */
static const int64_t windows[] = {5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64};
enum { N_WINDOWS = sizeof windows / sizeof *windows };

/* Each row is the mean of so many steps that a few rows are a level. */
static bool is_averaged(const struct series *s)
{
    return s->steps_per_row >= AVERAGED_STEPS;
}

static int64_t min_rows(const struct series *s, int64_t steps)
{
    return larger_of((int64_t)ceil((double)steps / s->steps_per_row), MIN_ROWS);
}

/* The level of the newest `n` rows. */
static double newest(const struct series *s, int64_t n)
{
    return level_of(s->row_log + s->n_rows - n, n);
}

/* The oldest `n` rows are no longer recent. */
static void forget(struct series *s, int64_t n)
{
    int64_t left = s->n_rows - n;
    memmove(s->row_step, s->row_step + n, sizeof *s->row_step * (size_t)left);
    memmove(s->row_ns, s->row_ns + n, sizeof *s->row_ns * (size_t)left);
    memmove(s->row_log, s->row_log + n, sizeof *s->row_log * (size_t)left);
    s->n_rows = left;
}

static void push_row(struct series *s, int64_t step, int64_t time_ns, double log_time)
{
    if (s->n_rows == 2 * RECENT)
        forget(s, RECENT);
    s->row_step[s->n_rows] = step;
    s->row_ns[s->n_rows] = time_ns;
    s->row_log[s->n_rows] = log_time;
    s->n_rows++;
}

/* The oldest `n` rows are healthy. */
static void join_reference(struct series *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (s->n_reference == 2 * REFERENCE) {
            memcpy(s->reference, s->reference + REFERENCE, sizeof *s->reference * REFERENCE);
            s->n_reference = REFERENCE;
        }
        s->reference[s->n_reference++] = s->row_log[i];
    }
    s->since_measured += n;
    forget(s, n);
}

static double *reference_of(struct series *s)
{
    return s->reference + larger_of(s->n_reference - REFERENCE, 0);
}

static int64_t n_reference_of(const struct series *s)
{
    return smaller_of(s->n_reference, REFERENCE);
}

static void move_reference(struct series *s, double by)
{
    for (int64_t i = larger_of(s->n_reference - REFERENCE, 0); i < s->n_reference; i++)
        s->reference[i] += by;
}

/* Of the two measures of the noise, the one by which levels of 16 steps scatter more; of few rows a warm-up may be half. */
static void at_least_long_term(const struct series *s, struct measure *m)
{
    const struct measure *long_term = &s->long_term;
    if (s->n_long_term >= YOUNG && standard_error(long_term->noise, long_term->correlation, s->n_long_term, 16) >
                              standard_error(m->noise, m->correlation, m->n, 16)) {
        m->noise = long_term->noise;
        m->correlation = long_term->correlation;
    }
}

static void measure_reference(struct series *s)
{
    if (s->since_measured <= 0)
        return;
    measure(reference_of(s), n_reference_of(s), is_averaged(s), &s->measured);
    if (!is_averaged(s)) {
        /* A few hundred correlated steps say little about their noise; what thousands said is not forgotten. */
        s->n_long_term += s->since_measured;
        double weight = (double)s->since_measured / (double)smaller_of(s->n_long_term, LONG_TERM);
        s->long_term.near += (s->measured.near - s->long_term.near) * weight;
        s->long_term.far += (s->measured.far - s->long_term.far) * weight;
        by_differences(&s->long_term);
        at_least_long_term(s, &s->measured);
    }
    s->since_measured = 0;
}

/* BOCD sees the median of the last three: a single pause does not restart it. */
static void propose(struct series *s, double log_time)
{
    double a = s->last_two[0], b = s->last_two[1];
    double median = larger(smaller(a, b), smaller(larger(a, b), log_time));
    s->last_two[0] = b;
    s->last_two[1] = log_time;
    bocd_observe(&s->posterior, median, s->prune);
}

static void push_drift(struct series *s)
{
    for (int64_t i = 0; i < s->n_rows; i++)
        drift_push(&s->drift, s->row_step[i], s->row_ns[i], s->row_log[i], s->steps_per_row);
}

/* How many of the oldest rows, half of them at most, still fall: the end of a warm-up.
 *
 * It would pass for strongly correlated noise, and hide every change until hundreds of rows are known. */
static int64_t warm_up_of(const double *rows, int64_t n)
{
    double settled = level_of(rows + n / 2, n - n / 2), distances[n];
    for (int64_t i = n / 2; i < n; i++)
        distances[i] = fabs(rows[i] - settled);
    double highest = settled + larger(TAIL_EXCESS, CLIP * SIGMAS * median_of(distances + n / 2, n - n / 2));
    int64_t first = n / 2, above = 0;
    for (int64_t i = n / 2 - 1; i >= 0 && above < 3; i--) {
        above = rows[i] > highest ? above + 1 : 0;
        first = above ? first : i;
    }
    return first;
}

/* How many of the newest rows are one level: the longest stretch that hardly rises or falls; 0 where there is none. */
static int64_t settled_rows(const struct series *s)
{
    for (int64_t n = LEARN_ROWS; n >= SETTLED_ROWS; n -= LEARN_ROWS / 6) {
        const double *rows = s->row_log + s->n_rows - n;
        /* Half of the bar over all rows; of fewer as steep a line makes less. */
        double most = 0.5 * s->min_log_change * (double)n / LEARN_ROWS;
        if (fabs(level_of(rows, n / 2) - level_of(rows + n / 2, n - n / 2)) <= most)
            return larger_of(n - warm_up_of(rows, n), SETTLED_ROWS);
    }
    return 0;
}

static void learn(struct series *s)
{
    if (s->n_rows < LEARN_ROWS)
        return;
    int64_t n = settled_rows(s);
    if (n == 0 && s->n_rows < MAX_LEARN_ROWS)
        return;
    n = n ? n : LEARN_ROWS;
    const double *window = s->row_log + s->n_rows - n;
    measure(window, n, is_averaged(s), &s->scratch);
    bocd_begin(&s->posterior, s->scratch.level, LEVEL_SPREAD, larger(s->scratch.noise, MIN_PRIOR_NOISE));
    s->last_two[0] = s->last_two[1] = window[0];
    for (int64_t i = 0; i < n; i++)
        propose(s, window[i]);
    forget(s, s->n_rows - n);
    push_drift(s);
    join_reference(s, n);
    double first = s->measured.level;
    measure_reference(s);
    for (int64_t i = 0; i < 2 * PATTERN_ROWS; i++)
        s->pattern.value[i] += first - s->measured.level;
    s->state = HEALTHY;
}

/* Write down the change to the newest `n_after` rows. */
static int64_t say(struct series *s, int64_t kind, int64_t n_after, double before, double baseline, double probability)
{
    int64_t first = s->n_rows - n_after;
    s->kind = kind;
    s->step = s->row_step[first];
    s->time_ns = s->row_ns[first];
    s->before = before;
    s->baseline = baseline;
    s->probability = probability;
    s->after = newest(s, n_after);
    s->is_small = s->is_ramp = 0;
    if (kind != RELIEF)
        s->slow_level = s->after;
    return kind;
}

/* Quickly: a level that persists has most of its rows beyond the middle, so beyond four tenths of the bar. */
static bool may_have_changed(const struct series *s, int64_t horizon)
{
    double bar = 0.4 * s->min_log_change;
    int64_t above = 0, below = 0;
    for (int64_t n = 1; n <= horizon; n++) {
        double excess = s->row_log[s->n_rows - n] - s->measured.level, most = 0.6 * (double)n;
        if (excess > bar)
            above++;
        else if (excess < -bar)
            below++;
        if (n >= MIN_ROWS && ((double)above >= most || (n >= MIN_AFTER_SPEEDUP && (double)below >= most)))
            return true;
    }
    return false;
}

/* Whether a change is more than noise: by its standard errors, or far beyond all that was ever seen.
 *
 * The second way is for bursts: they look like correlation, and of little known that is believed to be strong. */
static bool stands_out(const struct series *s, const double *known, int64_t n_known, int64_t n_after, double change)
{
    const struct measure *m = &s->scratch;
    double error_before = standard_error(m->noise, m->correlation, m->n, m->n);
    double error_after = standard_error(m->noise, m->correlation, m->n, n_after);
    if (is_averaged(s))
        return change >= AVERAGED_ERRORS * hypot(error_after, error_before);
    if (change >=
        ONSET_ERRORS * larger(hypot(error_after, error_before), hypot(strays(known, n_known, n_after), error_before)))
        return true;
    /* Of a job that is young there are no four windows as long: shorter ones stray further, so they may be asked. */
    int64_t n = smaller_of(n_after, n_known / 4);
    return change >= LARGE && n >= LEARN_ROWS / 4 && change >= FAR_BEYOND * highest_stray(known, n_known, n, m->level);
}

/* The recent rows after the first `n_before` are healthy, and all that is known of that. */
static void new_baseline(struct series *s, int64_t n_before)
{
    forget(s, n_before);
    if (s->n_rows < FAR + 2) /* Too few to measure; noise is relative, so what the old level knew of it still holds. */
        move_reference(s, newest(s, s->n_rows) - s->measured.level);
    else
        s->n_reference = 0;
    s->drift.n = s->drift.n_pending = 0;
    push_drift(s);
    join_reference(s, s->n_rows);
    measure_reference(s);
    s->state = HEALTHY;
}

/* Whether the newest rows, `n_after` of them as was proposed, are another level than the healthy one. */
static int64_t judge_healthy(struct series *s, int64_t n_after, double probability)
{
    const double *rows = s->row_log;
    int64_t n_rows = s->n_rows;
    double after = newest(s, n_after), roughly = after - s->measured.level;
    if (fabs(roughly) < 0.8 * s->min_log_change || (roughly < 0.0 && n_after < MIN_AFTER_SPEEDUP))
        return NONE;
    /* The young rows before the change belong to the reference too, or it would be 24 rows for a long time. */
    double all[REFERENCE + 2 * RECENT];
    int64_t n_old = n_reference_of(s), n_all = n_old + n_rows - n_after, n_known = smaller_of(n_all, REFERENCE);
    memcpy(all, reference_of(s), sizeof *all * (size_t)n_old);
    memcpy(all + n_old, rows, sizeof *all * (size_t)(n_rows - n_after));
    const double *known = all + n_all - n_known;
    if (n_known < YOUNG) {
        int64_t n_warming = warm_up_of(known, n_known);
        known += n_warming;
        n_known -= n_warming;
    }
    /* What is cheap and turns most of them down comes first; the noise is measured last. */
    double before = level_of(known, n_known), sign = roughly > 0.0 ? 1.0 : -1.0, change = sign * (after - before);
    if (change < s->min_log_change ||
        !persists(rows + n_rows - n_after, n_after, 0.5 * (after + before), sign, false))
        return NONE;
    struct measure *m = &s->scratch;
    measure(known, n_known, is_averaged(s), m);
    at_least_long_term(s, m);
    if (!stands_out(s, known, n_known, n_after, change))
        return NONE;
    int64_t located = locate(m->level, rows, n_rows, n_after, is_averaged(s));
    if (sign * (newest(s, located) - m->level) >= s->min_log_change)
        n_after = located; /* else it ran on into a smaller change before this one */
    int64_t near = larger_of(n_rows - n_after - LOCAL, 0);
    if (n_rows - n_after >= 3) { /* else all but the reference is the new level */
        located = split(rows + near, n_rows - near, 3, n_after);
        if (sign * (newest(s, located) - m->level) >= s->min_log_change)
            n_after = located;
    }
    int64_t n_before = n_rows - n_after;
    if (sign < 0.0) {
        if (n_after < MIN_AFTER_SPEEDUP)
            return NONE;
        if (n_known < LEARN_ROWS) { /* the job has just begun: its warm-up lasted longer than it seemed */
            new_baseline(s, n_before);
            return NONE;
        }
        say(s, SPEEDUP, n_after, m->level, m->level, probability);
        new_baseline(s, n_before);
        return SPEEDUP;
    }
    if (n_after < min_rows(s, n_known >= YOUNG ? MIN_AFTER : MIN_AFTER_YOUNG))
        return NONE;
    if (is_averaged(s) && (double)n_after * change < AVERAGED_AREA)
        return NONE;
    int64_t n_local = smaller_of(n_before, LOCAL);
    s->target = m->level;
    if (n_local >= MIN_ROWS) {
        /* What the level returns to, if the healthy level itself had moved. */
        double local = level_of(rows + n_before - n_local, n_local);
        s->target = smaller(larger(local, m->level), m->level + 0.5 * change);
    }
    say(s, ONSET, n_after, m->level, m->level, probability);
    join_reference(s, n_before);
    measure_reference(s);
    drift_drop_since(&s->drift, s->step);
    s->state = SLOW;
    return ONSET;
}

/* Whether the blocks of the healthy past have shifted by little. */
static int64_t judge_small(struct series *s)
{
    struct drift *d = &s->drift;
    if (!drift_judge(d, s->steps_per_row))
        return NONE;
    if (is_averaged(s) && (double)d->n_after * (d->after - d->base) < AVERAGED_AREA)
        return NONE;
    /* Blocks hide what is in them: the rows, too, must lie beyond the middle, or it is a spell now and then. */
    int64_t n = smaller_of(d->n_after * drift_rows_per_block(s->steps_per_row), s->n_rows);
    if (!persists(s->row_log + s->n_rows - n, n, 0.5 * (d->after + d->base), 1.0, false))
        return NONE;
    s->kind = ONSET;
    s->step = d->onset_step;
    s->time_ns = d->onset_ns;
    s->before = s->baseline = d->base;
    s->after = s->slow_level = d->after;
    s->probability = 1.0;
    s->is_small = 1;
    s->is_ramp = d->is_ramp;
    s->target = d->base;
    /* The reference has learnt some of the shift: its scatter is right, its level is not. */
    move_reference(s, d->base - s->measured.level);
    s->measured.level = d->base;
    drift_drop_since(d, d->onset_step);
    int64_t first = s->n_rows;
    while (first && s->row_step[first - 1] >= s->step)
        first--;
    join_reference(s, first);
    s->since_measured = 0;
    s->state = SLOW;
    return ONSET;
}

static void end_slowness(struct series *s, int64_t n_slow)
{
    forget(s, n_slow);
    s->state = HEALTHY;
    s->drift.healthy_since = s->step;
}

/* Whether the newest rows, `n_after` of them as was proposed, are another level than the slow one. */
static int64_t judge_slow(struct series *s, int64_t n_after, double probability)
{
    const struct measure *m = &s->measured;
    const double *rows = s->row_log;
    int64_t least = min_rows(s, MIN_AFTER), n_rows = s->n_rows;
    if (n_rows - n_after < least)
        return NONE;
    n_after = locate(level_of(rows, n_rows - n_after), rows, n_rows, n_after, is_averaged(s));
    int64_t near = larger_of(n_rows - n_after - LOCAL, 0);
    n_after = split(rows + near, n_rows - near, 3, n_after);
    int64_t n_slow = n_rows - n_after;
    if (smaller_of(n_after, n_slow) < least)
        return NONE;
    double before = level_of(rows, n_slow), after = newest(s, n_after);
    double excess = after - s->target, was = before - s->target, errors = ONSET_ERRORS, smallest = s->min_log_change;
    int64_t kind;
    bool is_long = false;
    if (excess <= smaller(RELIEF_BAR * s->min_log_change, REMAINING * was)) {
        kind = RELIEF;
        is_long = n_after >= min_rows(s, LONG_RELIEF);
        errors = RELIEF_ERRORS;
        smallest = 0.25 * s->min_log_change;
    } else if (n_after < min_rows(s, MIN_AFTER_UPDATE)) {
        return NONE;
    } else {
        kind = excess > was ? WORSE : EASED;
    }
    double sign = after > before ? 1.0 : -1.0, change = sign * (after - before);
    if (change < smallest || !persists(rows + n_slow, n_after, 0.5 * (after + before), sign, is_long))
        return NONE;
    double error_before = standard_error(m->noise, m->correlation, m->n, n_slow);
    double error_after = standard_error(m->noise, m->correlation, m->n, n_after);
    if (change < errors * hypot(error_after, error_before))
        return NONE;
    if (!is_averaged(s) &&
        change < errors * hypot(strays(reference_of(s), n_reference_of(s), n_after), error_before))
        return NONE;
    say(s, kind, n_after, before, m->level, probability);
    if (kind == RELIEF)
        end_slowness(s, n_slow);
    else
        forget(s, n_slow);
    return kind;
}

/* A return that was not seen when it happened (noise, or in small steps) is a relief all the same. */
static int64_t relieve_quietly(struct series *s, double probability)
{
    double excess = newest(s, HORIZON) - s->target;
    if (excess > smaller(RELIEF_BAR * s->min_log_change, REMAINING * (s->slow_level - s->target)))
        return NONE;
    int64_t n_after = locate(s->slow_level, s->row_log, s->n_rows, HORIZON, is_averaged(s));
    say(s, RELIEF, n_after, s->slow_level, s->measured.level, probability);
    end_slowness(s, s->n_rows - n_after);
    return RELIEF;
}

/* An ordinary row. */
static int64_t take(struct series *s, int64_t step, int64_t time_ns, double log_time)
{
    push_row(s, step, time_ns, log_time);
    if (s->state == LEARNING) {
        learn(s);
        return NONE;
    }
    propose(s, log_time);
    if (s->state == HEALTHY) {
        if (s->n_rows > GUARD) {
            join_reference(s, 1);
            if (s->since_measured >= MEASURE_EVERY)
                measure_reference(s);
        }
        if (drift_push(&s->drift, step, time_ns, log_time, s->steps_per_row) && s->finds_small) {
            int64_t kind = judge_small(s);
            if (kind != NONE)
                return kind;
        }
    }
    int64_t horizon = smaller_of(HORIZON, s->n_rows), least = min_rows(s, MIN_AFTER);
    if (horizon < least)
        return NONE;
    double probability = bocd_mass_within(&s->posterior, horizon);
    if (s->state == SLOW && horizon == HORIZON) {
        int64_t kind = relieve_quietly(s, probability);
        if (kind != NONE)
            return kind;
    }
    if (probability < PROBABILITY)
        return NONE;
    if (s->state == HEALTHY && !may_have_changed(s, horizon))
        return NONE;
    measure_reference(s);
    int64_t run = bocd_most_likely_run(&s->posterior);
    for (int64_t i = -1; i < N_WINDOWS; i++) {
        int64_t n_after = i < 0 ? run : windows[i];
        if (n_after < least || n_after > horizon)
            continue;
        int64_t kind = s->state == SLOW ? judge_slow(s, n_after, probability) : judge_healthy(s, n_after, probability);
        if (kind != NONE || s->n_rows < horizon) /* a new baseline has taken them, and nothing is said of it */
            return kind;
    }
    return NONE;
}

/* What looked like a pause goes on: these rows are a level. */
static int64_t release(struct series *s)
{
    int64_t n = s->n_held, said = NONE;
    s->n_held = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t kind = take(s, s->held_step[i], s->held_ns[i], s->held_log[i]);
        if (kind != NONE)
            said = kind;
    }
    return said;
}

/* Tell pauses, and the few slow steps after one, from the rest. */
static int64_t settle(struct series *s, int64_t step, int64_t time_ns, double log_time)
{
    if (s->state == LEARNING)
        return take(s, step, time_ns, log_time);
    double at = s->state == SLOW ? s->slow_level : s->measured.level, excess = log_time - at;
    s->excess = log_time - s->measured.level;
    if (s->n_held < 0 && excess <= PAUSE)
        s->n_held = 0;
    if (excess > PAUSE && s->n_held >= 0) {
        s->tail = 0;
        s->held_step[s->n_held] = step;
        s->held_ns[s->n_held] = time_ns;
        s->held_log[s->n_held] = log_time;
        s->n_held++;
        return s->n_held < MAX_HELD ? NONE : release(s);
    }
    if (s->n_held > 0) {
        double highest = s->held_log[0];
        for (int64_t i = 1; i < s->n_held; i++)
            highest = larger(highest, s->held_log[i]);
        if (excess < 0.5 * (highest - at)) {
            s->n_held = 0;
            s->pauses++;
            s->tail = TAIL;
        } else {
            int64_t kind = release(s);
            if (kind != NONE)
                return kind;
        }
    }
    if (s->tail > 0) {
        s->tail--;
        if (excess > larger(TAIL_EXCESS, smaller(2.0 * s->measured.noise, 2.5 * TAIL_EXCESS)))
            return NONE;
        s->tail = 0;
    }
    return take(s, step, time_ns, log_time);
}

/* Where the row of a step stands among rows of so many steps. */
static int64_t index_of(const struct series *s, int64_t step)
{
    int64_t steps = larger_of(llrint(s->steps_per_row), 1);
    return (step - floor_rest(step, steps)) / steps;
}

/* All that is kept of the series is put as if the pattern had always been known. */
static void look_for_pattern(struct series *s)
{
    struct pattern *p = &s->pattern;
    int64_t old_period = p->period;
    memcpy(s->old_offset, p->offset, sizeof s->old_offset);
    bool has_changed = pattern_look(p);
    if (!has_changed && p->period == old_period)
        return;
    for (int64_t i = 0; i < s->n_rows; i++) {
        int64_t index = index_of(s, s->row_step[i]);
        if (old_period)
            s->row_log[i] += s->old_offset[floor_rest(index, old_period)];
        s->row_log[i] -= pattern_offset_of(p, index);
    }
    if (p->period == old_period || s->state != HEALTHY)
        return;
    int64_t first = s->n_rows ? s->row_step[0] : s->step, n = 0;
    double past[PATTERN_ROWS];
    for (int64_t i = larger_of(p->n - PATTERN_ROWS, 0); i < p->n; i++) {
        double value = p->value[i] - pattern_offset_of(p, p->index[i]);
        if (p->index[i] < index_of(s, first) && fabs(value) < PAUSE)
            past[n++] = value + s->measured.level;
    }
    if (n < LEARN_ROWS)
        return;
    memcpy(s->reference, past, sizeof *past * (size_t)n);
    s->n_reference = n;
    s->n_long_term = 0;
    s->since_measured = 1;
    measure_reference(s);
    bocd_begin(&s->posterior, s->measured.level, LEVEL_SPREAD, larger(s->measured.noise, MIN_PRIOR_NOISE));
    s->last_two[0] = s->last_two[1] = s->measured.level;
    for (int64_t i = 0; i < s->n_rows; i++)
        propose(s, s->row_log[i]);
}

/* Take one row, the mean of `n_steps`; the kind of change that it completes, or -1. */
API int64_t series_advance(struct series *s, int64_t step, int64_t time_ns, double step_time_s, double n_steps)
{
    if (!(step_time_s > 0.0 && isfinite(step_time_s))) {
        s->skipped++;
        return NONE;
    }
    double log_time = log(step_time_s);
    s->seen++;
    if (s->seen == 1) {
        s->steps_per_row = n_steps;
        s->measured.level = log_time; /* until it is learnt */
    } else {
        s->steps_per_row += (n_steps - s->steps_per_row) / (double)smaller_of(s->seen, STEPS_KNOWN_BY);
    }
    /* Relative to the level of the moment: medians over two levels would be a pattern of their own. */
    double at = s->state == SLOW ? s->slow_level : s->measured.level;
    int64_t index = index_of(s, step);
    bool is_time = pattern_remember(&s->pattern, index, log_time - at);
    log_time -= pattern_offset_of(&s->pattern, index);
    int64_t kind = settle(s, step, time_ns, log_time);
    if (is_time && s->state != LEARNING && s->n_held == 0)
        look_for_pattern(s);
    return kind;
}

/* One row of each of `n` series; returns whether any completes a change, `kinds` says which. */
API bool series_advance_all(struct series *all, int64_t n, int64_t step, int64_t time_ns, const double *step_time_s,
                            int64_t *kinds)
{
    bool has_any = false;
    for (int64_t i = 0; i < n; i++) {
        kinds[i] = series_advance(all + i, step, time_ns, step_time_s[i], 1.0);
        has_any = has_any || kinds[i] != NONE;
    }
    return has_any;
}

/* Take the present level for healthy: the caller knows that the work itself has changed. */
API void series_rebaseline(struct series *s)
{
    if (s->state == SLOW)
        new_baseline(s, 0);
}

/* A pause had been announced: the next row may still be disturbed. */
API void series_announce(struct series *s)
{
    s->tail = ANNOUNCED_TAIL;
}

static bool counts(int64_t n, int64_t least, int64_t most)
{
    return least <= n && n <= most;
}

/* Whether what counts the entries of an array lies within it: a record that came out of a snapshot may say anything. */
API bool series_is_sound(const struct series *s)
{
    return counts(s->state, LEARNING, SLOW) && counts(s->n_rows, 0, 2 * RECENT) &&
           counts(s->n_reference, 0, 2 * REFERENCE) && counts(s->n_held, -1, MAX_HELD) &&
           counts(s->pattern.period, 0, MAX_PERIOD) && counts(s->pattern.n, 0, 2 * PATTERN_ROWS) &&
           counts(s->drift.n, 0, 2 * MAX_BLOCKS) && counts(s->drift.n_pending, 0, STEPS_PER_BLOCK - 1);
}
