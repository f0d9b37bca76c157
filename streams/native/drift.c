/* Small and slow slowdowns: what BOCD with its 10 % verification cannot see.
 *
 * The steps are drawn together into blocks of eight. At each new block the last 3 to 64 blocks are compared with the
 * older ones, a gap of at least twice their number left out, so that a ramp is not compared with its own foot. That is
 * a generalised likelihood ratio for a shift of unknown length (Siegmund and Venkatraman, 1995) with a robust mean in
 * the place of the mean. A CUSUM would need the size of the shift beforehand, and a plain likelihood ratio takes
 * correlated noise for shifts. Here the yardstick is the past itself: the standard error of so many blocks by their own
 * noise and lag-1 correlation, how windows of that length strayed before, and the furthest of them.
 *
 * The bar falls with the number of steps that the window covers (8 % from 24, 6 % from 32, 4 % from 128): what is small
 * must last longer to matter.
 */

#include "drift.h"

#include "level_thresholds.h"
#include "verification.h"

#include <math.h>

#define N_OF(array) ((int64_t)(sizeof(array) / sizeof *(array)))

static const int64_t windows[] = {3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64};
static const int64_t scales[] = {0, 8, 24, 64}; /* windows up to each of these share what they are compared with */

/* Smallest shift, as a logarithm, that is reported when it has lasted for so many blocks. */
API double drift_bar(int64_t n_blocks, bool is_averaged)
{
    if (n_blocks < (is_averaged ? 8 : 4))
        return log(1.08);
    if (n_blocks < 16)
        return log(1.06);
    return is_averaged ? log(1.05) : log(1.04);
}

/* A block covers eight steps, or one row where a row covers more. */
API int64_t drift_rows_per_block(double steps_per_row)
{
    return (int64_t)between(1.0, STEPS_PER_BLOCK / steps_per_row, STEPS_PER_BLOCK);
}

/* Take a row of the healthy series; whether it completes a block. */
API bool drift_push(struct drift *drift, int64_t step, int64_t time_ns, double log_time, double steps_per_row)
{
    if (drift->n_pending == 0) {
        drift->first_step = step;
        drift->first_ns = time_ns;
    }
    drift->pending[drift->n_pending++] = log_time;
    if (drift->n_pending < drift_rows_per_block(steps_per_row))
        return false;
    if (drift->n == 2 * MAX_BLOCKS) {
        memcpy(drift->value, drift->value + MAX_BLOCKS, sizeof *drift->value * MAX_BLOCKS);
        memcpy(drift->step, drift->step + MAX_BLOCKS, sizeof *drift->step * MAX_BLOCKS);
        memcpy(drift->time_ns, drift->time_ns + MAX_BLOCKS, sizeof *drift->time_ns * MAX_BLOCKS);
        drift->n = MAX_BLOCKS;
    }
    drift->value[drift->n] = level_of(drift->pending, drift->n_pending);
    drift->step[drift->n] = drift->first_step;
    drift->time_ns[drift->n] = drift->first_ns;
    drift->n++;
    drift->n_pending = 0;
    return true;
}

/* Forget the blocks that hold `step` or later ones: they are not healthy. */
API void drift_drop_since(struct drift *drift, int64_t step)
{
    drift->n_pending = 0;
    while (drift->n && drift->step[drift->n - 1] >= step)
        drift->n--;
}

/* The highest level of four equal parts: a return from a fast spell, or from warm-up, is no slowdown. */
API double drift_highest_quarter(const double *before, int64_t n)
{
    double highest = -INFINITY;
    for (int64_t quarter = 0; quarter < 4; quarter++) {
        int64_t first = quarter * n / 4;
        highest = larger(highest, level_of(before + first, (quarter + 1) * n / 4 - first));
    }
    return highest;
}

/* Where the shift began: the first block of the best step, or of the best ramp where that fits better.
 *
 * Both start from `base` and are fitted by least absolute deviations over the last blocks: a step at block `s`, a line
 * that rises from `s` to the end. */
