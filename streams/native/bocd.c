/* Bayesian online changepoint detection: how long ago did this series last change its level?
 *
 * R. P. Adams, D. J. C. MacKay, "Bayesian Online Changepoint Detection", 2007; Falcon, section 4.2, appendix 9.1. What
 * is kept, and in which order a run is scored, is told in streams/level/bocd.py.
 */

#include "bocd.h"

#include "level_thresholds.h"
#include "verification.h"

#include <math.h>

#define ODDS_OF_CHANGE (HAZARD / (1.0 - HAZARD))
#define LAST_ALPHA (NOISE_WEIGHT + 0.5 * MAX_RUN)
#define FORGET (LAST_ALPHA / (LAST_ALPHA + 0.5))
enum { CELLS = MAX_RUN + 1 };

/* Gamma(alpha + 1/2) / Gamma(alpha) of each run length; of two neighbours the product is alpha. */
static double gammas[CELLS];

__attribute__((constructor)) static void fill_gammas(void)
{
    gammas[0] = 0.75 * sqrt(M_PI);
    for (int run = 0; run < MAX_RUN; run++)
        gammas[run + 1] = (NOISE_WEIGHT + 0.5 * run) / gammas[run];
}

/* Set the prior: a run's level is `level` +- `level_spread`, the observations scatter about it by `noise`. */
API void bocd_begin(struct posterior *posterior, double level, double level_spread, double noise)
{
    posterior->level_0 = level;
    posterior->kappa_0 = (noise / level_spread) * (noise / level_spread);
    posterior->beta_0 = NOISE_WEIGHT * noise * noise;
    for (int run = 0; run < CELLS; run++) {
        posterior->probability[run] = 0.0;
        posterior->mean[run] = level;
        posterior->beta[run] = posterior->beta_0;
    }
}

static inline __attribute__((always_inline)) double sum_of(const double *values, int64_t n)
{
    double lanes[LANES] = {0.0};
    int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += values[i + lane];
    for (int64_t i = whole; i < n; i++)
        lanes[i - whole] += values[i];
    return in_pairs(lanes);
}

/* Take the next observation (finite); run lengths below `prune` are given up, 0 keeps all.
 *
 * A run of `r` observations predicts with 2 alpha = 4 + r degrees of freedom and scale^2 = beta (kappa + 1) /
 * (alpha kappa). With `beta'` after the observation that is, but for a constant, the product
 *
 *     t(x) = gammas[r] * sqrt(kappa / (kappa + 1) / beta) * sqrt(beta / beta')^(r + 5)
 *
 * whose power is a whole number: squares and products in the place of two logarithms and an exponential. Every cell
 * takes the same path, so that several are worked on at once (seven times as fast). */
API FOR_ALL_VECTORS void bocd_observe(struct posterior *posterior, double x, double prune)
{
    double *probability = posterior->probability, *mean = posterior->mean, *beta = posterior->beta;
    double kappa_0 = posterior->kappa_0;
    double weight[CELLS], next_mean[CELLS], next_beta[CELLS];
    probability[0] = ODDS_OF_CHANGE;
    for (int64_t run = 0; run < CELLS; run++) {
        double kappa = kappa_0 + (double)(int32_t)run;
        double share = kappa / (kappa + 1.0);
        double deviation = x - mean[run];
        next_mean[run] = mean[run] + deviation / (kappa + 1.0);
        next_beta[run] = beta[run] + 0.5 * share * deviation * deviation;
        double square = sqrt(beta[run] / next_beta[run]);
        double power = 1.0;
        for (int bit = 0; bit < 8; bit++) {
            power *= (run + 5) >> bit & 1 ? square : 1.0;
            square *= square;
        }
        weight[run] = probability[run] * gammas[run] * sqrt(share / beta[run]) * power;
    }
    double total = sum_of(weight, CELLS);
    probability[0] = 0.0;
    probability[1] = weight[0] / total;
    for (int64_t run = 1; run < MAX_RUN; run++) {
        double now = weight[run] / total;
        probability[run + 1] = now > prune ? now : 0.0;
    }
    /* Two runs meet in the last cell, the one that is there and the one that reaches it. */
    double both = weight[MAX_RUN] + weight[MAX_RUN - 1];
    double stays = both > 0.0 ? weight[MAX_RUN] / both : 0.0;
    probability[MAX_RUN] = both / total > prune ? both / total : 0.0;
    memcpy(mean + 1, next_mean, sizeof *mean * (MAX_RUN - 1));
    memcpy(beta + 1, next_beta, sizeof *beta * (MAX_RUN - 1));
    mean[MAX_RUN] = stays * next_mean[MAX_RUN] + (1.0 - stays) * next_mean[MAX_RUN - 1];
    double last_beta = stays * next_beta[MAX_RUN] * FORGET + (1.0 - stays) * next_beta[MAX_RUN - 1];
    beta[MAX_RUN] = larger(last_beta, LEAST_BETA * posterior->beta_0);
}

/* Probability that the present run holds at most `n` observations. */
API FOR_ALL_VECTORS double bocd_mass_within(const struct posterior *posterior, int64_t n)
{
    return sum_of(posterior->probability + 1, smaller_of(n, MAX_RUN)) / sum_of(posterior->probability, CELLS);
}

/* The most probable number of observations in the present run; 0 before the first. */
API int64_t bocd_most_likely_run(const struct posterior *posterior)
{
    int64_t best = 0;
    for (int64_t run = 1; run < CELLS; run++)
        if (posterior->probability[run] > posterior->probability[best])
            best = run;
    return best;
}
