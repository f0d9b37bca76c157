/* Small and slow slowdowns: what BOCD with its 10 % verification cannot see. See drift.c. */

#ifndef PACEHOUND_DRIFT_H
#define PACEHOUND_DRIFT_H

#include "loops.h"
#include "records.h"

API double drift_bar(int64_t n_blocks, bool is_averaged);
API int64_t drift_rows_per_block(double steps_per_row);
API bool drift_push(struct drift *drift, int64_t step, int64_t time_ns, double log_time, double steps_per_row);
API void drift_drop_since(struct drift *drift, int64_t step);
bool drift_judge(struct drift *drift, double steps_per_row);
API double drift_highest_quarter(const double *before, int64_t n);
API int64_t drift_onset(const double *known, int64_t n, double base, int64_t reach, int64_t *is_ramp);

#endif
