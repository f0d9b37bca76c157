/* Planned patterns of a few steps: alternating steps, every tenth step slow. They are learnt and taken out.
 *
 * For a period `p` every phase has a level of its own, the median of its rows. `p` is a pattern when the distances from
 * those medians are together at most 65 % of the distances from one level for all; random noise gives 80 % or more, for
 * there are at least five rows of each phase. Candidates come from the autocorrelation of the clipped distances, so that
 * the medians are taken for few. The smallest period that explains as much as any is the one.
 */

#include "pattern.h"

#include "level_thresholds.h"
#include "verification.h"

#include <math.h>

#define LITTLE 1e-12 /* added to what is divided by */

/* What is left of a division that rounds down: not negative. */
int64_t floor_rest(int64_t number, int64_t divisor)
{
    int64_t rest = number % divisor;
    return rest < 0 ? rest + divisor : rest;
}

/* What the pattern adds to the row at `index`; 0 without a pattern. */
API double pattern_offset_of(const struct pattern *pattern, int64_t index)
{
    return pattern->period ? pattern->offset[floor_rest(index, pattern->period)] : 0.0;
}

/* Keep a row, as it is; whether it is time to look for a pattern. */
API bool pattern_remember(struct pattern *pattern, int64_t index, double value)
{
    if (pattern->n == 2 * PATTERN_ROWS) {
        memcpy(pattern->index, pattern->index + PATTERN_ROWS, sizeof *pattern->index * PATTERN_ROWS);
        memcpy(pattern->value, pattern->value + PATTERN_ROWS, sizeof *pattern->value * PATTERN_ROWS);
        pattern->n = PATTERN_ROWS;
    }
    pattern->index[pattern->n] = index;
    pattern->value[pattern->n] = value;
    pattern->n++;
    pattern->since++;
    return pattern->since >= EVERY && pattern->n >= EVERY;
}

/* Whether the newest rows scatter no more about the pattern than about one level.
 *
 * Medians over all rows kept would hold on to a pattern that has stopped, and move by half of it in the end. */
static bool helps(const struct pattern *pattern)
{
    int64_t n = smaller_of(pattern->n, EVERY);
    const int64_t *indices = pattern->index + pattern->n - n;
    const double *values = pattern->value + pattern->n - n;
    double centre = level_of(values, n), total = 0.0, left = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double distance = between(-CAP, values[i] - centre, CAP);
        total += fabs(distance);
        left += fabs(distance - pattern->offset[floor_rest(indices[i], pattern->period)]);
    }
    return left <= total;
}

FOR_ALL_VECTORS static double correlation(const double *clipped, int64_t n, double power, int64_t lag)
{
    double lanes[LANES] = {0.0};
    int64_t pairs = n - lag, whole = pairs - pairs % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += clipped[i + lane + lag] * clipped[i + lane];
    for (int64_t i = whole; i < pairs; i++)
        lanes[i - whole] += clipped[i + lag] * clipped[i];
    return in_pairs(lanes) / power * (double)n / (double)pairs;
}

/* Share of the distances that is left when every phase has its median; the medians are left in `tried`. */
static double unexplained(struct pattern *pattern, const int64_t *indices, const double *distances, int64_t n,
                          int64_t period)
{
    double phase[PATTERN_ROWS], total = LITTLE, left = 0.0;
    int64_t phase_of[PATTERN_ROWS];
    for (int64_t i = 0; i < n; i++)
        phase_of[i] = floor_rest(indices[i], period);
    for (int64_t k = 0; k < period; k++) {
        int64_t n_phase = 0;
        for (int64_t i = 0; i < n; i++)
            if (phase_of[i] == k)
                phase[n_phase++] = distances[i];
        double middle = n_phase ? median_of(phase, n_phase) : 0.0;
        pattern->tried[k] = middle;
        for (int64_t i = 0; i < n_phase; i++) {
            total += fabs(phase[i]);
            left += fabs(phase[i] - middle);
        }
    }
    return left / total;
}

static bool adopt(struct pattern *pattern, const int64_t *indices, const double *values, int64_t n, int64_t period)
{
    unexplained(pattern, indices, values, n, period);
    double *tried = pattern->tried, centre = level_of(tried, period), furthest = 0.0;
    for (int64_t k = 0; k < period; k++) {
        tried[k] -= centre;
        furthest = larger(furthest, fabs(tried[k]));
    }
    if (furthest < MIN_OFFSET)
        return false;
    pattern->period = period;
    memcpy(pattern->offset, tried, sizeof *tried * (size_t)period);
    return true;
}

static void forget(struct pattern *pattern)
{
    pattern->period = 0;
    memset(pattern->offset, 0, sizeof pattern->offset);
}

/* Search for a pattern, or see whether the known one holds; whether the offsets have changed. */
API bool pattern_look(struct pattern *pattern)
{
    pattern->since = 0;
    int64_t n = smaller_of(pattern->n, PATTERN_ROWS);
    const double *values = pattern->value + pattern->n - n;
    const int64_t *indices = pattern->index + pattern->n - n;
    double centre = level_of(values, n), distances[PATTERN_ROWS], clipped[PATTERN_ROWS];
    for (int64_t i = 0; i < n; i++)
        distances[i] = between(-CAP, values[i] - centre, CAP);
    if (pattern->period) {
        if (helps(pattern) && unexplained(pattern, indices, distances, n, pattern->period) <= DROPPED_AT)
            return adopt(pattern, indices, values, n, pattern->period);
        forget(pattern);
    }
    for (int64_t i = 0; i < n; i++)
        clipped[i] = fabs(distances[i]);
    double clip = 3.0 * 1.4826 * larger(median_of(clipped, n), 1e-4), power = LITTLE;
    for (int64_t i = 0; i < n; i++) {
        clipped[i] = between(-clip, distances[i], clip);
        power += clipped[i] * clipped[i];
    }
    int64_t best = 0;
    double least = MAX_UNEXPLAINED;
    for (int64_t period = 2; period <= smaller_of(MAX_PERIOD, n / MIN_PER_PHASE); period++) {
        if (correlation(clipped, n, power, period) < MIN_CORRELATION)
            continue;
        /* Medians of few rows follow them: a long period explains some of any noise. */
        double left = unexplained(pattern, indices, distances, n, period) / (1.0 - (double)period / (double)n);
        if (left < (best ? BETTER * least : least)) {
            best = period;
            least = left;
        }
    }
    if (best == 0 || !adopt(pattern, indices, values, n, best))
        return false;
    if (helps(pattern))
        return true;
    forget(pattern);
    return false;
}
