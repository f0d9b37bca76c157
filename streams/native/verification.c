/* Does a change of level matter? Robust levels, an honest yardstick for them, and the bars a change must clear.
 *
 * Everything works on the logarithm of step times: slowdowns are ratios, jitter scales with the step time, and the
 * tail of a x50 pause is shortened before anything is averaged. Arrays are one series, of a few hundred rows.
 */

#include "verification.h"

#include "level_thresholds.h"

#include <math.h>
#include <string.h>

#define LEAST_SQUARE 1e-12  /* of differences: it is divided by */
#define NOTHING 1e300       /* stands for a value that is not there */

#define INLINE static inline __attribute__((always_inline))

/* The sum of eight sums, of which each is that of every eighth value: in this order on every processor.
 *
 * It is the order in which vectors of two, of four and of eight numbers are added up without being rearranged. */
double in_pairs(const double lanes[LANES])
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

INLINE int64_t n_up_to(const double *values, int64_t n, double most)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        found += values[i] <= most;
    return found;
}

INLINE int64_t n_below(const double *values, int64_t n, double bound)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        found += values[i] < bound;
    return found;
}

INLINE double sum_between(const double *values, int64_t n, double low, double high)
{
    double lanes[LANES] = {0.0};
    int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += low < values[i + lane] && values[i + lane] < high ? values[i + lane] : 0.0;
    for (int64_t i = whole; i < n; i++)
        lanes[i - whole] += low < values[i] && values[i] < high ? values[i] : 0.0;
    return in_pairs(lanes);
}

INLINE double largest_up_to(const double *values, int64_t n, double most)
{
    double lanes[LANES], largest = -NOTHING;
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane] = -NOTHING;
    int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] = larger(lanes[lane], values[i + lane] <= most ? values[i + lane] : -NOTHING);
    for (int64_t i = whole; i < n; i++)
        largest = larger(largest, values[i] <= most ? values[i] : -NOTHING);
    for (int lane = 0; lane < LANES; lane++)
        largest = larger(largest, lanes[lane]);
    return largest;
}

INLINE double least_above(const double *values, int64_t n, double bound)
{
    double lanes[LANES], least = NOTHING;
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane] = NOTHING;
    int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] = smaller(lanes[lane], values[i + lane] > bound ? values[i + lane] : NOTHING);
    for (int64_t i = whole; i < n; i++)
        least = smaller(least, values[i] > bound ? values[i] : NOTHING);
    for (int lane = 0; lane < LANES; lane++)
        least = smaller(least, lanes[lane]);
    return least;
}

/* The value with `k` others below it (or equal to it), by halving the range that it lies in and counting.
 *
 * A sort of noise stalls the processor at every second comparison; here no branch depends on a single value, and
 * several are counted at once. For 384 values that is ten times as fast. */
INLINE double nth(const double *values, int64_t n, int64_t k)
{
    double low = least_above(values, n, -INFINITY), high = largest_up_to(values, n, INFINITY);
    int64_t n_low = n_up_to(values, n, low), n_high = n;
    if (n_low > k)
        return low;
    while (n_high - n_low > 1) {
        double middle = 0.5 * (low + high);
        if (middle <= low || middle >= high)
            break;
        int64_t n_middle = n_up_to(values, n, middle);
        if (n_middle > k) {
            high = middle;
            n_high = n_middle;
        } else {
            low = middle;
            n_low = n_middle;
        }
    }
    return largest_up_to(values, n, high);
}

/* So many values are left out at each end of a window. */
INLINE int64_t cut_of(int64_t n)
{
    return (int64_t)(TRIM * (double)n);
}

/* The mean of what is left, given the lowest and the highest of that. */
INLINE double mean_between(const double *values, int64_t n, int64_t cut, double low, double high)
{
    if (low == high)
        return low;
    /* Of the values that equal a border, those beyond it are not counted. */
    double total = (double)(n_up_to(values, n, low) - cut) * low + (double)(n - cut - n_below(values, n, high)) * high;
    return (total + sum_between(values, n, low, high)) / (double)(n - 2 * cut);
}

/* Trimmed mean: the middle 60 % of a window.
 *
 * A mean is moved by one checkpoint pause; a median jumps by the whole difference where steps alternate between two
 * values and the window holds one more of one kind. The trimmed mean does neither. */
API FOR_ALL_VECTORS double level_of(const double *log_times, int64_t n)
{
    int64_t cut = cut_of(n);
    return mean_between(log_times, n, cut, nth(log_times, n, cut), nth(log_times, n, n - 1 - cut));
}

/* The middle value, or the mean of the two middle ones. */
FOR_ALL_VECTORS double median_of(const double *values, int64_t n)
{
    int64_t k = (n - 1) / 2;
    double low = nth(values, n, k);
    if (n % 2 || n_up_to(values, n, low) > k + 1)
        return low;
    return 0.5 * (low + least_above(values, n, low));
}