API int64_t drift_onset(const double *known, int64_t n, double base, int64_t reach, int64_t *is_ramp)
{
    int64_t step_at = n - 1, ramp_at = n - 1;
    double best_step = INFINITY, best_ramp = INFINITY, foot = 0.0; /* `foot`: of the blocks before the start */
    for (int64_t s = larger_of(n - reach, 0); s < n - 2; s++) {
        const double *tail = known + s;
        int64_t length = n - s;
        double centre = level_of(tail, length), step_error = foot, ramp_error = foot;
        for (int64_t i = 0; i < length; i++)
            step_error += fabs(tail[i] - centre);
        double slope = 2.0 * (centre - base) / (double)length; /* gives the tail its sum */
        for (int64_t i = 0; i < length; i++)
            ramp_error += fabs(tail[i] - base - slope * ((double)i + 0.5));
        if (step_error < best_step) {
            best_step = step_error;
            step_at = s;
        }
        if (ramp_error < best_ramp) {
            best_ramp = ramp_error;
            ramp_at = s;
        }
        foot += fabs(known[s] - base);
    }
    *is_ramp = best_ramp < RAMP_FIT * best_step;
    return *is_ramp ? ramp_at : step_at;
}

/* Whether the last blocks of any window in (shortest, longest] lie above the older ones. */
static bool judge_scale(struct drift *drift, double steps_per_row, int64_t shortest, int64_t longest)
{
    int64_t per_block = drift_rows_per_block(steps_per_row);
    bool is_averaged = steps_per_row >= STEPS_PER_BLOCK, is_measured = false;
    const double *known = drift->value + larger_of(drift->n - MAX_BLOCKS, 0);
    int64_t n = smaller_of(drift->n, MAX_BLOCKS), n_before = n - 3 * longest;
    if (n_before < larger_of(is_averaged ? MIN_BEFORE_AVERAGED : MIN_BEFORE, longest))
        return false;
    double base = drift_highest_quarter(known, n_before);
    for (int64_t at = 0; at < N_OF(windows); at++) {
        int64_t window = windows[at];
        if (window * per_block < MIN_ROWS || window <= shortest || window > longest)
            continue;
        double after = level_of(known + n - window, window), middle = 0.5 * (after + base);
        if (after - base < drift_bar(window, is_averaged) || known[n - 1] <= middle)
            continue;
        struct measure *m = &drift->scratch;
        if (!is_measured)
            measure(known, n_before, is_averaged, m);
        is_measured = true;
        double error_before = standard_error(m->noise, m->correlation, n_before, n_before);
        double error_after =
            larger(standard_error(m->noise, m->correlation, n_before, window), strays(known, n_before, window));
        if (after - base < ERRORS * hypot(error_after, error_before))
            continue;
        int64_t beyond = 0;
        for (int64_t i = n - window; i < n; i++)
            beyond += known[i] > middle;
        if ((double)beyond < BEYOND * (double)window)
            continue;
        /* A shift cannot have begun before the series was healthy again: what lies before is another stretch. */
        int64_t n_since = 0;
        while (n_since < n && drift->step[drift->n - 1 - n_since] >= drift->healthy_since)
            n_since++;
        if (n_since < window)
            continue;
        int64_t first = drift_onset(known, n, base, smaller_of(4 * window, n_since), &drift->is_ramp);
        drift->base = base;
        drift->after = after;
        drift->n_after = window;
        drift->onset_step = drift->step[drift->n - n + first];
        drift->onset_ns = drift->time_ns[drift->n - n + first];
        return true;
    }
    return false;
}

/* Whether the newest blocks lie above the older ones; what was found stands in the record. */
bool drift_judge(struct drift *drift, double steps_per_row)
{
    if (steps_per_row >= STEPS_PER_BLOCK) {
        /* Rows are few: every window is looked at, each against all that is three times as old. */
        for (int64_t at = 0; at < N_OF(windows); at++)
            if (judge_scale(drift, steps_per_row, windows[at] - 1, windows[at]))
                return true;
        return false;
    }
    /* Long windows change slowly and are looked at less often. */
    for (int64_t scale = 0; scale < N_OF(scales) - 1; scale++)
        if (drift->n % (1 << scale) == 0 && judge_scale(drift, steps_per_row, scales[scale], scales[scale + 1]))
            return true;
    return false;
}
