/* Planned patterns of a few steps: alternating steps, every tenth step slow. See pattern.c. */

#ifndef PACEHOUND_PATTERN_H
#define PACEHOUND_PATTERN_H

#include "loops.h"
#include "records.h"

int64_t floor_rest(int64_t number, int64_t divisor);
API double pattern_offset_of(const struct pattern *pattern, int64_t index);
API bool pattern_remember(struct pattern *pattern, int64_t index, double value);
API bool pattern_look(struct pattern *pattern);

#endif
