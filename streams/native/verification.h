/* Robust levels, an honest yardstick for them, and the bars a change must clear: see verification.c. */

#ifndef PACEHOUND_VERIFICATION_H
#define PACEHOUND_VERIFICATION_H

#include "loops.h"
#include "records.h"

enum {
    LANES = 8, /* as many numbers as the widest vectors hold: a sum has one order, whatever the processor */
    FAR = 4,   /* lag of the longer differences that noise and correlation are taken from */
};

double in_pairs(const double lanes[LANES]);
API double level_of(const double *log_times, int64_t n);
double median_of(const double *values, int64_t n);
API void measure(const double *log_times, int64_t n, bool is_averaged, struct measure *into);
void by_differences(struct measure *m);
API double standard_error(double noise, double correlation, int64_t n_known, int64_t n);
API double strays(const double *log_times, int64_t n_rows, int64_t n);
double highest_stray(const double *log_times, int64_t n_rows, int64_t n, double centre);
API bool persists(const double *after, int64_t n, double middle, double sign, bool is_long);
API int64_t locate(double before, const double *log_times, int64_t n, int64_t n_after, bool is_averaged);
API int64_t split(const double *log_times, int64_t n, int64_t fewest, int64_t most);

#endif