static double half_mean_square(const double *differences, int64_t n)
{
    if (n < 1)
        return LEAST_SQUARE;
    double distances[n], total = 0.0;
    for (int64_t i = 0; i < n; i++)
        distances[i] = fabs(differences[i]);
    double scale = larger(CLIP * SIGMAS * median_of(distances, n), MIN_NOISE);
    for (int64_t i = 0; i < n; i++) {
        double clipped = between(-scale, differences[i], scale);
        total += clipped * clipped;
    }
    return larger(0.5 * total / (double)n, LEAST_SQUARE);
}

/* Measure a stretch of at least `FAR + 2` rows.
 *
 * Noise and correlation come from differences, half of whose mean square is, for AR(1) noise, at lag k
 *
 *     S_k = noise^2 (1 - rho^k),  so that  S_4 / S_1 = 1 + rho + rho^2 + rho^3.
 *
 * A jump of the level spoils four differences of hundreds, and they are clipped; the scatter about one level, the
 * usual estimate, takes every jump for noise, and after one slow period that was missed no other would be found.
 *
 * Where each row is the mean of many steps (`is_averaged`) the correlation of single steps has been averaged away
 * and rows are few: what looks like correlation there are the levels themselves, so it is taken to be 0.5. */
API void measure(const double *log_times, int64_t n, bool is_averaged, struct measure *into)
{
    double differences[n];
    into->level = level_of(log_times, n);
    into->n = n;
    for (int64_t i = 0; i < n - 1; i++)
        differences[i] = log_times[i + 1] - log_times[i];
    if (is_averaged) {
        for (int64_t i = 0; i < n - 1; i++)
            differences[i] = fabs(differences[i]);
        double noise = SIGMAS * median_of(differences, n - 1);
        into->near = 0.5 * (noise * noise);
        into->far = into->near;
        into->correlation = AVERAGED_CORRELATION;
        into->noise = larger(sqrt(into->near / (1.0 - AVERAGED_CORRELATION)), MIN_NOISE);
        return;
    }
    into->near = half_mean_square(differences, n - 1);
    for (int64_t i = 0; i < n - FAR; i++)
        differences[i] = log_times[i + FAR] - log_times[i];
    into->far = half_mean_square(differences, n - FAR);
    by_differences(into);
}

/* Noise and correlation from `near` (S_1) and `far` (S_4). */
void by_differences(struct measure *m)
{
    double ratio = between(1.0, m->far / m->near, 4.0), low = 0.0, high = MAX_CORRELATION;
    for (int i = 0; i < 20; i++) {
        double rho = 0.5 * (low + high);
        if (1.0 + rho + rho * rho + rho * rho * rho < ratio)
            low = rho;
        else
            high = rho;
    }
    m->correlation = low;
    m->noise = larger(sqrt(m->near / (1.0 - low)), MIN_NOISE);
}

/* By squares: the same digits on every machine, which `pow` does not promise. */
static double to_the(double value, int64_t power)
{
    double product = 1.0;
    for (; power; power >>= 1, value *= value)
        if (power & 1)
            product *= value;
    return product;
}

/* Standard deviation of the level of `n` consecutive steps, by an AR(1) model of the noise.
 *
 * noise^2 / n * ((1 + rho) / (1 - rho) - 2 rho (1 - rho^n) / (n (1 - rho)^2)) * (1 + 4 / independent steps known) */
API double standard_error(double noise, double correlation, int64_t n_known, int64_t n)
{
    double rho = correlation, steps = (double)n;
    double inflation = (1.0 + rho) / (1.0 - rho) -
                       2.0 * rho * (1.0 - to_the(rho, n)) / (steps * ((1.0 - rho) * (1.0 - rho)));
    double independent = (double)n_known * (1.0 - rho) / (1.0 + rho);
    return noise * sqrt(larger(inflation, 1.0) / steps * (1.0 + SHORT / independent));
}

/* How far levels of windows of `n` steps stray from their own median: 1.48 times the median distance.
 *
 * It sees what the model of the noise does not: patterns, bursts, a neighbour that comes and goes. 0 where the past
 * holds fewer than four such windows. */
API double strays(const double *log_times, int64_t n_rows, int64_t n)
{
    if (n < 1 || n_rows < 4 * n)
        return 0.0;
    double levels[n_rows];
    int64_t count = 0, first = 0;
    do {
        levels[count++] = level_of(log_times + first, n);
        first += larger_of(n / 4, 1);
    } while (first <= n_rows - n);
    double middle = median_of(levels, count);
    for (int64_t i = 0; i < count; i++)
        levels[i] = fabs(levels[i] - middle);
    return SIGMAS * median_of(levels, count);
}

