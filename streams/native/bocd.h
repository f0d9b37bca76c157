/* Bayesian online changepoint detection: how long ago did this series last change its level? See bocd.c. */

#ifndef PACEHOUND_BOCD_H
#define PACEHOUND_BOCD_H

#include "loops.h"
#include "records.h"

API void bocd_begin(struct posterior *posterior, double level, double level_spread, double noise);
API void bocd_observe(struct posterior *posterior, double x, double prune);
API double bocd_mass_within(const struct posterior *posterior, int64_t n);
API int64_t bocd_most_likely_run(const struct posterior *posterior);

#endif