/* How far above `centre` the level of any window of `n` steps was; infinite where there are fewer than four. */
double highest_stray(const double *log_times, int64_t n_rows, int64_t n, double centre)
{
    if (n_rows < 4 * n)
        return INFINITY;
    double highest = 0.0;
    for (int64_t first = 0; first <= n_rows - n; first += larger_of(n / 4, 1))
        highest = larger(highest, level_of(log_times + first, n) - centre);
    return highest;
}

/* Whether most of the steps, and of the last five, lie beyond the middle between two levels.
 *
 * A level that has lasted long may be a mixture: where steps alternate between two values, half of them stay on the
 * old side. Otherwise 65 % must lie beyond the middle and four of the last five: a burst that is over, or every tenth
 * step slow, is no level. */
API bool persists(const double *after, int64_t n, double middle, double sign, bool is_long)
{
    double share = is_long ? 0.45 : 0.65;
    int64_t of_last = is_long ? 2 : 4, beyond = 0, last = 0;
    for (int64_t i = 0; i < n; i++)
        if (sign * (after[i] - middle) > 0.0) {
            beyond++;
            last += i >= n - 5;
        }
    return (double)beyond >= share * (double)n && last >= of_last;
}

/* How many of the newest steps belong to the new level, given that about `n_after` do.
 *
 * The split that puts most steps on their own side of the middle between the two levels: the largest sum, from there
 * to the end, of the distances beyond the middle, each cut to half of the change so that a spike counts once. Among
 * the steps before the proposed ones, three in a row on the old side end the search: a level that was so interrupted
 * has begun anew. Where rows are means of many steps, that holds for the proposed ones, too. */
API int64_t locate(double before, const double *log_times, int64_t n, int64_t n_after, bool is_averaged)
{
    double half = 0.5 * (level_of(log_times + n - n_after, n_after) - before);
    double sign = half >= 0.0 ? 1.0 : -1.0, cut = fabs(half), best = -1.0, total = 0.0;
    int64_t low = larger_of(n - n_after - NEIGHBOURS, 0), at = n_after, on_old_side = 0;
    for (int64_t i = n - 1; i >= low; i--) {
        double beyond = (log_times[i] - before - half) * sign;
        on_old_side = beyond <= 0.0 ? on_old_side + 1 : 0;
        if (on_old_side == 3 && (is_averaged || i < n - n_after))
            break;
        total += between(-cut, beyond, cut);
        if (total >= best) {
            best = total;
            at = n - i;
        }
    }
    return at;
}

/* `value` joins `n` others in their order. */
INLINE void insert(double *in_order, int64_t n, double value)
{
    int64_t at = n_up_to(in_order, n, value);
    memmove(in_order + at + 1, in_order + at, sizeof *in_order * (size_t)(n - at));
    in_order[at] = value;
}

/* `value` leaves `n` in their order, of which it is one. */
INLINE void take_out(double *in_order, int64_t n, double value)
{
    int64_t at = n_below(in_order, n, value);
    memmove(in_order + at, in_order + at + 1, sizeof *in_order * (size_t)(n - at - 1));
}

/* `level_of` a window whose values are known in their order, too. */
INLINE double level_in_order(const double *log_times, const double *in_order, int64_t n)
{
    int64_t cut = cut_of(n);
    return mean_between(log_times, n, cut, in_order[cut], in_order[n - 1 - cut]);
}

/* How many of the newest rows, `fewest` to `most`, belong to the newer of two levels: the best of all splits.
 *
 * The rows before it are compared with their own level, the rows after it with theirs; least absolute deviations.
 * From split to split one row changes sides, so both sides are kept in order: of a slow and noisy series this is asked
 * at each row. */
API FOR_ALL_VECTORS int64_t split(const double *log_times, int64_t n, int64_t fewest, int64_t most)
{
    if (n - fewest < 3)
        return fewest;
    double best = INFINITY, older[n], newer[n];
    int64_t at = fewest;
    for (int64_t i = 0; i < n; i++)
        if (i < n - fewest)
            insert(older, i, log_times[i]);
        else
            insert(newer, i - (n - fewest), log_times[i]);
    for (int64_t n_after = fewest; n_after <= most && n - n_after >= 3; n_after++) {
        int64_t n_before = n - n_after;
        double before = level_in_order(log_times, older, n_before);
        double after = level_in_order(log_times + n_before, newer, n_after);
        double total = 0.0;
        for (int64_t i = 0; i < n; i++)
            total += fabs(log_times[i] - (i < n_before ? before : after));
        if (total < best) {
            best = total;
            at = n_after;
        }
        take_out(older, n_before, log_times[n_before - 1]);
        insert(newer, n_after, log_times[n_before - 1]);
    }
    return at;
}
